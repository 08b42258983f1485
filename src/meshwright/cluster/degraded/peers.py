"""What is usual among peers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from meshwright.findings import Place

ItemT = TypeVar("ItemT", bound=Hashable)
PlaceOf = Callable[[int], Place]
"""Place of a device by its position in the facts."""


def usual(values: Iterable[ItemT], share: float = 0.5) -> ItemT | None:
    """Return the value that more than ``share`` of all have; ``None`` where none has."""
    counts = Counter(values)
    if not counts:
        return None
    value, count = counts.most_common(1)[0]
    return value if count > share * counts.total() else None


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and how many follow."""
    text = ", ".join(names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text


def gpu_name(name: str) -> str:
    """Return a GPU's name as people write it: NCCL's ``3`` is ``GPU 3``."""
    return f"GPU {name}" if name[:1].isdigit() else name
