"""Small bounded reads of the kernel's files; nothing here raises for what a file holds."""

from __future__ import annotations

import os
import re
from pathlib import Path

_VALUE_BYTES = 4096
_VALUE_CHARACTERS = 256
_DIGITS = re.compile(r"([0-9]{1,18})")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
_NUMBER = re.compile(r"-?[0-9]{1,15}\Z")


def read_text(path: Path, limit_bytes: int = _VALUE_BYTES) -> str | None:
    """Return the start of a file; ``None`` where it cannot be read."""
    try:
        # What waits for a writer is not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.read(descriptor, limit_bytes).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read_value(path: Path) -> str | None:
    """Return the one value of a file, printable; ``None`` where it is unreadable or empty."""
    text = read_text(path)
    return None if text is None else printable(text) or None


def read_number(path: Path, base: int = 10) -> int | None:
    """Return the one whole number of a file; ``None`` where it holds none."""
    text = read_value(path)
    if text is None:
        return None
    if base == 16:
        digits = text.removeprefix("0x")
        return int(digits, 16) if re.fullmatch(r"[0-9a-fA-F]{1,8}", digits) else None
    return int(text) if _NUMBER.match(text) else None


def printable(text: str) -> str:
    """Return the text on one line without control characters, cut to a usual length."""
    text = text.strip()[:_VALUE_CHARACTERS]
    return "".join(one if one.isprintable() else "\ufffd" for one in text)


def entries(path: Path) -> list[str] | None:
    """Return the names in a folder, numbers in them in their order; ``None``: it cannot be listed."""
    try:
        return sorted((one.name for one in path.iterdir()), key=natural)
    except OSError:
        return None


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key by which ``mlx5_2`` stands before ``mlx5_10``."""
    parts = enumerate(_DIGITS.split(name))
    return tuple((0, int(part), "") if place % 2 else (1, 0, part) for place, part in parts)


def is_pci_address(name: str) -> bool:
    """Tell whether a name is that of a PCI function."""
    return _PCI_ADDRESS.match(name) is not None


def pci_order(address: str) -> tuple[int, str]:
    """Return a sort key of PCI addresses: the domain by its number, then the rest."""
    domain, _, rest = address.partition(":")
    return int(domain, 16), rest


def real_parts(path: Path) -> tuple[str, ...]:
    """Return the parts of the path that a link stands for."""
    return Path(os.path.realpath(path)).parts


def pci_behind(path: Path) -> str | None:
    """Return the PCI function that a ``device`` link leads to or through (virtio), if any."""
    return next((part for part in reversed(real_parts(path)) if is_pci_address(part)), None)


def link_name(path: Path) -> str | None:
    """Return the last part of what a link stands for; ``None`` where there is no link."""
    return printable(real_parts(path)[-1]) if is_link(path) else None


def is_link(path: Path) -> bool:
    """Tell whether a path is a link; never raises."""
    return os.path.islink(path)  # noqa: PTH114 - pathlib's raises where access is denied


def is_there(path: Path) -> bool:
    """Tell whether a path leads to something; never raises."""
    return os.path.exists(path)  # noqa: PTH110 - pathlib's raises where access is denied
