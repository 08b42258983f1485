"""What a field's annotation may add to its type: ``Annotated[int, Minimum(1)]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Convert(msgspec.Struct, frozen=True):
    """Turns a single value through a function that raises ``ValueError`` (``units.parse_rate``).

    A mapping or list is not turned: in ``Annotated[tuple[str, ...], Convert(parse_hosts)]`` text
    goes through the function and a list is read as the tuple. So is null where the type allows it.
    """

    function: Callable[[Any], Any]
    expected: str | None = None
    """What to write, for messages: ``a rate such as 400 Gbit/s``."""


class Check(msgspec.Struct, frozen=True):
    """A function that raises ``ValueError`` when it does not like the decoded value."""

    function: Callable[[Any], object]


class Minimum(msgspec.Struct, frozen=True):
    """The least value allowed."""

    value: float


class Maximum(msgspec.Struct, frozen=True):
    """The greatest value allowed."""

    value: float


class AsWritten(msgspec.Struct, frozen=True):
    """Takes a number, true or false as the text written: ``0.10`` stays ``"0.10"``.

    For ``Annotated[str, AsWritten()]``: versions, environment variables, host names.
    """


class Refused(Exception):  # noqa: N818 - an answer inside this room, never seen outside
    """A value does not fit its type: why, and what to write instead."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


_MAX_MESSAGE = 300


def check(value: Any, marks: tuple[Any, ...]) -> None:
    """Hold a decoded value against its marks; raises ``Refused``."""
    for mark in marks:
        if isinstance(mark, Check):
            called(mark.function, value)
        elif value is None:
            continue
        elif isinstance(mark, Minimum) and value < mark.value:
            raise Refused(f"{value} is too small: the least allowed is {mark.value}")
        elif isinstance(mark, Maximum) and value > mark.value:
            raise Refused(f"{value} is too large: the greatest allowed is {mark.value}")


def called(function: Callable[[Any], Any], value: Any) -> Any:
    """Return the function's result; its ``ValueError`` becomes ``Refused``."""
    try:
        return function(value)
    except (ValueError, OverflowError) as error:
        text = str(error)
        raise Refused(text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "…") from None
