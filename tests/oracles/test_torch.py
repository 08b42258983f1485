"""torch's DeviceMesh over gloo, 8 and 16 processes, forms the groups listed here."""

from __future__ import annotations

from typing import Any

import pytest

from groups.building import errors_of, layout_of
from meshwright.groups.table import coordinates, group_kinds
from oracles.asking import ask

pytestmark = pytest.mark.oracles

_FSDP = ["fsdp"]
_ALL = ["fsdp", "tp", "pp"]
# the mesh as a script asks torch for it (slowest first), what is flattened, the job's keys, what runs
_MESHES: list[tuple[dict[str, int], dict[str, list[str]], dict[str, Any], list[str]]] = [
    ({"dp_shard": 8}, {}, {"dp": 8, "sharding": "fsdp"}, _FSDP),
    (
        {"dp_replicate": 2, "dp_shard": 4},
        {"batch": ["dp_replicate", "dp_shard"]},
        {"dp": 8, "sharding": "hsdp", "shard_degree": 4},
        _FSDP,
    ),
    ({"tp": 8}, {}, {"tp": 8}, ["tp"]),
    ({"dp_shard": 2, "tp": 4}, {}, {"dp": 2, "tp": 4, "sharding": "fsdp"}, ["fsdp", "tp"]),
    (
        {"tp": 2, "dp_shard": 4},
        {},
        {"dp": 4, "tp": 2, "sharding": "fsdp", "order": "dp-tp"},
        ["fsdp", "tp"],
    ),
    (
        {"pp": 2, "dp_shard": 2, "tp": 2},
        {},
        {"pp": 2, "dp": 2, "tp": 2, "sharding": "fsdp"},
        _ALL,
    ),
    (
        {"dp_shard": 2, "pp": 4},
        {},
        {"pp": 4, "dp": 2, "sharding": "fsdp", "order": "pp-dp"},
        ["fsdp", "pp"],
    ),
    ({"dp_shard": 16}, {}, {"dp": 16, "sharding": "fsdp"}, _FSDP),
    (
        {"dp_replicate": 4, "dp_shard": 4},
        {},
        {"dp": 16, "sharding": "hsdp", "shard_degree": 4},
        _FSDP,
    ),
    (
        {"pp": 2, "dp_replicate": 2, "dp_shard": 2, "tp": 2},
        {"batch": ["dp_replicate", "dp_shard"]},
        {"pp": 2, "dp": 4, "tp": 2, "sharding": "hsdp", "shard_degree": 2},
        _ALL,
    ),
    (
        {"pp": 2, "dp_shard": 2, "cp": 2, "tp": 2},
        {"fsdp": ["dp_shard", "cp"]},
        {"pp": 2, "dp": 2, "cp": 2, "tp": 2, "sharding": "fsdp"},
        _ALL,
    ),
    (
        {"dp_replicate": 2, "dp_shard": 2, "cp": 2, "tp": 2},
        {"batch": ["dp_replicate", "dp_shard"], "loss": ["dp_replicate", "dp_shard", "cp"]},
        {"dp": 4, "cp": 2, "tp": 2, "sharding": "hsdp", "shard_degree": 2},
        ["tp"],
    ),
    ({"pp": 4, "tp": 4}, {}, {"pp": 4, "tp": 4}, ["tp", "pp"]),
    (
        {"dp_replicate": 2, "efsdp": 2, "ep": 4},
        {},
        {"dp": 8, "tp": 2, "ep": 4, "sharding": "hsdp", "shard_degree": 4},
        [],
    ),
]


def test_meshes_have_the_groups_and_names_that_torch_gives_them():
    cases = [
        {
            "world": layout_of(framework="torch", **keys).world_size,
            "names": list(sizes),
            "shape": list(sizes.values()),
            "flat": flat,
            "uses": uses,
        }
        for sizes, flat, keys, uses in _MESHES
    ]
    assert {case["world"] for case in cases} == {8, 16}
    answers = ask("torch_mesh_groups.py", cases, GLOO_SOCKET_IFNAME="lo")
    ran: set[str] = set()
    for (_, _, keys, uses), answer in zip(_MESHES, answers, strict=True):
        layout = layout_of(framework="torch", **keys)
        assert errors_of(layout) == []
        kinds = {kind.name: kind for kind in group_kinds(layout)}
        for name, by_rank in answer["groups"].items():
            ours = kinds[name].members().tolist()
            assert sorted(ours) == sorted(map(list, {tuple(ranks) for ranks in by_rank})), name
            for rank, ranks in enumerate(by_rank):
                assert ranks in ours, (keys, name)
                assert rank in ranks
            assert answer["descriptions"][name] == kinds[name].also[0], (keys, name)
        for rank, found in enumerate(answer["coordinates"]):
            ours_of_rank = coordinates(layout, rank)
            assert {name: ours_of_rank[name] for name in found} == found, (keys, rank)
        # what FSDP2, tensor parallelism and a pipeline took is what the mesh has
        for name, by_rank in answer["used"].items():
            assert by_rank == answer["groups"][name], (keys, name)
        assert len(answer["used"]) >= len(uses)
        ran |= set(uses)
    assert ran == {"fsdp", "tp", "pp"}
