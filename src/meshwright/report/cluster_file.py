"""Write a cluster file from topology sources, to be edited and used by a job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from meshwright.cluster.facts import Facts
from meshwright.cluster.gpus import common_gpu
from meshwright.cluster.hostlist import compress_hostlist
from meshwright.cluster.join.all_sources import Joined, join_sources
from meshwright.cluster.join.host_groups import HostType
from meshwright.cluster.join.kinds import (
    by_domain,
    has_domains,
    has_places,
    in_order,
    is_fabric,
    is_host,
    is_node,
    is_tables,
    is_tree,
    without_copies,
)
from meshwright.cluster.join.said import some
from meshwright.cluster.natural_order import in_name_order
from meshwright.cluster.nodes.rack_scale import DOMAINS_MISSING, rack_scale
from meshwright.documents import dump_yaml
from meshwright.errors import UsageError
from meshwright.report.new_file import new_file

_MISSING = "Not said by these files: "
_NO_NODE = (
    "# node: dgx-h100   # the name of a preset, or {from: topo.txt}: without it no job can use this"
)
_WRITTEN_OUT = 10_000
"""Hosts in domains up to which these are written by name, to be edited; beyond, as ``from:``."""


def write_cluster(sources: Sequence[Facts], path: str) -> str:
    """Write what the sources say as a cluster file; return a line that says what stands in it.

    Paths in it start at its folder. Raises ``UsageError`` when no source describes a host or a fabric.
    """
    document, comments = cluster_document(sources, Path(path).parent)
    head = [f"# From {', '.join(Path(facts.path).name for facts in sources)}; edit as needed."]
    head += [f"# {text}" for text in comments]
    if "node" not in document:
        head.append(_NO_NODE)
    try:
        content = ("\n".join(head) + "\n" + dump_yaml(document)).encode()
    except UnicodeEncodeError:
        names = "a file's name is no UTF-8 text, so a cluster file cannot name it: rename it"
        raise UsageError(names) from None
    with new_file(path) as file:
        file.write(content)
    open_ends = sum(text.startswith(_MISSING) for text in comments)
    left = "1 thing is" if open_ends == 1 else f"{open_ends} things are"
    more = f"; {left} not said by the files (its first lines say what)" if open_ends else ""
    return f"Wrote {path}: {', '.join(document)}{more}."


def cluster_document(sources: Sequence[Facts], folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the sections of a cluster file, and comments: what is left for the user to add or know.

    Every source that a job would use is named, in a list where there are several of one kind; no
    number that a file says is copied, so that the files stay the truth. The order of the sources
    changes nothing.
    """
    kept = without_copies(in_order(sources))
    joined = join_sources(kept)
    document: dict[str, Any] = {}
    comments = [*_node(document, kept, joined, folder), *_fabric(document, kept, joined, folder)]
    _domains(document, kept, folder)
    if not document:
        blocks = [facts.path for facts in kept if facts.blocks]
        more = ""
        if blocks:
            name = Path(blocks[0]).name
            more = f"; blocks of hosts need not be NVLink domains: if they are, write nvlink_domains: {{from: {name}}}"
        raise UsageError(
            f"no source describes a host, a fabric or NVLink domains: nothing to write{more}"
        )
    if "nvlink_domains" not in document and any(rack_scale(one.facts) for one in joined.hosts):
        comments.append(f"{_MISSING}{DOMAINS_MISSING}")
    return document, [*comments, *_left_out(kept, joined, document, folder)]


def _node(
    document: dict[str, Any], sources: Sequence[Facts], joined: Joined, folder: Path
) -> list[str]:
    by_path = {facts.path: facts for facts in sources}
    types = [one for one in joined.hosts if _is_node(one, by_path)]
    if not types:
        return [f"{_MISSING}the host (node: a preset such as dgx-h100, or from: a file)"]
    chosen = types[0]
    usual = len(types) > 1 and len(chosen.hosts) > len(types[1].hosts)
    # The odd hosts' files stay in, so that what is read back names them.
    written = [one for one in types if one is chosen or (usual and one.hosts)]
    files = [path for one in written for path in one.sources if path in by_path]
    document["node"] = {"from": _from(files, folder), **_gpu(chosen.facts)}
    comments = []
    if "gpu" not in document["node"]:
        comments.append(f"{_MISSING}the GPU model (node: {{…, gpu: H100-SXM}})")
    if usual:
        odd = [host for one in types[1:] for host in one.hosts or (one.name,)]
        comments.append(
            f"All hosts are taken to be like {some(chosen.hosts, 3)}; {some(odd, 4)} "
            f"differ{'s' if len(odd) == 1 else ''} (see topo)."
        )
    elif len(types) > 1:
        others = some([one.name for one in types[1:]], 3)
        comments.append(
            f"{_MISSING}which node type is meant: {chosen.name} is written, not {others}"
        )
    hosts = in_name_order(host for one in written for host in one.hosts)
    if len(hosts) > 1 and joined.fabric is None and joined.tree is None:
        document["hosts"] = compress_hostlist(hosts)
    return comments


