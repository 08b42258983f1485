"""What is not the job's own: CUDA context, workspaces, fragmentation of the allocator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright.memory.constants import Constants

Count = Any


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bytes: ``context`` outside the allocator, ``workspace`` and ``fragmentation`` inside."""

    context: Count
    workspace: Count
    fragmentation: Count


def overhead_of(allocated: Count, constants: Constants) -> Overhead:
    """Return the overhead beside ``allocated`` bytes of tensors."""
    workspace = constants["workspace_bytes"]
    return Overhead(
        context=constants["context_bytes"],
        workspace=workspace,
        fragmentation=constants["fragmentation_share"] * (allocated + workspace),
    )
