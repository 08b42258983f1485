"""Paths inside a host: chains of links from device to device, and trees guessed from a matrix."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from meshwright.cluster.facts import Facts, Gpu, Nic, PcieChain
from meshwright.cluster.nodes.node import NodeType, node_from_facts
from meshwright.cluster.nodes.pcie import LocalGraph, LocalLink, guess_chains, local_graph
from meshwright.cluster.nodes.presets import bare_node, node_from_preset, node_presets
from meshwright.cluster.readers import read_topology
from routes.fabrics import make_node
from support import FIXTURES, shared_path


def assert_paths_are_chains(graph: LocalGraph, *, complete: bool = True) -> None:
    """Each path starts at its first device, passes from head to tail, and ends at the other."""
    for a, start in enumerate(graph.devices):
        for b, end in enumerate(graph.devices):
            path = graph.path(a, b)
            if a == b:
                assert path == ()
                continue
            assert path or not complete, (start, end)
            at = start
            seen = {start}
            for number in path:
                link = graph.links[number]
                assert link.tail == at, (start, end)
                assert link.head not in seen, (start, end)
                seen.add(link.head)
                at = link.head
            assert at == end or not path, (start, end)
    ends = [(link.tail, link.head) for link in graph.links]
    assert len(set(ends)) == len(ends)
    assert sorted(ends) == sorted((head, tail) for tail, head in ends)
    # Links between GPUs of an unknown model have no rate; all others do.
    direct = ("nvlink", "xgmi")
    assert all(link.rate_bytes_per_s > 0 or link.kind in direct for link in graph.links)


def _node(path: Path) -> NodeType:
    return node_from_facts(read_topology(path), None, None, path.name)[0]


@pytest.mark.parametrize("preset", node_presets(), ids=lambda one: one.name)
def test_paths_of_every_preset(preset: object) -> None:
    assert_paths_are_chains(node_from_preset(preset).graph)


@pytest.mark.parametrize(
    "path",
    sorted(
        [*FIXTURES.glob("topology/nvidia_smi_topo_m/*"), *FIXTURES.glob("topology/nccl_topo_xml/*")]
    ),
    ids=lambda path: path.stem,
)
def test_paths_of_own_fixtures(path: Path) -> None:
    assert_paths_are_chains(_node(path).graph)


@pytest.mark.captured
@pytest.mark.parametrize("folder", ["nvidia_smi_topo_m", "nccl_topo_xml"])
def test_paths_of_captured_files(folder: str) -> None:
    paths = sorted(shared_path(f"data/topology/{folder}").iterdir())
    assert len(paths) == {"nvidia_smi_topo_m": 29, "nccl_topo_xml": 13}[folder]
    for path in paths:
        assert_paths_are_chains(_node(path).graph)


def test_paths_of_random_trees() -> None:
    for seed in range(200):
        assert_paths_are_chains(make_node(random.Random(seed)).graph)


def _names(graph: LocalGraph, a: str, b: str) -> list[str]:
    path = graph.path(graph.devices.index(a), graph.devices.index(b))
    return [graph.links[number].head for number in path]


def test_ways_in_a_known_tree() -> None:
    chains = [
        PcieChain("gpu0", ("sw0", "cpu0"), (64.0, 32.0)),
        PcieChain("gpu1", ("sw0", "cpu0"), (64.0, 32.0)),
        PcieChain("gpu2", ("cpu0",), (16.0,)),
        PcieChain("nic0", ("sw1", "cpu1"), (None, 32.0)),
    ]
    graph = local_graph(["gpu0", "gpu1", "gpu2", "nic0"], chains, [], 20.0, 64.0)
    assert _names(graph, "gpu0", "gpu1") == ["sw0", "gpu1"]
    assert _names(graph, "gpu0", "gpu2") == ["sw0", "cpu0", "gpu2"]
    assert _names(graph, "gpu1", "nic0") == ["sw0", "cpu0", "cpu1", "sw1", "nic0"]
    rates = {(link.tail, link.head): link.rate_bytes_per_s for link in graph.links}
    assert rates["sw0", "cpu0"] == rates["cpu0", "sw0"] == 32.0
    assert rates["gpu2", "cpu0"] == 16.0
    assert rates["cpu0", "cpu1"] == 20.0
    assert rates["nic0", "sw1"] == 64.0  # unknown: the default
    kinds = {
        link.kind for link in graph.links if link.tail.startswith("cpu") and link.head[:3] == "cpu"
    }
    assert kinds == {"cpu"}


def test_a_mesh_goes_direct_then_through_one_gpu_then_over_pcie() -> None:
    devices = [f"gpu{i}" for i in range(5)]
    chains = [PcieChain(device, ("cpu0",), (None,)) for device in devices]
    rate = {
        ("gpu0", "gpu1"): 50.0,
        ("gpu1", "gpu3"): 50.0,
        ("gpu0", "gpu2"): 25.0,
        ("gpu2", "gpu3"): 50.0,
    }
    mesh = [
        LocalLink(*ends, "nvlink", one) for pair, one in rate.items() for ends in (pair, pair[::-1])
    ]
    graph = local_graph(devices, chains, mesh, 20.0, 64.0)
    assert _names(graph, "gpu0", "gpu1") == ["gpu1"]
    assert _names(graph, "gpu0", "gpu3") == ["gpu1", "gpu3"]  # the wider of two ways
    assert _names(graph, "gpu0", "gpu4") == ["cpu0", "gpu4"]


def test_a_host_of_which_nothing_is_known_has_no_path() -> None:
    graph = bare_node(65_536).graph
    assert graph.links == ()
    assert graph.path(0, 65_535) == ()


# Trees guessed from a matrix ----------------------------------------------------------------------

_NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS")


def _class_of(a: PcieChain, b: PcieChain) -> str:
    """What a tree prints: one common switch, several, one CPU, several."""
    bridges_a, bridges_b = a.nodes[:-1], b.nodes[:-1]
    if bridges_a and bridges_b and bridges_a[0] == bridges_b[0]:
        return "PIX"
    if set(bridges_a) & set(bridges_b):
        return "PXB"
    return "NODE" if a.nodes[-1] == b.nodes[-1] else "SYS"


def _cells(facts: Facts) -> dict[tuple[int, int], str]:
    """Class by positions of two devices (GPUs first)."""
    count = len(facts.gpus)
    cells = {}
    blocks = (
        (facts.gpu_gpu_class, 0, 0),
        (facts.gpu_nic_class, 0, count),
        (facts.nic_nic_class, count, count),
    )
    for rows, first, second in blocks:
        for a, row in enumerate(rows or ()):
            for b, cell in enumerate(row):
                if first + a != second + b and cell in _NEAR:
                    cells[first + a, second + b] = cell
    return cells


def _assert_no_farther(facts: Facts) -> None:
    chains = guess_chains(facts)
    for (a, b), cell in _cells(facts).items():
        found = _class_of(chains[a], chains[b])
        assert _NEAR.index(found) <= max(_NEAR.index(cell), 3 * (cell == "PHB")), (a, b, cell)


def test_a_guessed_tree_prints_the_matrix_it_was_made_from() -> None:
    """Random trees of sockets, roots and switches: the guess gives every cell back."""
    for seed in range(100):
        dice = random.Random(seed)
        gpus, nics = dice.randint(1, 5), dice.randint(0, 5)
        seats = [
            (dice.randrange(2), dice.randrange(2), dice.randrange(2)) for _ in range(gpus + nics)
        ]

        def cell(a: int, b: int, seats: list[tuple[int, int, int]] = seats) -> str:
            if a == b:
                return "X"
            same = [x == y for x, y in zip(seats[a], seats[b], strict=True)]
            return "PIX" if all(same) else "PXB" if all(same[:2]) else "NODE" if same[0] else "SYS"

        everyone = range(gpus + nics)
        facts = Facts(
            format="nvidia_smi_topo_m",
            path="x",
            gpus=tuple(Gpu(i, f"GPU{i}") for i in range(gpus)),
            nics=tuple(Nic(i, f"mlx5_{i}") for i in range(nics)),
            gpu_gpu_class=tuple(tuple(cell(a, b) for b in range(gpus)) for a in range(gpus)),
            gpu_nic_class=tuple(tuple(cell(a, b) for b in everyone[gpus:]) for a in range(gpus)),
            nic_nic_class=tuple(
                tuple(cell(a, b) for b in everyone[gpus:]) for a in everyone[gpus:]
            ),
        )
        chains = guess_chains(facts)
        for (a, b), wanted in _cells(facts).items():
            assert _class_of(chains[a], chains[b]) == wanted, f"seed {seed}"


@pytest.mark.parametrize(
    "name", ["tabs_4gpu_2nic", "fused_cpu_numa", "fused_header_ansi", "log_prefix_mlx_labels"]
)
def test_own_matrices_are_kept(name: str) -> None:
    _assert_no_farther(read_topology(FIXTURES / f"topology/nvidia_smi_topo_m/{name}.txt"))


def test_numa_joins_only_what_nvlink_hides() -> None:
    """GPU4 sees all others as SYS: one NUMA range for the whole host says nothing against it."""
    facts = read_topology(FIXTURES / "topology/nvidia_smi_topo_m/asymmetric_degraded.txt")
    chains = guess_chains(facts)
    assert chains[4].nodes[-1] not in {chain.nodes[-1] for chain in chains[:4]}
    assert chains[0].nodes == chains[1].nodes


@pytest.mark.captured
def test_captured_matrices_are_kept() -> None:
    for path in sorted(shared_path("data/topology/nvidia_smi_topo_m").iterdir()):
        _assert_no_farther(read_topology(path))
