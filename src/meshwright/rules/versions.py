"""Which release of a framework a job means, where rules differ between releases.

The ranges were read in the wheels of megatron-core 0.5.0 to 0.16.1.
"""

from __future__ import annotations

import re

from meshwright.rules.registry import RuleContext

_NUMBER = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
PINNED = (0, 16, 1)
"""The megatron-core release whose rules are applied when the job names none that is understood."""
INTERLEAVED_PP2 = (0, 8)
"""From here on two stages may be interleaved, with overlapped p2p (commit 152c5620)."""
MICROBATCH_GROUPS = (0, 10)
"""From here on groups of microbatches replace ``m % pp == 0``."""
KV_DIVISOR = (0, 16)
"""From here on tp may be a multiple of the key/value heads."""


def megatron_release(context: RuleContext) -> tuple[int, ...]:
    """Return the release of megatron-core that the job names, else the pinned one."""
    given = (context.section.framework_version or "").lower()
    found = _NUMBER.search(given[:200])
    if found is None or ("megatron" in given and "core" not in given):
        return PINNED
    return tuple(int(part) for part in found.groups(default="0"))


def release_text(release: tuple[int, ...]) -> str:
    """Return ``megatron-core 0.16.1``."""
    return f"megatron-core {'.'.join(map(str, release))}"
