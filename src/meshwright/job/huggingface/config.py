"""Read a Hugging Face ``config.json`` into a model shape.

The families and their keys stand in ``families.py``, what is of none of them in
``other.py``; here are the file, the places of its values and the messages.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.data.names import near_names
from meshwright.errors import InputError, Problem
from meshwright.findings import Place
from meshwright.job.huggingface.families import FAMILIES, Reader
from meshwright.job.huggingface.fields import Fields
from meshwright.job.huggingface.other import NEEDED, generic, has_usual_keys, refusal
from meshwright.job.model import Model, shape_problems

_LARGEST_BYTES = 8 << 20
_EXCERPT = 120
TEXT_PART = "text part of a multimodal model"
_TEXT_PARTS = (
    ("text_config",),
    ("thinker_config", "text_config"),
    ("llm_config",),
    ("language_config",),
)
_CLASS_TAIL = re.compile(r"(?:For\w+|LMHeadModel|Model)\Z")


def read_huggingface_config(
    source: str | Path | Mapping[str, Any], *, name: str | None = None
) -> Model:
    """Return the model shape that a Hugging Face configuration describes.

    Parameters
    ----------
    source
        A ``config.json``, a directory that holds one, or the decoded mapping itself. Optional keys
        that are absent take the default of the family's class in ``transformers``; dimensions must
        be there. A family that is not known is read as a Llama-like decoder where the usual keys
        are there, and ``Model.unverified`` says so; of a multimodal model the text part is read,
        and ``Model.note`` says so.
    name
        Name of the model; by default the one in the file, else the directory's.

    Raises
    ------
    InputError
        The file cannot be read, is no JSON object, describes no decoder of text or layers that are
        not known, or fields are missing, of the wrong type or out of range: every problem at once,
        with file, line and column.
    """
    if isinstance(source, Mapping):
        return _to_model(source, _Document(None, ""), name)
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
    document = _Document(str(path), _read_text(path))
    return _to_model(_decode(document), document, name or _stated_name(path))


class _Document:
    """The text of a file, to find lines and columns in once something is wrong."""

    def __init__(self, file: str | None, text: str) -> None:
        self.file = file
        self.text = text

    def problem(
        self,
        message: str,
        *,
        at: int | None = None,
        subject: str | None = None,
        remedy: str | None = None,
    ) -> Problem:
        """Return a problem at character ``at`` (from 0) with the line it stands on."""
        if at is None:  # about the file as a whole
            first = None if self.file is None else 1
            return Problem(Place(self.file, first, first, subject), message, remedy=remedy)
        start = self.text.rfind("\n", 0, at) + 1
        line = self.text.count("\n", 0, at) + 1
        end = self.text.find("\n", start)
        excerpt = self.text[start : end if end >= 0 else None].strip()[:_EXCERPT]
        place = Place(self.file, line, at - start + 1, subject)
        return Problem(place, message, remedy=remedy, excerpt=excerpt or None)


def _read_text(path: Path) -> str:
    document = _Document(str(path), "")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(document.problem("is no regular file"))
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise InputError(document.problem("there is no such file")) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(document.problem(f"cannot be read: {reason}")) from None
    if len(content) > _LARGEST_BYTES:
        raise InputError(document.problem("is larger than 8 MiB: no model configuration"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise InputError(
            Problem(Place(str(path), line, column), "is no UTF-8 text: no JSON configuration")
        ) from None


def _decode(document: _Document) -> Mapping[str, Any]:
    if not document.text.strip():
        raise InputError(document.problem("is empty: a JSON object is expected", at=0))
    try:
        value = json.loads(document.text)
    except json.JSONDecodeError as error:
        raise InputError(document.problem(f"is broken JSON: {error.msg}", at=error.pos)) from None
    except (RecursionError, ValueError):  # ValueError: an integer of thousands of digits
        raise InputError(
            document.problem("is no model configuration: nested too deep, or a number too long")
        ) from None
    if not isinstance(value, dict):
        raise InputError(document.problem("holds no JSON object: no model configuration", at=0))
    return value


def _stated_name(path: Path) -> str | None:
    return path.resolve().parent.name if path.name == "config.json" else path.stem


def _to_model(config: Mapping[str, Any], document: _Document, name: str | None) -> Model:
    path = _text_part(config)
    values: Mapping[str, Any] = config
    for key in path:
        values = values[key]
    family, reader = _family(config, values, document)
    fields = Fields(values)
    shape = reader(fields)
    if path:
        shape["note"] = TEXT_PART
        tied = config.get("tie_word_embeddings")
        if values.get("tie_word_embeddings") is None and isinstance(tied, bool):
            shape["tied_embeddings"] = tied
    groups = fields.count("o_groups", field="output_groups")  # no family's own: where it is given
    if groups:
        shape["output_groups"] = groups
    wrong = list(fields.problems)
    if not wrong:
        stated = values.get("_name_or_path") or config.get("_name_or_path")
        if isinstance(stated, str) and stated.strip("/"):
            name = stated.rstrip("/").rsplit("/", maxsplit=1)[-1]
        model = Model(
            name=(name or family)[:200],
            source=document.file or "Hugging Face configuration",
            **shape,
        )
        wrong = [(fields.key_of(field), message) for field, message in shape_problems(model)]
        if not wrong:
            return model
    offsets = _value_offsets(document.text) if document.file is not None else {}
    raise InputError(
        *(
            document.problem(
                f"{key} {message}",
                at=offsets.get((*path, *key.split("."))),
                subject=".".join((*path, key)),
            )
            for key, message in wrong
        )
    )


def _text_part(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return where a multimodal configuration keeps the language model's keys; empty: at the top."""
    if config.get("hidden_size") is not None or config.get("n_embd") is not None:
        return ()
    for path in _TEXT_PARTS:
        part: Any = config
        for key in path:
            part = part.get(key) if isinstance(part, Mapping) else None
        if isinstance(part, Mapping) and part:
            return path
    return ()