def _is_node(one: HostType, by_path: dict[str, Facts]) -> bool:
    return any(is_node(by_path[path]) for path in one.sources if path in by_path)


def _fabric(
    document: dict[str, Any], sources: Sequence[Facts], joined: Joined, folder: Path
) -> list[str]:
    apart = {facts.path for facts in joined.apart}
    files = [facts for facts in sources if is_fabric(facts) and facts.path not in apart]
    known = joined.fabric
    if files:
        files += [facts for facts in sources if is_tables(facts)]
    else:
        placing = [facts for facts in sources if is_tree(facts) or has_places(facts)]
        files = [facts for facts in placing if facts.format == placing[0].format]
        known = joined.tree
    if not files:
        return [f"{_MISSING}the fabric (fabric: {{preset: rail-optimized}}, or from: a file)"]
    document["fabric"] = {"from": _from([facts.path for facts in files], folder)}
    if known is not None and known.hosts:
        document["allocation"] = compress_hostlist(in_name_order(known.hosts))
    return []


def _domains(document: dict[str, Any], sources: Sequence[Facts], folder: Path) -> None:
    """Write NVLink domains that a source names (a scheduler's blocks need not be any)."""
    files = by_domain(facts for facts in sources if has_domains(facts))
    if not files:
        return
    total = sum(len(facts.places or ()) for facts in files)
    if len(files) > 1 or total > _WRITTEN_OUT:
        document["nvlink_domains"] = {"from": _from([facts.path for facts in files], folder)}
        return
    found: dict[str, list[str]] = {}
    for place in files[0].places or ():
        if place.nvlink_domain is not None:
            found.setdefault(place.nvlink_domain, []).append(place.host)
    document["nvlink_domains"] = {
        name: compress_hostlist(in_name_order(hosts)) for name, hosts in found.items()
    }


def _left_out(
    sources: Sequence[Facts], joined: Joined, document: dict[str, Any], folder: Path
) -> list[str]:
    """Say of each source that the cluster file does not name why it does not."""
    used = set(_named(document))
    apart = {facts.path for facts in joined.apart}
    written_out = len(document.get("nvlink_domains") or {}) and "from" not in _section(document)
    why: dict[str, list[str]] = {}
    for facts in sources:
        if os.path.relpath(facts.path, folder) in used or (written_out and has_domains(facts)):
            continue
        why.setdefault(_why_not(facts, joined, is_apart=facts.path in apart), []).append(facts.path)
    return [
        f"Not used: {some([Path(path).name for path in paths], 4)}: {reason}"
        for reason, paths in why.items()
    ]


def _why_not(facts: Facts, joined: Joined, is_apart: bool) -> str:
    if is_apart:
        return "not joined with the others (topo says why)"
    if is_host(facts):
        return "of another node type, or of no node alone (see topo)"
    if facts.blocks and not (is_tree(facts) or has_places(facts)):
        return "blocks of hosts; nvlink_domains: {from: …} if each is an NVLink domain"
    if joined.fabric is not None and is_fabric(joined.fabric):
        return "the cables say where hosts are; topo compares the two"
    return "another source says where hosts are; topo compares the two"


def _section(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("nvlink_domains")
    return found if isinstance(found, dict) else {}


def _named(document: dict[str, Any]) -> Iterable[str]:
    for key in ("node", "fabric", "nvlink_domains"):
        given = (document.get(key) or {}).get("from", ())
        yield from [given] if isinstance(given, str) else given


def _from(paths: Sequence[str], folder: Path) -> str | list[str]:
    """Return the value of ``from``: one path, or a list of several."""
    relative = [os.path.relpath(path, folder) for path in dict.fromkeys(paths)]
    return relative[0] if len(relative) == 1 else relative


def _gpu(facts: Facts) -> dict[str, str]:
    model = common_gpu(gpu.model for gpu in facts.gpus or ())
    return {} if model is None else {"gpu": model.name}
