"""What a matrix of peer access between GPUs says that needs attention.

Codes are those of ``nvidia-smi topo -p2p``. ``OK`` says that one GPU can address the other's
memory, nothing on the rate.
"""

from __future__ import annotations

from itertools import combinations

from meshwright.findings import Finding, Place, Severity

CODES = ("X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
"""Self, access, then the reasons for none (legend of ``nvidia-smi topo -p2p``)."""
_MEANING = {
    "CNS": ("the chipset does not support it", "nvidia-smi topo -m shows the path of the pair"),
    "GNS": ("the GPU does not support it", "choose GPUs of one set that support it, or none"),
    "TNS": ("this topology does not support it", "choose GPUs under one host bridge"),
    "NS": ("not supported", "look for IOMMU or PCIe ACS switched on in the BIOS or kernel"),
    "DR": ("disabled by a driver registry key", "remove the key from the driver's options"),
    "U": ("unknown to the tool", None),
}
_SHOWN = 20

Codes = tuple[tuple[str, ...], ...]
"""``[from][to]``: one of ``CODES``."""


def peer_access_findings(
    codes: Codes, labels: tuple[str, ...], lines: tuple[int, ...], path: str
) -> list[Finding]:
    """Return findings on pairs whose directions differ and, by reason, on pairs without access.

    ``lines[i]`` is the line (from 1) of the row of ``labels[i]``.
    """
    pairs = list(combinations(range(len(labels)), 2))
    findings = _differing(codes, labels, lines, path)
    for code in CODES[2:]:
        off = [(a, b) for a, b in pairs if code in (codes[a][b], codes[b][a])]
        if off:
            a, b = off[0]
            meaning, remedy = _MEANING[code]
            which = (
                "all GPU pairs" if len(off) == len(pairs) else f"{len(off)} of {len(pairs)} pairs"
            )
            findings.append(
                Finding(
                    rule="topology/peer-access-off",
                    severity=Severity.NOTE if code == "U" else Severity.WARNING,
                    place=Place(path, lines[a], 1, labels[a]),
                    message=f"no peer access in {which} ({code}: {meaning}), the first is "
                    f"{labels[a]} and {labels[b]}; without it data goes through host memory",
                    numbers={
                        "code": code,
                        "count": len(off),
                        "pairs": [[labels[a], labels[b]] for a, b in off[:_SHOWN]],
                    },
                    remedy=remedy,
                )
            )
    return findings


def _differing(
    codes: Codes, labels: tuple[str, ...], lines: tuple[int, ...], path: str
) -> list[Finding]:
    differing = [
        (a, b) for a, b in combinations(range(len(labels)), 2) if codes[a][b] != codes[b][a]
    ]
    if not differing:
        return []
    a, b = differing[0]
    return [
        Finding(
            rule="topology/peer-access-differs",
            severity=Severity.WARNING,
            place=Place(path, lines[a], 1, labels[a]),
            message=f"peer access differs by direction in {len(differing)} GPU pairs: "
            f"{labels[a]} to {labels[b]} is {codes[a][b]}, back it is {codes[b][a]}",
            numbers={
                "count": len(differing),
                "cells": [
                    [labels[a], labels[b], codes[a][b], codes[b][a]] for a, b in differing[:_SHOWN]
                ],
            },
            remedy="take the matrix again; a pair counts as having peer access only both ways",
        )
    ]