def _family(
    config: Mapping[str, Any], values: Mapping[str, Any], document: _Document
) -> tuple[str, Reader]:
    """Return the family's name and reader, from ``model_type`` or else from ``architectures``."""
    stated = values.get("model_type") or config.get("model_type")
    key = "model_type"
    if not stated:
        classes = config.get("architectures")
        key = "architectures"
        if isinstance(classes, list) and classes and isinstance(classes[0], str):
            stated = _CLASS_TAIL.sub("", classes[0])
    # LlamaForCausalLM and llama, GPTNeoX and gpt_neox are one family each.
    by_spelling = {_spelling(family): family for family in FAMILIES}
    family = by_spelling.get(_spelling(str(stated or "")))
    why = None
    if family is not None and config.get("is_encoder_decoder") is not True:
        return family, FAMILIES[family]
    name = str(stated or "no model_type")[:80]
    why = refusal(config, values, name.lower())
    if why is None and has_usual_keys(values):
        return name, generic
    if why is None and not stated:
        why = "names no model_type and no architectures: the family is unknown"
    if why is None:
        near = near_names(str(stated), FAMILIES, most=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        missing = [one for one in NEEDED if values.get(one) is None] or ["intermediate_size"]
        why = f"unknown model family {name!r}{hint}, and no plain decoder: {missing[0]} is missing"
    at = _value_offsets(document.text).get((key,)) if document.file is not None else None
    raise InputError(
        document.problem(why, at=at, subject=key if stated else None, remedy=_known_families())
    )


def _spelling(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _known_families() -> str:
    return (
        "give the shape as a mapping (model: {name: …, num_layers: …, hidden: …}), or use one of the "
        "known families: " + ", ".join(FAMILIES)
    )


_DEEPEST = 3  # the model's keys stand at the top, in text_config or a part of that
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|:\s*')


def _value_offsets(text: str) -> dict[tuple[str, ...], int]:
    """Return where each object member's value begins, by path; ``text`` is sound JSON.

    Lists count as one value: nothing inside them has a path.
    """
    offsets: dict[tuple[str, ...], int] = {}
    path: list[str] = []
    in_lists = 0
    last_string = ""
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "[]":
            in_lists += 1 if token == "[" else -1
        elif in_lists:
            continue
        elif token == "{":
            path.append("")
        elif token == "}":
            path.pop()
        elif token[0] == ":":
            path[-1] = last_string
            if len(path) <= _DEEPEST:
                offsets[tuple(path)] = match.end()
        else:
            last_string = json.loads(token)
    return offsets
