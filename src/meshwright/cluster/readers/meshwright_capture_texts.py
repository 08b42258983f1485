"""The texts of tools inside a capture, read by the reader of each tool."""

from __future__ import annotations

import importlib

import msgspec

from meshwright.capture.document import Capture
from meshwright.cluster.facts import Facts
from meshwright.documents import Decoded
from meshwright.errors import InputError
from meshwright.findings import Finding, Place, Severity

TOPO = "nvidia-smi topo -m"
NVLINK = "nvidia-smi nvlink -s"
AMD_SMI = "amd-smi topology"
ROCM_SMI = "rocm-smi --showtopo"
_READERS = {
    TOPO: "nvidia_smi_topo_m",
    NVLINK: "nvidia_smi_nvlink_s",
    AMD_SMI: "amd_smi_topology",
    ROCM_SMI: "rocm_smi_showtopo",
}


class Texts(msgspec.Struct, frozen=True):
    """What the tools said, by the name of the tool; findings have their places in the capture."""

    facts: dict[str, Facts]
    findings: tuple[Finding, ...]

    @property
    def topo(self) -> Facts | None:
        """What ``nvidia-smi topo -m`` said."""
        return self.facts.get(TOPO)

    @property
    def nvlink(self) -> Facts | None:
        """What ``nvidia-smi nvlink -s`` said."""
        return self.facts.get(NVLINK)

    @property
    def amd(self) -> Facts | None:
        """What AMD's tools said, the one that names PCI addresses first."""
        return self.facts.get(AMD_SMI) or self.facts.get(ROCM_SMI)


def read_texts(captured: Decoded[Capture], capture: Capture) -> Texts:
    """Read every text that a reader here knows; one that it cannot read becomes a warning."""
    facts: dict[str, Facts] = {}
    findings: list[Finding] = []
    for place, tool in enumerate(capture.tools):
        if tool.name not in _READERS or tool.name in facts:
            continue
        reader = importlib.import_module(f"meshwright.cluster.readers.{_READERS[tool.name]}")
        text = "\n".join(tool.lines)
        try:
            said: Facts = reader.read(text, captured.node.source.file)
        except InputError as error:
            findings.append(_unreadable(captured, place, tool.name, error))
            continue
        facts[tool.name] = said
        findings += [
            msgspec.structs.replace(one, place=_placed(captured, place, tool.name, one.place))
            for one in said.findings
        ]
    return Texts(facts, tuple(findings))


def _placed(captured: Decoded[Capture], tool: int, name: str, place: Place) -> Place:
    """Return the place in the capture of a place in the tool's own text."""
    path = f"tools[{tool}].lines"
    if place.line is not None:
        path += f"[{place.line - 1}]"
    at = captured.place(path)
    return Place(at.file, at.line, at.column, f"{name}: {place.subject}" if place.subject else name)


def _unreadable(captured: Decoded[Capture], tool: int, name: str, error: InputError) -> Finding:
    problem = error.problems[0]
    return Finding(
        rule="topology/tool-text-unreadable",
        severity=Severity.WARNING,
        place=_placed(captured, tool, name, problem.place),
        message=f"what {name} printed cannot be read ({problem.message}); it is not used",
        numbers={"problems": len(error.problems)},
        remedy=f"run {name} by hand on the host and read its output with topo",
    )
