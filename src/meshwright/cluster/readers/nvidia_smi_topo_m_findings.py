"""``nvidia-smi topo -m``: what is odd about a matrix, each finding with the line of its row."""

from __future__ import annotations

import re
from itertools import combinations

import msgspec

from meshwright.cluster.degraded.nvlink import nvlink_findings
from meshwright.cluster.degraded.pcie_paths import far_nics, hidden_tree
from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.host_lines import split_hosts
from meshwright.cluster.readers.nvidia_smi_topo_m_grid import Grid
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import plural, verb

_LINK = re.compile(r"(?:NV|MX)([0-9]*)\Z")
_SHOWN = 20
_MOST_HOSTS = 100
_NO_HOST = "?"
"""Stands for the host of a matrix that no host is named before."""


class Matrix(msgspec.Struct, frozen=True):
    """The grid by kind of device; positions are those of the grid's labels."""

    grid: Grid
    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    path: str

    def cell(self, row: int, column: int) -> str:
        """Return what the row of a device says of another."""
        return self.grid.rows[row].cells[column]

    def block(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
        """Return the cells of some rows and columns."""
        return tuple(tuple(self.cell(row, column) for column in columns) for row in rows)

    def place(self, row: int) -> Place:
        """Return the place of a device's row."""
        return Place(self.path, self.grid.rows[row].line, 1, self.grid.labels[row])


def link_count(cell: str) -> int:
    """Return the links of a cell, 0 when it is a PCIe class; ``MX`` states no count."""
    match = _LINK.match(cell)
    return 0 if match is None else int(match[1] or 1)


def matrix_findings(matrix: Matrix, facts: Facts) -> list[Finding]:
    """Return the findings on a matrix; ``facts`` are what it says."""

    def place_of(gpu: int) -> Place:
        return matrix.place(matrix.gpus[gpu])

    return [
        *_more_matrices(matrix),
        *_asymmetric(matrix),
        *nvlink_findings(facts, place_of),
        *hidden_tree(facts, place_of),
        *far_nics(facts, place_of),
    ]


def _asymmetric(matrix: Matrix) -> list[Finding]:
    labels, rows = matrix.grid.labels, matrix.grid.rows
    unequal = [
        (row, column)
        for row, column in combinations(range(len(labels)), 2)
        if matrix.cell(row, column) != matrix.cell(column, row)
    ]
    if not unequal:
        return []
    row, column = unequal[0]
    cells = [
        [labels[a], labels[b], matrix.cell(a, b), matrix.cell(b, a)] for a, b in unequal[:_SHOWN]
    ]
    message = (
        f"{labels[row]} to {labels[column]} is {matrix.cell(row, column)} (line {rows[row].line}), but "
        f"{labels[column]} to {labels[row]} is {matrix.cell(column, row)} (line {rows[column].line})"
    )
    if len(unequal) > 1:
        shared = set(unequal[0]).intersection(*unequal)
        whose = f", all with {labels[min(shared)]}" if shared else ""
        message += f" ({len(unequal) - 1} more such pairs{whose})"
    return [
        Finding(
            rule="topology/matrix-asymmetric",
            severity=Severity.WARNING,
            place=matrix.place(row),
            message=message,
            numbers={"count": len(unequal), "cells": [[*cell] for cell in cells]},
            remedy="run nvidia-smi topo -m again; if it stays, look for links that are down "
            "(nvidia-smi nvlink -s)",
        )
    ]


def _more_matrices(matrix: Matrix) -> list[Finding]:
    others = matrix.grid.other_headers
    if not others:
        return []
    hosts = _header_hosts(matrix.grid, matrix.path)
    if len(set(hosts)) > 1:
        return [_more_hosts(matrix, hosts)]
    return [
        Finding(
            rule="topology/more-matrices",
            severity=Severity.NOTE,
            place=Place(matrix.path, others[0], 1),
            message=f"{plural(len(others), 'further matrix', 'further matrices')} in this file {verb(len(others))} not "
            "read: only the first is",
            numbers={"lines": [*others[:_SHOWN]]},
            remedy="give each machine's matrix as a file of its own",
        )
    ]


def host_of(grid: Grid, path: str) -> str | None:
    """Return the one host that a parallel shell put before the first matrix and all its rows."""
    hosts = _hosts_by_line(grid, path)
    found = {hosts.get(number) for number in (grid.header_line, *(row.line for row in grid.rows))}
    named = found.pop()
    return named[0] if not found and named is not None and len(named) == 1 else None


def _header_hosts(grid: Grid, path: str) -> list[str]:
    """Return the first host of each matrix of the text, where a parallel shell put one before it."""
    hosts = _hosts_by_line(grid, path)
    return [hosts.get(at, (_NO_HOST,))[0] for at in (grid.header_line, *grid.other_headers)]


def _hosts_by_line(grid: Grid, path: str) -> dict[int, tuple[str, ...]]:
    parts = [part for part in split_hosts(grid.lines, path) if part.hosts]
    return {line.number: part.hosts for part in parts for line in part.lines}


def _more_hosts(matrix: Matrix, hosts: list[str]) -> Finding:
    """Warn that other hosts' matrices are not read: they may be the ones that differ."""
    lost = [host for host in dict.fromkeys(hosts) if host != hosts[0]]
    shown = ", ".join(lost[:4]) + (" …" if len(lost) > 4 else "")
    listed: list[Number] = [*dict.fromkeys(hosts)]
    return Finding(
        rule="topology/more-matrices",
        severity=Severity.WARNING,
        place=Place(matrix.path, matrix.grid.other_headers[0], 1),
        message=f"the matrices of {len(lost) + 1} hosts are in this file, and only that of {hosts[0]} "
        f"is read; not looked at: {shown}",
        numbers={"lines": [*matrix.grid.other_headers[:_SHOWN]], "hosts": listed[:_MOST_HOSTS]},
        remedy="""one file a host: awk -F: '{print > ($1 ".txt")}' on the output of pdsh; then topo \
of all files""",
    )
