"""``nvidia-smi nvlink -R``: for each NVLink of each GPU, the device and the link at its far end.

Grammar: ``GPU 0: NAME (UUID: ...)``, then ``Link 0: Remote Device 00000000:05:00.0: Link 25``; a link
that is down is not listed. (NVIDIA/nccl issues 1182 and 1617 hold such output.) The text does not
give the addresses of the GPUs themselves, so what a far end is follows from the links:

- An address that every GPU with links sees is a switch: no GPU has a link to itself.
- Addresses as many as GPUs with links, and each seen by fewer, are the GPUs: in the order of the
  addresses, which is that of ``nvidia-smi``. It is believed only where every link is shown from
  both ends alike.
- Else the far ends are unknown, which is a finding.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import combinations

import msgspec

from meshwright.cluster.facts import Facts, Gpu, NvlinkPair
from meshwright.cluster.readers.nvidia_smi_nvlink_s import looks_like as gives_states
from meshwright.cluster.readers.nvidia_smi_topo_m_grid import clean_lines
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity

FORMAT = "nvidia_smi_nvlink_r"
MAX_GPUS = 128
MAX_LINKS = 256
_ADDRESS = r"(?P<address>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])"
_REMOTE = re.compile(rf"\bLink (?P<link>[0-9]{{1,9}}):[ \t]{{0,8}}Remote Device {_ADDRESS}")
_FAR_LINK = re.compile(r": Link ([0-9]{1,9})\b")
_HEADER = re.compile(r"(?:^|(?<=\s))GPU ([0-9]{1,9}): (.*)")
_UUID = re.compile(r"\s*\(UUID: ?([^)\s]*)\).*")
_CUT = re.compile(r"\s*(?:L|Li|Lin|Link(?: [0-9]{0,9}(?::(?: (?:[A-Z][a-zA-Z ]{0,13})?)?)?)?)\Z")
_REMEDY = "paste the whole output of nvidia-smi nvlink -R, one machine a file"


class Remote(msgspec.Struct, frozen=True):
    """The far end of one link."""

    address: str
    """PCI address, ``0000:05:00.0``."""
    link: int | None


class GpuRemotes(msgspec.Struct):
    """One GPU and the far ends of its links by link number."""

    index: int
    model: str | None
    uuid: str | None
    line: int
    links: dict[int, Remote] = {}


def looks_like(text: str) -> bool:
    """Tell whether the text lists far ends of NVLinks, and not also their states."""
    return _REMOTE.search(text) is not None and not gives_states(text)


def read(text: str, path: str) -> Facts:
    """Return GPUs with the number of links that are up, and the switches or pairs they lead to.

    Raises
    ------
    InputError
        There is no GPU, one or a link is listed twice, or the file is cut off within a line.
    """
    gpus = _listing(text, path)
    seen = _seen_by(gpus)
    switches, pairs, findings = _far_ends(gpus, seen, path)
    return Facts(
        format=FORMAT,
        path=path,
        gpus=tuple(
            Gpu(
                gpu.index, f"GPU{gpu.index}", model=gpu.model, nvlinks=len(gpu.links), uuid=gpu.uuid
            )
            for gpu in gpus
        ),
        nvswitches=switches,
        nvlink_pairs=pairs,
        findings=(*findings, *_fewer_links(gpus, path)),
    )


def _listing(text: str, path: str) -> list[GpuRemotes]:
    lines = clean_lines(text)
    gpus: dict[int, GpuRemotes] = {}
    current: GpuRemotes | None = None
    for at, full in enumerate(lines):
        line = full[:1000]
        header = _HEADER.search(line)
        if header is not None:
            current = _gpu_of(header, gpus, (path, at, line))
        elif remote := _REMOTE.search(line):
            if current is None:
                raise _error(path, at, line, f"Link {remote['link']} stands under no GPU")
            _add(current, remote, (path, at, line))
    last = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].strip()), 0)
    if gpus and _CUT.match(lines[last]):
        raise _error(path, last, lines[last], "the file is cut off within this line")
    if not gpus:
        raise _error(path, 0, lines[0], "no GPU of nvidia-smi nvlink -R here: no line GPU 0: NAME")
    return [gpus[index] for index in sorted(gpus)]


def _gpu_of(
    header: re.Match[str], gpus: dict[int, GpuRemotes], where: tuple[str, int, str]
) -> GpuRemotes:
    path, at, line = where
    index, rest = int(header[1]), header[2]
    if index >= MAX_GPUS:
        raise _error(path, at, line, f"GPU number {index} is too large")
    uuid = _UUID.search(rest)
    gpu = GpuRemotes(
        index, _UUID.sub("", rest).strip()[:120] or None, uuid[1] if uuid else None, at + 1
    )
    known = gpus.setdefault(index, gpu)
    if known is not gpu and (gpu.uuid is None or gpu.uuid != known.uuid):
        raise _error(path, at, line, f"a second GPU {index}")
    return known


def _add(gpu: GpuRemotes, remote: re.Match[str], where: tuple[str, int, str]) -> None:
    path, at, line = where
    number = int(remote["link"])
    if number >= MAX_LINKS:
        raise _error(path, at, line, f"link number {number} is too large")
    if number in gpu.links:
        raise _error(path, at, line, f"a second Link {number} of GPU {gpu.index}")
    far = _FAR_LINK.match(line, remote.end())
    gpu.links[number] = Remote(short_address(remote["address"]), int(far[1]) if far else None)


def short_address(address: str) -> str:
    """Return an address with a domain of four digits where it fits."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def _error(path: str, at: int, line: str, message: str) -> InputError:
    excerpt = line.strip()[:160] or None
    return InputError(Problem(Place(path, at + 1, 1), message, remedy=_REMEDY, excerpt=excerpt))


