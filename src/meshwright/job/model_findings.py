"""What is worth knowing about a shape before its numbers are used."""

from __future__ import annotations

from meshwright.findings import Finding, Place, Severity
from meshwright.job.huggingface.config import TEXT_PART
from meshwright.job.model import Model
from meshwright.job.parameters import total_parameters


def model_findings(model: Model, place: Place | None = None) -> tuple[Finding, ...]:
    """Return what to know about a shape: not verified, a part of a whole, layers not modelled."""
    place = place or Place(subject="model")
    found = []
    if model.unverified:
        found.append(
            Finding(
                "model/unverified",
                Severity.WARNING,
                place,
                f"{model.name}: {model.unverified}.",
                {"parameters": total_parameters(model)},
                "compare the count with the published size, or give the shape as a mapping "
                "(model: {name: …, num_layers: …, hidden: …})",
            )
        )
    if model.note == TEXT_PART:
        found.append(
            Finding(
                "model/text-part",
                Severity.NOTE,
                place,
                f"{model.name} is a multimodal model: its text part is read, encoders of images and "
                "sound are left out.",
                {"parameters": total_parameters(model)},
            )
        )
    if kinds := model.unmodelled_layers:
        found.append(
            Finding(
                "model/layers-not-modelled",
                Severity.NOTE,
                place,
                f"{model.name} has {', '.join(kinds)}: parameters and FLOPs are counted; their "
                "activations and their traffic over tp and cp are not modelled.",
                {"kinds": list(kinds)},
            )
        )
    return tuple(found)
