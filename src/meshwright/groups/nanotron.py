"""The groups of nanotron: one array (ep, pp, dp, cp, tp), tp fastest.

Source: huggingface/nanotron ``src/nanotron/parallel/context.py`` (2411b022). Its transposes fix
the order of the groups, which differs from kind to kind. Groups have no description.
"""

from __future__ import annotations

from meshwright.groups.grid import Grid
from meshwright.groups.kinds import GroupKind, arranged_kind
from meshwright.job.layout import Layout

_AXES = ("tp", "cp", "dp", "pp", "ep")
_KINDS = (
    # name, axis, along, the other axes: each fastest first
    ("tp", "tp", ("tp",), ("cp", "dp", "pp", "ep")),
    ("cp", "cp", ("cp",), ("dp", "pp", "ep", "tp")),
    ("dp", "dp", ("dp",), ("pp", "ep", "tp", "cp")),
    ("pp", "pp", ("pp",), ("ep", "tp", "cp", "dp")),
    ("ep", "ep", ("ep",), ("tp", "cp", "dp", "pp")),
    ("mp", "tp-pp", ("tp", "pp", "ep"), ("dp", "cp")),
    ("dp_cp", "dp-cp", ("cp", "dp"), ("ep", "pp", "tp")),
    ("tp_and_ep", "tp-ep", ("tp", "ep"), ("dp", "pp", "cp")),
)


def rank_array(layout: Layout) -> Grid:
    """Return the grid of ranks; ``ep`` is 1, since the array is as large as tp · cp · dp · pp."""
    return Grid(_AXES, (layout.tp, layout.cp, layout.dp, layout.pp, layout.ep))


def nanotron_kinds(layout: Layout) -> list[GroupKind]:
    """Return every group kind in the order of creation."""
    grid = rank_array(layout)
    return [
        arranged_kind(name, axis, grid, along, outside) for name, axis, along, outside in _KINDS
    ]
