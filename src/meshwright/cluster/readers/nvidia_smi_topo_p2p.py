"""``nvidia-smi topo -p2p r|w|n|a|p``: which GPU can address which other's memory.

Alphabet: ``X``, ``OK``, ``CNS``, ``GNS``, ``TNS``, ``NS``, ``DR``, ``U``; a row starts with a
blank. The file does not say which of the five kinds of access was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.readers.label_matrix import (
    Form,
    header_labels,
    more_matrices,
    read_matrix,
)
from meshwright.cluster.readers.nvidia_smi_topo_m_grid import clean_lines
from meshwright.cluster.readers.peer_access import CODES, peer_access_findings
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

FORMAT = "nvidia_smi_topo_p2p"
_FORM = Form(
    label=re.compile(r"GPU(?:0|[1-9][0-9]{0,4})"),
    cell=re.compile("|".join(CODES)),
    own=frozenset({"X"}),
    command="nvidia-smi topo -p2p r",
)
_CODE = "|".join(CODES[1:])
_GAP = r"[ \t]{1,40}"
_ROW = re.compile(rf"(?:^|\s)GPU[0-9]{{1,5}}{_GAP}(?:X{_GAP})?(?:{_CODE})(?=\s|\Z)")
_SINGLE_ROW = re.compile(r"(?:^|\s)GPU[0-9]{1,5}\s+X\s*\Z")
_LEGEND = "Status Ok"


def looks_like(text: str) -> bool:
    """Tell whether the text holds a ``topo -p2p`` matrix: labels only, then a row of its codes."""
    if "GPU" not in text or (_LEGEND not in text and _ROW.search(text) is None):
        return False
    return next(_headers(clean_lines(text)), None) is not None


def read(text: str, path: str) -> Facts:
    """Return what the first ``topo -p2p`` matrix says; text around it may be anything.

    Raises
    ------
    InputError
        There is no matrix, or it is cut off or holds an unknown code; see ``read_matrix``.
    """
    lines = clean_lines(text)
    headers = list(_headers(lines))
    if not headers:
        message = "no matrix of nvidia-smi topo -p2p here: no line of GPU labels over a row of OK"
        raise InputError(
            Problem(Place(path, 1, 1), message, remedy=f"paste the output of {_FORM.command}")
        )
    stop = headers[1] if len(headers) > 1 else len(lines)
    matrix = read_matrix(lines, range(headers[0], stop), path, _FORM)
    findings = peer_access_findings(matrix.cells, matrix.labels, matrix.lines, path)
    findings += more_matrices(path, [at + 1 for at in headers[1:]])
    return Facts(
        format=FORMAT,
        path=path,
        gpus=tuple(
            Gpu(index=int(label.removeprefix("GPU")), name=label) for label in matrix.labels
        ),
        peer_access=matrix.cells,
        findings=tuple(findings),
    )


def _headers(lines: Sequence[str]) -> Iterator[int]:
    """Yield the positions of header lines, told from other tools' matrices by the row below."""
    has_legend = any(_LEGEND in line for line in lines)
    for at, line in enumerate(lines):
        if "GPU" not in line or header_labels(line, _FORM) is None:
            continue
        below = next((other for other in lines[at + 1 : at + 4] if other.strip()), "")
        if _ROW.search(below) or (has_legend and _SINGLE_ROW.search(below[:200])):
            yield at
