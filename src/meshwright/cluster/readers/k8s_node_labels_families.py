"""Which labels of a node are tiers of the network, and in which order.

Generations of names for the same tiers: topograph ``fabric.topograph.run/tier-N`` (0 nearest),
before it ``network.topology.nvidia.com/leaf|spine|core``, before that ``block|spine|datacenter``;
EKS ``topology.k8s.aws/network-node-layer-N`` (the highest N nearest); Nebius
``topology.nebius.com/tier-N`` (1 nearest). Their values are switches. Google's, Oracle's and
Kueue's values are places, unique under their parent only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from meshwright.cluster.readers.document_values import known

KNOWN_PREFIXES = (
    r"network\.topology\.nvidia\.com/|(?:accelerator|fabric)\.topograph\.run/|nvidia\.com/gpu\.clique"
    r"|topology\.k8s\.aws/network-node-layer-|cloud\.google\.com/gce-topology-"
    r"|cloud\.provider\.com/topology-|topology\.nebius\.com/tier-|oci\.oraclecloud\.com/rdma\."
)
KNOWN_LABEL = re.compile(KNOWN_PREFIXES)
_MAX_NUMBER = 15
_GENERIC = "cloud.provider.com/topology-"


class Family(msgspec.Struct, frozen=True):
    """Labels of one origin; ``levels`` nearest first, each with its spellings."""

    levels: tuple[tuple[str, ...], ...]
    level_names: tuple[str, ...] = ()
    """For counts; empty where the tiers are switches."""
    switches: bool = False
    whole: bool = False
    """Values are unique only under their parent."""

    def tiers(self, labels: Mapping[str, str]) -> tuple[str | None, ...]:
        """Return the values of a node, nearest first, up to the farthest that it has."""
        values = [self._value(labels, level) for level in self.levels]
        while values and values[-1] is None:
            values.pop()
        return tuple(values)

    def names_any(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a node has one of the labels."""
        return any(label in labels for level in self.levels for label in level)

    @staticmethod
    def _value(labels: Mapping[str, str], level: tuple[str, ...]) -> str | None:
        values = (known(labels[label]) for label in level if label in labels)
        return next((value for value in values if value is not None), None)


def _numbered(prefix: str, first: int) -> Family:
    numbers = range(first, _MAX_NUMBER + 1)
    return Family(tuple((f"{prefix}{number}",) for number in numbers), switches=True)


_NVIDIA = "network.topology.nvidia.com/"
_GOOGLE = "cloud.google.com/gce-topology-"
_ORACLE = "oci.oraclecloud.com/rdma."
_EKS = "topology.k8s.aws/network-node-layer-"
_EKS_LABEL = re.compile(re.escape(_EKS) + r"([1-9][0-9]?)\Z")
_FAMILIES = (
    _numbered("fabric.topograph.run/tier-", 0),
    Family(
        (
            (f"{_NVIDIA}leaf", f"{_NVIDIA}block"),
            (f"{_NVIDIA}spine",),
            (f"{_NVIDIA}core", f"{_NVIDIA}datacenter"),
        ),
        switches=True,
    ),
    _numbered("topology.nebius.com/tier-", 1),
    _numbered("tier-", 1),
    Family(((f"{_GOOGLE}subblock",), (f"{_GOOGLE}block",)), ("sub_block", "block"), whole=True),
    Family(
        (
            (f"{_ORACLE}local_block_id",),
            (f"{_ORACLE}network_block_id",),
            (f"{_ORACLE}hpc_island_id",),
        ),
        ("local_block", "network_block", "hpc_island"),
        whole=True,
    ),
)
_GENERIC_LEVELS = (
    (f"{_GENERIC}rack", "rack"),
    (f"{_GENERIC}subblock", "sub_block"),
    (f"{_GENERIC}block", "block"),
)


def family_of(labels: Mapping[str, str], others: Sequence[Family]) -> Family | None:
    """Return the first family that a node has labels of; ``None`` without any.

    A vendor's own labels say which names are switches, so they win over ``others``.
    """
    eks = _eks(labels)
    if eks is not None:
        return eks
    return next((one for one in (*_FAMILIES, *others) if one.names_any(labels)), None)


def other_families(kueue_levels: Sequence[str], labels: Collection[str]) -> tuple[Family, ...]:
    """Return the levels of a Kueue Topology (farthest first), and the usual ones, as families.

    ``labels`` are those of any node: a cluster without racks has the label nowhere, which is no
    gap in its tiers.
    """
    usual = [(label, name) for label, name in _GENERIC_LEVELS if label in labels]
    named = [(level, _level_name(level)) for level in reversed(kueue_levels)]
    return tuple(
        Family(
            tuple((label,) for label, _ in levels), tuple(name for _, name in levels), whole=True
        )
        for levels in (named, usual)
        if levels
    )


def _level_name(label: str) -> str:
    return label.rpartition("/")[2].rpartition("-")[2]


def unordered_labels(labels: Mapping[str, str]) -> list[str]:
    """Return generic topology labels of a node whose order is not known."""
    return [label for label in labels if label.startswith(_GENERIC)]


def _eks(labels: Mapping[str, str]) -> Family | None:
    """Return the layers of a node on EKS: its highest number is its nearest network node."""
    numbers = [int(match[1]) for label in labels if (match := _EKS_LABEL.match(label))]
    if not numbers:
        return None
    layers = range(min(max(numbers), _MAX_NUMBER), 0, -1)
    return Family(tuple((f"{_EKS}{number}",) for number in layers), switches=True)
