"""Read a remedy as a user would: what to write, alternative by alternative; and write it into a job."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import msgspec

from meshwright.chain.jobfile import Job
from meshwright.job.sections import BatchSection, LayoutSection, MoeSection, TrainingSection

SECTIONS = {
    "layout": LayoutSection,
    "batch": BatchSection,
    "training": TrainingSection,
    "moe": MoeSection,
}
_SECTION_OF = {key: name for name, section in SECTIONS.items() for key in section.__struct_fields__}
_KEY = re.compile(r"(?:(?<=^)|(?<=[\s({]))([a-z_]+): ")
_NUMBERS = re.compile(r"-?\d+(?![\w.])(?:(?:, | or )-?\d+(?![\w.]))*")
_WORD = re.compile(r"[\w.+-]+")
_PRESET = re.compile(r"[\w-]+ x \d+")
_LEAVE = re.compile(r"leave ([a-z_, ]+?(?: and [a-z_]+)?) out")

Changes = dict[str, Any]


def alternatives(remedy: str) -> list[Changes]:
    """Return every alternative that can be pasted, values one by one; what is prose is left out."""
    found: list[Changes] = []
    matches = [one for one in _KEY.finditer(remedy) if _is_key(one[1])]
    inside_until, last_end = -1, 0
    for match in matches:
        if match.start() < inside_until:
            continue
        rest = remedy[match.end() :]
        values, length = _values(match[1], rest)
        inside_until = match.end() + length
        if not values:
            continue
        joiner = remedy[last_end : match.start()]
        if found and re.fullmatch(r" and ", joiner):
            found[-1:] = [found[-1] | value for value in values]
        else:
            found += values
        last_end = match.end() + length
    for match in _LEAVE.finditer(remedy):
        keys = [one for one in re.split(r", | and ", match[1]) if one in _SECTION_OF]
        if keys:
            found.append({f"{_SECTION_OF[key]}.{key}": None for key in keys})
    return found


def _is_key(name: str) -> bool:
    return name in _SECTION_OF or name in SECTIONS or name == "cluster"


def _values(key: str, rest: str) -> tuple[list[Changes], int]:
    """Return the changes that the text after ``key:`` means, and how long that text is."""
    if key in SECTIONS:
        end = rest.find("}") + 1
        if not rest.startswith("{") or not end:
            return [], 0
        inner = [one.partition(": ") for one in rest[1 : end - 1].split(", ")]
        return [{f"{key}.{name}": _scalar(text) for name, _, text in inner}], end
    if key == "cluster":
        match = _PRESET.match(rest)
        return ([{"cluster": match[0]}], match.end()) if match else ([], 0)
    name = f"{_SECTION_OF[key]}.{key}"
    if rest.startswith("["):
        end = rest.index("]") + 1
        return [{name: tuple(int(one) for one in rest[1 : end - 1].split(","))}], end
    if match := _NUMBERS.match(rest):
        numbers = re.findall(r"-?\d+", match[0])
        return [{name: int(one)} for one in numbers], match.end()
    match = _WORD.match(rest)
    return ([{name: _scalar(match[0])}], match.end()) if match else ([], 0)


def _scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def applied(job: Job, changes: Changes) -> Job:
    """Return the job with changed keys."""
    file = job.file
    if "cluster" in changes:
        file = msgspec.structs.replace(file, cluster=changes["cluster"])
    for name in SECTIONS:
        mine = {
            key.partition(".")[2]: value
            for key, value in changes.items()
            if key.startswith(f"{name}.")
        }
        if mine:
            section = msgspec.structs.replace(getattr(file, name), **mine)
            file = msgspec.structs.replace(file, **{name: section})
    return dataclasses.replace(job, file=file)