def _seen_by(gpus: list[GpuRemotes]) -> dict[str, set[int]]:
    """Return the GPUs that see each address, in the order of the addresses."""
    seen: dict[str, set[int]] = defaultdict(set)
    for gpu in gpus:
        for remote in gpu.links.values():
            seen[remote.address].add(gpu.index)
    return {address: seen[address] for address in sorted(seen)}


def _far_ends(
    gpus: list[GpuRemotes], seen: dict[str, set[int]], path: str
) -> tuple[tuple[str, ...] | None, tuple[NvlinkPair, ...] | None, list[Finding]]:
    """Return switches, pairs, and what could not be told."""
    linked = [gpu for gpu in gpus if gpu.links]
    if not linked:
        return (), (), []
    if len(linked) > 1 and all(len(found) == len(linked) for found in seen.values()):
        return tuple(seen), _through_switches(linked), []
    gpu_of = dict(zip(seen, (gpu.index for gpu in linked), strict=False))
    if len(seen) == len(linked) and _agree(linked, gpu_of):
        return (), _direct(linked, gpu_of), []
    return None, None, [_unknown(linked, seen, path)]


def _through_switches(linked: list[GpuRemotes]) -> tuple[NvlinkPair, ...]:
    """Return every pair with the links that both have to the same switches."""
    counts = [Counter(remote.address for remote in gpu.links.values()) for gpu in linked]
    pairs = []
    for a, b in combinations(range(len(linked)), 2):
        count = (counts[a] & counts[b]).total()
        pairs.append(NvlinkPair(linked[a].index, linked[b].index, count, via_switch=True))
    return tuple(pairs)


def _agree(linked: list[GpuRemotes], gpu_of: Mapping[str, int]) -> bool:
    """Tell whether every link is shown by the GPU at its far end, number by number."""
    by_index = {gpu.index: gpu for gpu in linked}
    address_of = {index: address for address, index in gpu_of.items()}
    for gpu in linked:
        for number, remote in gpu.links.items():
            other = gpu_of[remote.address]
            if other == gpu.index or remote.link is None:
                return False
            back = by_index[other].links.get(remote.link)
            if back != Remote(address_of[gpu.index], number):
                return False
    return True


def _direct(linked: list[GpuRemotes], gpu_of: Mapping[str, int]) -> tuple[NvlinkPair, ...]:
    counts: Counter[tuple[int, int]] = Counter()
    for gpu in linked:
        for remote in gpu.links.values():
            other = gpu_of[remote.address]
            if gpu.index < other:
                counts[gpu.index, other] += 1
    return tuple(NvlinkPair(a, b, counts[a, b], via_switch=False) for a, b in sorted(counts))


def _unknown(linked: list[GpuRemotes], seen: dict[str, set[int]], path: str) -> Finding:
    message = (
        f"the links of {len(linked)} GPU(s) lead to {len(seen)} addresses ({', '.join([*seen][:4])}{', …' if len(seen) > 4 else ''}), "
        "and the text does not settle which are switches and which are GPUs"
    )
    remedy = "give the listing of all GPUs of the host, and nvidia-smi topo -m"
    numbers = {"gpus": len(linked), "addresses": len(seen)}
    place = Place(path, linked[0].line, 1)
    return Finding(
        "topology/nvlink-far-ends-unknown", Severity.NOTE, place, message, numbers, remedy
    )


def _fewer_links(gpus: list[GpuRemotes], path: str) -> list[Finding]:
    """Find GPUs with fewer links up than another GPU of the model: one that is down is not listed."""
    most: dict[str | None, int] = {}
    for gpu in gpus:
        most[gpu.model] = max(most.get(gpu.model, 0), len(gpu.links))
    found = []
    for gpu in gpus:
        missing = most[gpu.model] - len(gpu.links)
        if missing > 0:
            found.append(
                Finding(
                    "topology/nvlinks-down",
                    Severity.WARNING,
                    Place(path, gpu.line, 1, f"GPU{gpu.index}"),
                    f"GPU{gpu.index}: {len(gpu.links)} NVLinks listed where a GPU of its model has "
                    f"{most[gpu.model]}; a link that is down is not listed",
                    {"gpus": [gpu.index], "up": len(gpu.links), "most_up": most[gpu.model]},
                    "look at nvidia-smi nvlink -s and at dmesg for Xid 74",
                )
            )
    return found
