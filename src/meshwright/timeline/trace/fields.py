"""Which fields an event of each phase must have, and of which type.

Source: "Trace Event Format" of the Chromium project; reserved colour names: catapult-project/catapult
tracing/tracing/base/color_scheme.html.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeGuard

_PHASES: Final[dict[str, tuple[str, ...]]] = {
    "B": ("name", "ts", "pid", "tid"),
    "E": ("ts", "pid", "tid"),
    "X": ("name", "ts", "dur", "pid", "tid"),
    "i": ("name", "ts", "pid"),
    "I": ("name", "ts", "pid"),
    "C": ("name", "ts", "pid", "args"),
    "b": ("name", "cat", "ts", "pid"),
    "n": ("name", "cat", "ts", "pid"),
    "e": ("name", "cat", "ts", "pid"),
    "S": ("name", "cat", "id", "ts", "pid"),
    "T": ("name", "cat", "id", "ts", "pid"),
    "p": ("name", "cat", "id", "ts", "pid"),
    "F": ("name", "cat", "id", "ts", "pid"),
    "s": ("name", "cat", "id", "ts", "pid", "tid"),
    "t": ("name", "cat", "id", "ts", "pid", "tid"),
    "f": ("name", "cat", "id", "ts", "pid", "tid"),
    "P": ("name", "ts", "pid", "tid"),
    "N": ("name", "id", "ts", "pid"),
    "O": ("name", "id", "ts", "pid", "args"),
    "D": ("name", "id", "ts", "pid"),
    "M": ("name", "pid", "args"),
    "V": ("id", "ts", "pid", "args"),
    "v": ("id", "ts", "pid", "args"),
    "R": ("name", "ts", "pid"),
    "c": ("name", "ts", "args"),
    "(": ("name", "ts", "pid", "tid", "args"),
    ")": ("name", "ts", "pid", "tid", "args"),
}
"""Fields that an event of each phase must have."""

_METADATA: Final[dict[str, tuple[str, type]]] = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
"""Argument of each kind of metadata that the format names."""

_COLOURS: Final = frozenset([
    "thread_state_uninterruptible", "thread_state_iowait", "thread_state_running",
    "thread_state_runnable", "thread_state_sleeping", "thread_state_unknown",
    "background_memory_dump", "light_memory_dump", "detailed_memory_dump",
    "vsync_highlight_color", "generic_work", "good", "bad", "terrible", "black", "grey", "white",
    "yellow", "olive", "rail_response", "rail_animation", "rail_idle", "rail_load", "startup",
    "heap_dump_stack_frame", "heap_dump_object_type", "heap_dump_child_node_arrow",
    "cq_build_running", "cq_build_passed", "cq_build_failed", "cq_build_abandoned",
    "cq_build_attempt_runnig", "cq_build_attempt_passed", "cq_build_attempt_failed",
])  # fmt: skip
"""Colours by name; one is misspelt so."""


def is_number(value: Any) -> TypeGuard[int | float]:
    """Tell whether a value is a finite number (``true`` is none)."""
    if type(value) is float:
        return -math.inf < value < math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _is_length(value: Any) -> bool:
    return is_number(value) and bool(value >= 0)


def _is_name(value: Any) -> bool:
    """Process and thread are numbers; programs also write names, which viewers take."""
    return (isinstance(value, int) and not isinstance(value, bool)) or _is_text(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


_TYPES: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "name": (lambda value: isinstance(value, str), "a text"),
    "cat": (lambda value: isinstance(value, str), "a text"),
    "ts": (is_number, "a finite number"),
    "tts": (is_number, "a finite number"),
    "dur": (_is_length, "a finite number from 0"),
    "tdur": (_is_length, "a finite number from 0"),
    "pid": (_is_name, "a whole number or a text"),
    "tid": (_is_name, "a whole number or a text"),
    "id": (_is_name, "a whole number or a text"),
    "scope": (lambda value: isinstance(value, str), "a text"),
    "args": (lambda value: isinstance(value, dict), "an object"),
    "cname": (lambda value: isinstance(value, str) and value in _COLOURS, "a reserved colour name"),
    "stack": (lambda value: isinstance(value, list), "a list"),
    "estack": (lambda value: isinstance(value, list), "a list"),
}
"""What every field must be where it stands."""


def is_track_event(event: dict[str, Any]) -> bool:
    """Tell whether an event lies on the track of a thread."""
    phase = event["ph"]
    return phase in "BEXPstf" or (phase in "iI" and event.get("s", "t") == "t" and "tid" in event)


def field_problems(event: Any) -> list[str]:
    """Return what is wrong with one event by itself."""
    if not isinstance(event, dict):
        return ["it is no object"]
    phase = event.get("ph")
    if not isinstance(phase, str) or phase not in _PHASES:
        return ["ph is missing" if phase is None else "ph is no phase of the format"]
    found = [f"{name} is missing" for name in _PHASES[phase] if name not in event]
    found += [
        f"{name} is not {what}"
        for name, (fits, what) in _TYPES.items()
        if name in event and not fits(event[name])
    ]
    return found or _phase_problems(phase, event)


def _phase_problems(phase: str, event: dict[str, Any]) -> list[str]:
    if phase == "C":
        return _counter_problems(event["args"])
    if phase == "M":
        return _metadata_problems(event)
    if phase in "iI" and event.get("s", "t") not in ("g", "p", "t"):
        return ["s is none of g, p, t"]
    if phase == "f" and event.get("bp", "e") != "e":
        return ["bp is not 'e'"]
    if phase in "bne":
        return _id_problems(event)
    wanted = {"O": "snapshot", "V": "dumps", "v": "dumps", "c": "sync_id"}.get(phase)
    return [f"args.{wanted} is missing"] if wanted and wanted not in event["args"] else []


def _counter_problems(args: dict[str, Any]) -> list[str]:
    if not args:
        return ["args holds no series"]
    return [
        f"args.{name[:60]} is not a finite number" for name in args if not is_number(args[name])
    ]


def _metadata_problems(event: dict[str, Any]) -> list[str]:
    if event["name"] not in _METADATA:
        return []
    name, wanted = _METADATA[event["name"]]
    value = event["args"].get(name)
    fits = isinstance(value, wanted) and not isinstance(value, bool)
    found = [] if fits else [f"args.{name} is no {'text' if wanted is str else 'whole number'}"]
    if event["name"].startswith("thread_") and "tid" not in event:
        found.append("tid is missing")
    return found


def _id_problems(event: dict[str, Any]) -> list[str]:
    """Return what is wrong with the id: a plain one, or one that says where it holds."""
    if "id" in event:
        return []
    other = event.get("id2")
    if isinstance(other, dict) and any(_is_name(other.get(one)) for one in ("local", "global")):
        return []
    return ["id is missing"]
