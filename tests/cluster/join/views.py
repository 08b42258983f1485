"""Sources made by hand for the joins: one host as several tools show it, small fabrics, trees."""

from __future__ import annotations

from itertools import combinations

import msgspec

from meshwright.cluster.facts import (
    Cable,
    Facts,
    Gpu,
    HostPlace,
    Nic,
    NvlinkPair,
    PcieChain,
    Switch,
    TreeSwitch,
)
from meshwright.findings import Finding
from meshwright.units import gb_per_s, gbit_per_s


def pci(number: int, bus: int = 0) -> str:
    return f"0000:{16 * bus + number:02x}:00.0"


def classes(gpus: int, nics: int, near: str = "PIX") -> tuple[tuple[str, ...], ...]:
    """Return GPU i nearest to NIC i, else NODE."""
    return tuple(tuple(near if i == j else "NODE" for j in range(nics)) for i in range(gpus))


def pairs(gpus: int, links: int) -> tuple[NvlinkPair, ...]:
    return tuple(NvlinkPair(a, b, links) for a, b in combinations(range(gpus), 2))


def nv_matrix(gpus: int, links: int) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple("X" if i == j else f"NV{links}" for j in range(gpus)) for i in range(gpus))


def topo_m(
    gpus: int = 4, nics: int = 4, links: int = 18, path: str = "topo.txt", near: str = "PIX"
) -> Facts:
    """Return what ``nvidia-smi topo -m`` says: numbers, device names, classes; no addresses."""
    return Facts(
        format="nvidia_smi_topo_m",
        path=path,
        gpus=tuple(Gpu(i, f"GPU{i}", numa=(i // 2,)) for i in range(gpus)),
        nics=tuple(Nic(i, f"mlx5_{i}", label=f"NIC{i}") for i in range(nics)),
        nvlink_pairs=pairs(gpus, links),
        numa_ids=(0, 1),
        gpu_gpu_class=nv_matrix(gpus, links),
        gpu_nic_class=classes(gpus, nics, near),
        nic_nic_class=tuple(
            tuple("X" if i == j else "NODE" for j in range(nics)) for i in range(nics)
        ),
    )


def nccl_xml(
    gpus: int = 4, nics: int = 4, path: str = "topo.xml", rate: float | None = None
) -> Facts:
    """Return what an NCCL dump says: addresses, numbers, a PCIe tree, rates, no NVLink."""
    return Facts(
        format="nccl_topo_xml",
        path=path,
        gpus=tuple(Gpu(i, str(i), pci=pci(i), numa=(i // 2,)) for i in range(gpus)),
        nics=tuple(
            Nic(
                i,
                f"mlx5_{i}",
                pci=pci(i, 2),
                guid=f"{0xA0 + i:016x}",
                rate_bytes_per_s=rate or gbit_per_s(400),
            )
            for i in range(nics)
        ),
        numa_ids=(0, 1),
        gpu_gpu_class=tuple(
            tuple("X" if i == j else "NODE" for j in range(gpus)) for i in range(gpus)
        ),
        gpu_nic_class=classes(gpus, nics),
        nic_nic_class=tuple(
            tuple("X" if i == j else "NODE" for j in range(nics)) for i in range(nics)
        ),
        pcie_chains=tuple(
            PcieChain(name, (f"sw{i}", f"cpu{i // 2}"), (gb_per_s(48), None))
            for kind, count in (("", gpus), ("mlx5_", nics))
            for i in range(count)
            for name in [f"{kind}{i}"]
        ),
    )


def skeleton(gpus: int = 4, nics: int = 4, path: str = "skeleton.xml") -> Facts:
    """Return a cloud's XML: addresses only, and the GPUs of the second socket first."""
    order = [*range(gpus // 2, gpus), *range(gpus // 2)]
    facts = nccl_xml(gpus, nics, path)
    return msgspec.structs.replace(
        facts,
        gpus=tuple(Gpu(at, pci(i), pci=pci(i), numa=(i // 2,)) for at, i in enumerate(order)),
        nics=tuple(Nic(i, pci(i, 2), pci=pci(i, 2)) for i in range(nics)),
        gpu_nic_class=tuple(facts.gpu_nic_class[i] for i in order),
        pcie_chains=tuple(
            PcieChain(pci(i, bus), (f"sw{i}", f"cpu{i // 2}"), (None, None))
            for bus, count in ((0, gpus), (2, nics))
            for i in range(count)
        ),
    )


def nvlink_s(
    gpus: int = 4, up: int = 18, path: str = "nvlink.txt", model: str = "NVIDIA H100 80GB HBM3"
) -> Facts:
    """Return what ``nvidia-smi nvlink -s`` says: models, UUIDs, links that are up."""
    return Facts(
        format="nvidia_smi_nvlink_s",
        path=path,
        gpus=tuple(
            Gpu(i, f"GPU{i}", model=model, nvlinks=up, nvlinks_down=18 - up, uuid=f"GPU-{i:04x}")
            for i in range(gpus)
        ),
    )


def capture(host: str, num_gpus: int = 4, num_nics: int = 4, **fields: object) -> Facts:
    """Return a capture of a named host: numbers and addresses both; GUIDs of its own."""
    seed = int.from_bytes(host.encode()[-6:]) * 256
    facts = Facts(
        format="meshwright_capture",
        path=f"{host}.json",
        host=host,
        hosts=(host,),
        gpus=tuple(
            Gpu(i, f"GPU{i}", host=host, pci=pci(i), model="NVIDIA H100 80GB HBM3", nvlinks=18)
            for i in range(num_gpus)
        ),
        nics=tuple(
            Nic(
                i,
                f"mlx5_{i}",
                host=host,
                pci=pci(i, 2),
                guid=f"{seed + i:016x}",
                rate_bytes_per_s=gbit_per_s(400),
            )
            for i in range(num_nics)
        ),
        nvlink_pairs=pairs(num_gpus, 18),
        gpu_gpu_class=nv_matrix(num_gpus, 18),
        gpu_nic_class=classes(num_gpus, num_nics),
    )
    return msgspec.structs.replace(facts, **fields)


def switch_guid(number: int) -> str:
    return f"{0xC000 + number:016x}"


def nic_guid(host: int, rail: int) -> str:
    return f"{0xE000 + 256 * host + 16 * rail:016x}"


def fabric(
    hosts: range = range(4), path: str = "ib.txt", form: str = "ibnetdiscover", plane: int = 0
) -> Facts:
    """Return two units of two hosts and two rails: leaf ``2 u + r``, a spine above all."""
    leaves = sorted({2 * (host // 2) + rail for host in hosts for rail in range(2)})
    first = 100 * plane
    spine = switch_guid(first + 9)
    cables = [
        Cable(switch_guid(first + leaf), spine, 30, leaf + 1, gbit_per_s(400)) for leaf in leaves
    ]
    nics = []
    for host in hosts:
        for rail in range(2):
            leaf = switch_guid(first + 2 * (host // 2) + rail)
            guid = nic_guid(host, rail + 4 * plane)
            nics.append(
                Nic(
                    len(nics),
                    f"mlx5_{rail + 2 * plane}",
                    host=f"n{host}",
                    guid=guid,
                    port=1,
                    rate_bytes_per_s=gbit_per_s(400),
                )
            )
            cables.append(Cable(leaf, guid, host % 2 + 1, 1, gbit_per_s(400)))
    return Facts(
        format=form,
        path=path,
        nics=tuple(nics),
        other_devices=(),
        hosts=tuple(f"n{host}" for host in hosts),
        switches=tuple(
            Switch(switch_guid(first + number), f"p{plane}-sw{number}", switch_guid(first + number))
            for number in [*leaves, 9]
        ),
        cables=tuple(cables),
    )


def tree(
    leaves: dict[str, tuple[str, ...]], path: str = "topology.conf", root: str | None = "top"
) -> Facts:
    """Return a scheduler's tree of leaves under one root."""
    switches = tuple(TreeSwitch(name, (), hosts) for name, hosts in leaves.items())
    if root is not None:
        switches = (*switches, TreeSwitch(root, tuple(leaves)))
    return Facts(
        format="slurm_topology_conf",
        path=path,
        hosts=tuple(host for hosts in leaves.values() for host in hosts),
        tree=switches,
    )


def labels(
    places: dict[str, tuple[tuple[str, ...], str | None]],
    path: str = "labels.json",
    form: str = "k8s_node_labels",
) -> Facts:
    """Return host labels: tiers (leaf first) and NVLink domain by host."""
    return Facts(
        format=form,
        path=path,
        hosts=tuple(places),
        places=tuple(HostPlace(host, tiers, domain) for host, (tiers, domain) in places.items()),
    )


def rules(findings: tuple[Finding, ...] | list[Finding]) -> list[str]:
    """Return the rules of findings without their common prefix."""
    return [one.rule.removeprefix("topology/") for one in findings]


def of_rule(findings: tuple[Finding, ...] | list[Finding], rule: str) -> Finding:
    """Return the only finding of a rule."""
    (found,) = [one for one in findings if one.rule == f"topology/{rule}"]
    return found
