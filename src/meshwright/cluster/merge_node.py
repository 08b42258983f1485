"""The node type of a cluster: a preset, a file that describes one host, or a bare count of GPUs."""

from __future__ import annotations

from pathlib import Path

from meshwright.cluster.facts import Facts
from meshwright.cluster.gpus import GpuModel, find_gpu, suggest_gpus
from meshwright.cluster.merging import Merge
from meshwright.cluster.node import NodeType, node_from_facts
from meshwright.cluster.presets import (
    bare_node,
    find_preset,
    node_from_preset,
    suggest_preset,
)
from meshwright.cluster.sections import ClusterSection, NodeSection

_MAX_HOST_GPUS = 1 << 16


def node_of_section(
    merge: Merge, section: ClusterSection
) -> tuple[NodeType, int | None, str | None]:
    """Return the node type, hosts a unit and the usual fabric preset."""
    node = section.node
    if node is None:
        raise merge.fail(
            "node",
            "the cluster names no node type",
            "node: dgx-h100, or node: {gpus: 8} when only the count is known",
        )
    if isinstance(node, str):
        preset = find_preset(node)
        if preset is not None:
            return node_from_preset(preset), preset.hosts_per_unit, preset.fabric
        if not merge.has(node):
            near = suggest_preset(node)
            hint = f"did you mean {' or '.join(near)}?" if near else "a preset or a file"
            raise merge.fail("node", f"{node!r} is no node preset and no file", hint)
        node = NodeSection(source=node)
    return _node_from_section(merge, node, section.fabric is not None), None, None


def _node_from_section(merge: Merge, node: NodeSection, has_fabric: bool) -> NodeType:
    gpu = _gpu_named(merge, node)
    if node.source is None:
        return _bare(merge, node, has_fabric)
    facts = merge.read(node.source, "node.from")
    if facts.format not in ("nvidia_smi_topo_m", "nccl_topo_xml"):
        raise merge.fail("node.from", f"{node.source} is {facts.format}, which describes no host")
    if not facts.gpus:
        raise merge.fail(
            "node.from", f"{node.source} names no GPU", "a full `nvidia-smi topo -m`, or a preset"
        )
    apart = {one.host for one in facts.gpus}
    if len(apart) > 1:
        raise merge.fail(
            "node.from",
            f"{node.source} holds {len(apart)} hosts; a node file describes one",
            "the topology XML of one host, and nvlink_domains: for what joins them",
        )
    gpu = gpu or _gpu_in_file(facts)
    if gpu is None:
        merge.note(
            "topology/gpu-model-unknown",
            "node.from",
            "the file names no GPU model, so the rates of its NVLink (or xGMI) links are unknown and that "
            "of PCIe is assumed.",
            f"node: {{from: …, gpu: …}} with the model, for example {_example_gpu(facts)}",
        )
    result, findings = node_from_facts(facts, gpu, node.nic, Path(node.source).name)
    merge.findings += findings
    return result


def _gpu_named(merge: Merge, node: NodeSection) -> GpuModel | None:
    if node.gpu is None:
        return None
    try:
        return find_gpu(node.gpu)
    except KeyError:
        near = suggest_gpus(node.gpu)
        hint = f"did you mean {' or '.join(near)}?" if near else None
        raise merge.fail("node.gpu", f"unknown GPU {node.gpu!r}", hint) from None


def _bare(merge: Merge, node: NodeSection, has_fabric: bool) -> NodeType:
    if node.gpus is None:
        raise merge.fail(
            "node", "names no file and no number of GPUs", "node: {from: topo.txt, gpu: H100-SXM}"
        )
    if node.gpu is not None or node.nic is not None:
        raise merge.fail(
            "node",
            "gpu and nic complete a file (from); with gpus alone nothing is known of a host's links",
            "node: dgx-h100 or another preset, or node: {from: topo.txt, gpu: …}",
        )
    if node.gpus > _MAX_HOST_GPUS:
        raise merge.fail("node.gpus", f"{node.gpus:,} GPUs are too many for one host")
    return bare_node(node.gpus, has_nic=has_fabric)


def _example_gpu(facts: Facts) -> str:
    """Return a GPU of the kind the file shows, as an example of how to write one."""
    links = max((pair.count for pair in facts.nvlink_pairs or ()), default=0)
    amd = any(gpu.compute_capability is None and links == 1 for gpu in facts.gpus or ())
    if amd and facts.format == "nccl_topo_xml":
        return "MI300X"
    return {18: "H100-SXM or B200", 12: "A100-SXM", 8: "H800", 0: "L40S"}.get(links, "V100-SXM")


def _gpu_in_file(facts: Facts) -> GpuModel | None:
    models = {gpu.model for gpu in facts.gpus or ()} - {None}
    if len(models) != 1:
        return None
    try:
        return find_gpu(str(models.pop()))
    except KeyError:
        return None
