"""GPUs that show fewer NVLinks than their model has, where no peer shows more."""

from __future__ import annotations

from meshwright.cluster.degraded.nvlink import model_of
from meshwright.cluster.facts import Facts
from meshwright.cluster.gpus import GpuModel
from meshwright.cluster.nvlink_shape import nvlink_shape, pair_counts
from meshwright.findings import Finding, Number, Place, Severity


def below_model(facts: Facts, gpu: GpuModel | None = None) -> list[Finding]:
    """Compare with the model's full count; ``gpu`` is the model where the source names none.

    GPUs with fewer than a peer are another finding (``nvlink_findings``, ``nvlinks-down``): here
    speaks the count of the GPUs that have the most.
    """
    gpu = gpu or model_of(facts)
    if gpu is None or gpu.link_protocol != "nvlink" or gpu.nvlink_links <= 0:
        return []
    listed = [one for one in facts.gpus or () if one.nvlinks is not None]
    if listed:
        best = max(listed, key=lambda one: one.nvlinks or 0)
        # Links that the tool lists as inactive have a finding of their own.
        told = bool(best.nvlinks_down) or any(
            one.rule == "topology/nvlinks-down" for one in facts.findings
        )
        return [] if told else _finding(facts, gpu, (best.nvlinks or 0, len(listed)), None)
    if facts.nvlink_pairs is None or len(facts.gpus or ()) < 2:
        return []
    via_switch = any(pair.via_switch for pair in facts.nvlink_pairs)
    shape = nvlink_shape(pair_counts(facts.nvlink_pairs), gpu, via_switch=via_switch)
    if not shape.joined and gpu.nvlink_kind != "switch":
        return []  # bridges are optional, and a mesh may be shown in part
    seen = len(shape.joined) or len(facts.gpus or ())
    hidden = not shape.is_switch and bool(shape.joined) and gpu.nvlink_kind != "bridge"
    return _finding(facts, gpu, (shape.most, seen), hidden)


def _finding(
    facts: Facts, gpu: GpuModel, shown: tuple[int, int], hidden: bool | None
) -> list[Finding]:
    """``shown``: most links of a GPU, and GPUs; ``hidden``: peers that are not shown may have them."""
    links, count = shown
    if links >= gpu.nvlink_links:
        return []
    who = "the GPU" if count == 1 else f"each of the {count} GPUs at most"
    message = (
        f"{who} shows {links or 'no'} NVLink{'s' if links != 1 else ''}, and {gpu.name} has "
        f"{gpu.nvlink_links}"
    )
    if hidden:
        message += ": the others may lead to GPUs that this file does not show, or are down"
    else:
        message += f": NVLink runs at {links}/{gpu.nvlink_links} of its rate"
    numbers: dict[str, Number] = {"links": links, "model_links": gpu.nvlink_links, "gpus": count}
    return [
        Finding(
            "topology/nvlinks-below-model",
            Severity.NOTE if hidden else Severity.WARNING,
            Place(facts.path, subject=gpu.name),
            message,
            numbers,
            "look at nvidia-smi nvlink -s; in a virtual machine ask whether it is given all links, and "
            "write the right model (node: {gpu: …}) where this one is wrong",
        )
    ]
