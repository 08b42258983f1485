"""The node type of a cluster: a preset, files that describe one host, or a bare count of GPUs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from meshwright.cluster.assembly.merging import Merge
from meshwright.cluster.facts import Facts
from meshwright.cluster.gpus import GpuModel, common_gpu, find_gpu, suggest_gpus
from meshwright.cluster.join.host_groups import HostType, join_hosts
from meshwright.cluster.join.kinds import is_host, is_node
from meshwright.cluster.nodes.node import NodeType, node_from_facts
from meshwright.cluster.nodes.node_by_hand import is_by_hand, keys_beside_file, node_by_hand
from meshwright.cluster.nodes.presets import (
    NodePreset,
    bare_node,
    find_preset,
    node_from_preset,
    suggest_preset,
)
from meshwright.cluster.nodes.rack_scale import rack_scale
from meshwright.cluster.sections import ClusterSection, HostList, NodeSection
from meshwright.findings import Finding
from meshwright.origin import Origin
from meshwright.units import format_rate

_SUPERCHIP = "superchip"
"""``GpuModel.form`` of GPUs on a board with a Grace CPU."""
_MAX_HOST_GPUS = 1 << 16


def node_of_section(merge: Merge, section: ClusterSection) -> tuple[NodeType, NodePreset | None]:
    """Return the node type, and the preset where it is one."""
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
            return node_from_preset(preset), preset
        if not merge.has(node):
            near = suggest_preset(node)
            hint = f"did you mean {' or '.join(near)}?" if near else "a preset or a file"
            raise merge.fail("node", f"{node!r} is no node preset and no file", hint)
        node = NodeSection(source=node)
    return _node_from_section(merge, node, section.fabric is not None), None


def _node_from_section(merge: Merge, node: NodeSection, has_fabric: bool) -> NodeType:
    gpu = _gpu_named(merge, node)
    if node.source is None:
        return _bare(merge, node, gpu, has_fabric)
    beside = keys_beside_file(node)
    if beside:
        raise merge.fail(
            f"node.{beside[0]}",
            f"{', '.join(beside)} describe a box by hand, and the file says what they say",
            "leave out from, or those keys",
        )
    facts = _host_facts(merge, node.source)
    gpu = gpu or common_gpu(one.model for one in facts.gpus or ())
    if gpu is None:
        merge.note(
            "topology/gpu-model-unknown",
            "node.from",
            "the file names no GPU model, so the rates of its NVLink (or xGMI) links are unknown and that "
            "of PCIe is assumed.",
            f"node: {{from: …, gpu: …}} with the model, for example {_example_gpu(facts)}",
        )
    result, findings = node_from_facts(facts, gpu, node.nic, _names(node.source))
    merge.findings += findings
    _cpu_link(merge, facts, gpu, result)
    return result


def _cpu_link(merge: Merge, facts: Facts, gpu: GpuModel | None, node: NodeType) -> None:
    """Note that the link between Grace CPUs is not one of those we know."""
    grace = gpu.form == _SUPERCHIP if gpu is not None else rack_scale(facts)
    rates = {link.rate_bytes_per_s for link in node.graph.links if link.kind == "cpu"}
    if grace and rates and node.origins.get("cpu") is Origin.ASSUMED:
        rate = format_rate(max(rates))
        merge.note(
            "assumed/cpu-link",
            "node.from",
            f"the file does not give the rate between the Grace CPUs of a host; {rate} a direction "
            "is assumed, that of other makers' CPUs. NVLink-C2C between a CPU and its GPUs is not shown.",
            cpu_bytes_per_s=max(rates),
        )


def _names(sources: HostList) -> str:
    paths = [sources] if isinstance(sources, str) else sources
    return " + ".join(Path(path).name for path in paths)


def _host_facts(merge: Merge, sources: HostList) -> Facts:
    """Return what one file, or several of one host or of equal hosts, say of a host."""
    files = merge.read_all(sources, "node.from")
    for facts in files:
        _check_host(merge, facts)
    if len(files) == 1:
        facts = files[0]
        apart = {one.host for one in facts.gpus or ()}
        if len(apart) > 1:
            raise merge.fail(
                "node.from",
                f"{Path(facts.path).name} holds {len(apart)} hosts; a node file describes one",
                "the topology XML of one host, and nvlink_domains: for what joins them",
            )
    joined = join_hosts(files)
    merge.captured = [host for one in joined.types for host in one.hosts]
    types = joined.types
    if not types:
        raise merge.fail("node.from", "each file holds several hosts; a node file describes one")
    if len(types) > 1 and len(types[0].hosts) <= len(types[1].hosts):
        raise merge.fail(
            "node.from",
            f"the files describe {len(types)} node types: {', '.join(one.name for one in types[:4])}",
            "the files of one host, or of hosts that are equal",
        )
    merge.findings += [_taken(finding, types[0]) for finding in joined.findings]
    by_path = {facts.path: facts for facts in files}
    if not any(is_node(by_path[path]) for path in types[0].sources if path in by_path):
        raise merge.fail(
            "node.from",
            f"{_names(sources)} lists the links or access of GPUs, and not how the devices of a host "
            "are joined",
            "add nvidia-smi topo -m, or the NCCL topology XML of the host",
        )
    return types[0].facts


def _taken(finding: Finding, usual: HostType) -> Finding:
    """Say of hosts that differ what they are taken for."""
    if finding.rule != "topology/hosts-differ":
        return finding
    message = f"{finding.message}. All hosts are taken to be like {usual.name}"
    return msgspec.structs.replace(finding, message=message)


def _check_host(merge: Merge, facts: Facts) -> None:
    name = Path(facts.path).name
    if not is_host(facts):
        raise merge.fail("node.from", f"{name} is {facts.format}, which describes no host")
    if not facts.gpus:
        raise merge.fail(
            "node.from", f"{name} names no GPU", "a full `nvidia-smi topo -m`, or a preset"
        )


def _gpu_named(merge: Merge, node: NodeSection) -> GpuModel | None:
    if node.gpu is None:
        return None
    try:
        return find_gpu(node.gpu)
    except KeyError:
        near = suggest_gpus(node.gpu)
        hint = f"did you mean {' or '.join(near)}?" if near else None
        raise merge.fail("node.gpu", f"unknown GPU {node.gpu!r}", hint) from None


def _bare(merge: Merge, node: NodeSection, gpu: GpuModel | None, has_fabric: bool) -> NodeType:
    if node.gpus is None:
        raise merge.fail(
            "node", "names no file and no number of GPUs", "node: {from: topo.txt, gpu: H100-SXM}"
        )
    if is_by_hand(node):
        result, findings = node_by_hand(node, gpu, merge.place("node"))
        merge.findings += findings
        return result
    if node.gpus > _MAX_HOST_GPUS:
        raise merge.fail("node.gpus", f"{node.gpus:,} GPUs are too many for one host")
    return bare_node(node.gpus, has_nic=has_fabric)


def _example_gpu(facts: Facts) -> str:
    """Return a GPU of the kind the file shows, as an example of how to write one."""
    links = max((pair.count for pair in facts.nvlink_pairs or ()), default=0)
    amd = any(gpu.compute_capability is None and links == 1 for gpu in facts.gpus or ())
    if amd and facts.format != "nvidia_smi_topo_m":
        return "MI300X"
    return {18: "H100-SXM or B200", 12: "A100-SXM", 8: "H800", 0: "L40S"}.get(links, "V100-SXM")
