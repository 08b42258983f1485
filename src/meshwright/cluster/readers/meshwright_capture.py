"""What ``meshwright capture`` writes on one host: kernel, NVML and the texts of tools in one JSON.

Of several sources for one thing the driver's word goes first: NVML, then ``topo -m``, then the PCI
tree. Grammar: ``meshwright.capture.document``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from meshwright.capture.document import SCHEMA, SCHEMA_FAMILY, Capture
from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.meshwright_capture_findings import (
    missing_sources,
    pcie_findings,
    port_findings,
)
from meshwright.cluster.readers.meshwright_capture_gpus import Gpus, read_gpus
from meshwright.cluster.readers.meshwright_capture_links import (
    Classes,
    nvlink_findings,
    nvlink_pairs,
    path_classes,
)
from meshwright.cluster.readers.meshwright_capture_nics import Nics, read_nics
from meshwright.cluster.readers.meshwright_capture_places import domain_findings, host_place
from meshwright.cluster.readers.meshwright_capture_texts import Texts, read_texts
from meshwright.cluster.readers.meshwright_capture_tree import NVIDIA, PciTree, build_tree
from meshwright.documents import Decoded, MappingNode, ScalarNode, decode, parse_document
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity

FORMAT = "meshwright_capture"
_LOOKS = re.compile(rf'"schema"\s{{0,64}}:\s{{0,64}}"{SCHEMA_FAMILY}')
_HIDDEN = "topology/pcie-hidden-by-vm"
_AGAIN = "run meshwright capture on the host again, and leave the file as it is"


class _Made(msgspec.Struct, frozen=True):
    """What was made of a capture, for its findings."""

    tree: PciTree
    texts: Texts
    gpus: Gpus
    nics: Nics
    classes: Classes


def looks_like(text: str) -> bool:
    """Tell whether the text is a JSON object whose schema is that of a capture."""
    return text.lstrip("\ufeff \t\r\n").startswith("{") and _LOOKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return what one host has; rates are bytes per second in one direction.

    Raises
    ------
    InputError
        The text is no capture of a version known here, or was changed so that it is none.
    """
    captured = _decoded(text, path)
    capture = captured.required()
    tree = build_tree(captured, capture)
    texts = read_texts(captured, capture)
    gpus = read_gpus(captured, capture, tree, texts)
    nics = read_nics(captured, capture, tree, texts)
    pairs = nvlink_pairs(gpus, texts)
    made = _Made(tree, texts, gpus, nics, path_classes(tree, gpus, nics, pairs, texts))
    place = host_place(capture)
    return Facts(
        format=FORMAT,
        path=path,
        host=capture.host.name,
        hosts=(capture.host.name,),
        gpus=gpus.items,
        nics=nics.items,
        nvswitches=_nvswitches(capture),
        nvlink_pairs=pairs,
        numa_ids=_numa_ids(capture),
        gpu_gpu_class=made.classes.gpu_gpu,
        gpu_nic_class=made.classes.gpu_nic,
        nic_nic_class=made.classes.nic_nic,
        pcie_chains=tree.chains(gpus.seated, nics.seated),
        places=(place,) if place.tiers or place.nvlink_domain else None,
        findings=tuple(_findings(captured, capture, made)),
    )


def _decoded(text: str, path: str) -> Decoded[Capture]:
    try:
        document = parse_document(text, path, "json")
    except InputError:
        _refuse_several(text, path)
        raise
    root = document.root
    schema = root.entries.get("schema") if isinstance(root, MappingNode) else None
    if schema is None:
        raise InputError(root.problem("this is no capture: it has no schema", remedy=_AGAIN))
    node = schema.node
    if not isinstance(node, ScalarNode) or node.value != SCHEMA:
        message = f"the schema of this capture is not {SCHEMA}"
        remedy = "read it with the version of meshwright that wrote it, or a newer one"
        raise InputError(node.problem(message, remedy=remedy))
    return decode(document, Capture)


def _refuse_several(text: str, path: str) -> None:
    """Say what has happened where several captures stand in one file."""
    first = _LOOKS.search(text)
    second = _LOOKS.search(text, first.end()) if first else None
    if second is not None:
        line = text.count("\n", 0, second.start()) + 1
        message = "a second capture begins here: a file holds one host"
        remedy = "srun --ntasks-per-node=1 meshwright capture -o FOLDER/ writes one file a host"
        raise InputError(Problem(Place(path, line, 1), message, remedy=remedy))


def _nvswitches(capture: Capture) -> tuple[str, ...] | None:
    """Return NVSwitches on the PCI bus; ``None`` where links end at switches that are not on it."""
    if capture.pci is None:
        return None
    found = tuple(
        one.address for one in capture.pci if one.code.startswith("0680") and one.vendor == NVIDIA
    )
    gpus = capture.nvml.gpus if capture.nvml else ()
    elsewhere = any(link.remote_type == "switch" for gpu in gpus for link in gpu.nvlinks or ())
    return None if elsewhere and not found else found


def _numa_ids(capture: Capture) -> tuple[int, ...] | None:
    """Return the NUMA nodes that have CPUs: others are memory of a device or an expander."""
    nodes = capture.cpus.numa_nodes
    if nodes is None:
        return None
    return tuple(sorted(node.id for node in nodes if node.cpus)) or None


def _findings(captured: Decoded[Capture], capture: Capture, made: _Made) -> Iterator[Finding]:
    yield from made.gpus.findings
    yield from made.nics.findings
    yield from pcie_findings(captured, made.tree, made.gpus.seated, made.nics.seated)
    yield from port_findings(captured, made.tree, made.nics)
    yield from nvlink_findings(captured, capture, made.texts)
    yield from domain_findings(captured, capture)
    told = [one for one in made.texts.findings if not _is_moot(one, capture)]
    yield from told
    if not any(one.rule == _HIDDEN for one in told):
        yield from _hidden_by_vm(captured, capture, made.classes)
    yield from missing_sources(captured, capture)


def _is_moot(finding: Finding, capture: Capture) -> bool:
    """Tell a finding on links that are down where none of any GPU is up (a note says so)."""
    gpus = capture.nvml.gpus if capture.nvml else ()
    links = [link for gpu in gpus for link in gpu.nvlinks or ()]
    return (
        finding.rule == "topology/nvlinks-down"
        and bool(links)
        and not any(link.up for link in links)
    )


def _hidden_by_vm(
    captured: Decoded[Capture], capture: Capture, classes: Classes
) -> Iterator[Finding]:
    """Note a virtual machine that shows every GPU as near to every NIC."""
    cells = [cell for row in classes.gpu_nic or () for cell in row]
    if not capture.host.virtual_machine or len(cells) < 2 or len(set(cells)) > 1:
        return
    yield Finding(
        _HIDDEN,
        Severity.NOTE,
        captured.place("pci"),
        f"every GPU-NIC path is {cells[0]}: a virtual machine hides the PCIe tree, so which NIC is "
        "near is unknown, not equal",
        {"cells": len(cells)},
        "add the NCCL topology XML of the cloud image (NCCL_TOPO_FILE)",
    )
