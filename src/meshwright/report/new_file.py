"""Files that a command writes: always new ones, nothing is overwritten."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from meshwright.errors import UsageError


def check_new_file(path: str) -> None:
    """Refuse a file that exists, or a folder that does not; raises ``UsageError``."""
    if not path:
        raise UsageError("an output needs a name: the one given is empty")
    if os.path.lexists(path):
        raise UsageError(f"{path} exists; give a new name")
    if not os.path.isdir(os.path.dirname(path) or "."):  # noqa: PTH112, PTH120 - never raises
        raise UsageError(f"{path}: no such folder")


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """Open a new file; one that cannot be written whole is removed and raises ``UsageError``."""
    target = Path(path)
    try:
        file = target.open("xb")
    except FileExistsError:
        raise UsageError(f"{path} exists; give a new name") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
    except OSError as error:
        target.unlink(missing_ok=True)  # made by us a moment ago
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    except BaseException:
        target.unlink(missing_ok=True)
        raise
