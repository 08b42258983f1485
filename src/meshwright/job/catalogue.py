"""The catalogue of models that ship with the program (``data/models.json``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from meshwright.data.load import load_records
from meshwright.data.names import Key, name_key, near_names
from meshwright.job.model import Model

_FILE = "models.json"
# Words that tell apart checkpoints of one shape, not shapes.
_DROP = frozenset({"meta", "hf", "base", "instruct", "chat", "it", "pt"})


class UnknownModelError(KeyError):
    """No model of this name; ``near`` holds names that look like it."""

    def __init__(self, name: str, near: list[str]) -> None:
        super().__init__(name)
        self.name = name
        self.near = near

    def __str__(self) -> str:
        text = f"unknown model {self.name!r}"
        return f"{text}: did you mean {', '.join(self.near)}?" if self.near else text


class _Catalogue(msgspec.Struct, frozen=True):
    models: tuple[Model, ...]
    aliases: Mapping[str, str]


def model_names() -> tuple[str, ...]:
    """Return the catalogue's names in its own order (by family)."""
    return tuple(model.name for model in _catalogue().models)


def find_model(name: str) -> Model:
    """Return a model by name.

    Case, dashes, dots, the organisation before a slash and words such as ``instruct`` do not
    matter: ``meta-llama/Meta-Llama-3-8B`` is ``llama-3-8b``.

    Raises ``UnknownModelError`` (a ``KeyError``) with names that look like it.
    """
    model = _by_key().get(_key(name))
    if model is None:
        raise UnknownModelError(name[:200], suggest(name))
    return model


def suggest(name: str) -> list[str]:
    """Return up to five catalogue names that look like ``name``, nearest first."""
    return near_names(name.rsplit("/", maxsplit=1)[-1], model_names())


@functools.cache
def _catalogue() -> _Catalogue:
    return load_records(_FILE, _Catalogue)


@functools.cache
def _by_key() -> dict[Key, Model]:
    catalogue = _catalogue()
    by_name = {model.name: model for model in catalogue.models}
    keys = {_key(alias): by_name[name] for alias, name in catalogue.aliases.items()}
    return keys | {_key(name): model for name, model in by_name.items()}


def _key(name: str) -> Key:
    return name_key(name.rsplit("/", maxsplit=1)[-1], drop=_DROP)
