"""The job file: its sections put together, and where each key stands."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from meshwright.cluster.sections import ClusterSection
from meshwright.documents import Decoded, decode, read_document
from meshwright.errors import InputError, Problem
from meshwright.findings import Place
from meshwright.job.catalogue import UnknownModelError, find_model
from meshwright.job.huggingface.config import read_huggingface_config
from meshwright.job.model import Model, shape_problems
from meshwright.job.sections import (
    BatchSection,
    GroupItem,
    LayoutSection,
    MoeSection,
    TrafficItem,
    TrainingSection,
)
from meshwright.placement.section import PlacementSection

ALIASES = {
    "tensor_parallel": "tp",
    "tensor_model_parallel_size": "tp",
    "context_parallel": "cp",
    "context_parallel_size": "cp",
    "pipeline": "pp",
    "pipline": "pp",
    "pipeline_parallel": "pp",
    "pipeline_model_parallel_size": "pp",
    "expert_parallel": "ep",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
    "data_parallel": "dp",
    "virtual_pipeline": "vp",
    "global_batch_size": "global_batch",
    "micro_batch_size": "micro_batch",
    "sequence_length": "seq_len",
    "seq_length": "seq_len",
    "num_nodes": "nodes",
    "world": "world_size",
}
"""What people write, and the key that is meant."""


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """All sections of a job file; every one may be left out."""

    model: str | Model | None = None
    cluster: str | ClusterSection | None = None
    layout: LayoutSection = LayoutSection()
    moe: MoeSection = MoeSection()
    batch: BatchSection = BatchSection()
    training: TrainingSection = TrainingSection()
    placement: PlacementSection = PlacementSection()
    traffic: tuple[TrafficItem, ...] | None = None
    groups: tuple[GroupItem, ...] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A read job file: its sections, its folder (relative paths start there), its places."""

    file: JobFile
    path: str
    folder: Path
    decoded: Decoded[JobFile]

    def place(self, key: str) -> Place:
        """Return where a key of the file stands, or the nearest key above it."""
        return self.decoded.place(key)

    @property
    def name(self) -> str:
        """Name of the model, or of the file without one."""
        model = self.file.model
        if isinstance(model, Model):
            return model.name
        return Path(model).name if model not in (None, "none") else Path(self.path).stem


def load_job(path: str | os.PathLike[str]) -> Job:
    """Read a job file (YAML, JSON or TOML).

    Raises ``InputError`` with every problem of the file at once.
    """
    problems: list[Problem] = []
    document = read_document(path, problems=problems)
    decoded = decode(document, JobFile, aliases=ALIASES)
    if problems:
        raise InputError(*problems, *decoded.problems)
    return Job(decoded.required(), os.fspath(path), Path(path).resolve().parent, decoded)


def is_there(path: Path) -> bool:
    """Tell whether a path exists; text that can be no path does not."""
    return os.path.exists(path)  # noqa: PTH110 - never raises


def job_model(job: Job) -> Model | None:
    """Return the model: from the catalogue, a Hugging Face ``config.json``, or inline.

    Raises ``InputError`` when the name is unknown or the shape impossible.
    """
    given = job.file.model
    if given is None or given == "none":
        return None
    if isinstance(given, Model):
        problems = shape_problems(given)
        if problems:
            raise InputError(*(Problem(job.place(f"model.{key}"), text) for key, text in problems))
        return given
    if not given.strip():
        raise InputError(Problem(job.place("model"), "names no model", remedy="model: none"))
    path = job.folder / given
    if is_there(path):
        if not path.is_file():
            message = f"{given[:200]!r} is no file: a config.json or a name is meant"
            raise InputError(Problem(job.place("model"), message, remedy="model: llama3-8b"))
        return read_huggingface_config(path)
    try:
        return find_model(given)
    except UnknownModelError as error:
        hint = f"did you mean {' or '.join(error.near)}?" if error.near else None
        message = f"{given[:200]!r} is no model of the catalogue and no file"
        raise InputError(Problem(job.place("model"), message, remedy=hint)) from None
