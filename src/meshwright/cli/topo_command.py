"""``meshwright topo``: what topology files say."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from meshwright.cli.output import finish, json_option, print_json, print_text

_NUMBERS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_MOST_NUMBERS = 10_000

if TYPE_CHECKING:
    from meshwright.cluster.allocations.allocation import Allocation
    from meshwright.cluster.fabric import Fabric
    from meshwright.cluster.facts import Facts
    from meshwright.cluster.nodes.choose import Choice
    from meshwright.cluster.vendor import Maker
    from meshwright.findings import Finding


@click.command(
    "topo",
    short_help="What topology files say.",
    epilog="""\b
Example: the four GPUs of a PCIe box that are nearest to each other and to a NIC:
  $ nvidia-smi topo -m > topo.txt
  $ meshwright topo topo.txt --pick 4
  Nearest paths: GPUs {4, 5, 6, 7}: PIX at worst inside a group; nearest NIC PIX

\b
A matrix may also be piped in:
  $ nvidia-smi topo -m | meshwright topo - --pick 2""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=str))
@json_option
@click.option("--full", is_flag=True, help="Lists of over 10,000 entries in the JSON as well.")
@click.option(
    "--pick", type=click.IntRange(min=1), help="Choose so many GPUs with the nearest paths."
)
@click.option(
    "--split", type=click.IntRange(min=1), help="Divide the GPUs into groups of this size."
)
@click.option("--among", help="Only these GPUs, for --pick and --split: 2,3,4,5 or 2-5.")
@click.option("--allocation", help="The hosts of a job, to see them on the network: n[000-035].")
@click.option(
    "--segment", type=click.IntRange(min=1), help="Hosts a segment, for --allocation (Slurm's)."
)
@click.option("--write", type=click.Path(path_type=str), help="Write a cluster file (a new one).")
@click.option(
    "--slurm", type=click.Path(path_type=str), help="Write Slurm's topology.conf (a new file)."
)
def command(
    files: tuple[str, ...],
    write: str | None,
    slurm: str | None,
    *,
    full: bool,
    as_json: bool,
    **question: Any,
) -> None:
    """Read topology FILES and say what is there and what is wrong with it.

    Several files of one cluster are joined, and what differs between them is said; - is standard
    input. Recognised by content: captures of `meshwright capture`, nvidia-smi (topo -m, topo -p2p,
    nvlink -s and -R, -q), rocm-smi, amd-smi, NCCL and hwloc XML, ibnetdiscover, iblinkinfo, ibsim,
    OpenSM forwarding tables, Slurm topology files and scontrol output, topograph models, Kubernetes
    node labels, AWS, GCP, OCI, NetQ and NMX JSON; and a cluster file, alone.
    """
    from meshwright.chain.cluster_file import is_cluster_file
    from meshwright.report.new_file import check_new_file

    _check_question(question)
    if files.count("-") > 1 or ("-" in files and write is not None):
        raise click.UsageError("- (standard input) stands once, and not with --write")
    outputs = [path for path in (write, slurm) if path is not None]
    for path in outputs:
        check_new_file(path)
    if len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise click.UsageError("--write and --slurm name one file: give two")
    told = [path for path in files if path != "-" and is_cluster_file(path)]
    if told:
        if len(files) > 1 or write is not None or any(question.values()):
            raise click.UsageError(
                f"{told[0]} is a cluster file: give it alone, with --slurm or --json"
            )
        _cluster(told[0], slurm, full=full, as_json=as_json)
    else:
        _sources(files, (write, slurm), question, full=full, as_json=as_json)


def _cluster(path: str, slurm: str | None, *, full: bool, as_json: bool) -> None:
    """Say what a cluster file comes to."""
    from pathlib import Path

    from meshwright.chain.cluster_of_job import load_cluster
    from meshwright.report.fabric_report import cluster_report_json, cluster_report_text

    cluster = load_cluster(Path(path), needs_node=False)
    findings = [*cluster.findings]
    if slurm is not None:
        text, found = _slurm_text(cluster.fabric)
        findings += found
        _write(slurm, text)
    if as_json:
        print_json(cluster_report_json(cluster, path, findings, full=full))
    else:
        text = cluster_report_text(cluster, path, findings)
        print_text(text if slurm is None else f"{text}\n\nWrote {slurm}.")
    finish(findings)


def _sources(
    files: tuple[str, ...],
    outputs: tuple[str | None, str | None],
    question: dict[str, Any],
    *,
    full: bool,
    as_json: bool,
) -> None:
    """Say what topology sources hold, apart and together."""
    from meshwright.cluster.readers import read_topology
    from meshwright.report.cluster_file import write_cluster
    from meshwright.report.topo_report import topo_json, topo_text
    from meshwright.report.topo_view import topo_view

    sources = [read_topology(path) for path in files]
    choice = _answer(question, sources)
    view = topo_view(sources, choice, _allocation(question, sources))
    write, slurm = outputs
    tree = None
    if slurm is not None:  # what cannot be made is refused before anything is written
        tree, found = _slurm_text(view.fabric())
        view = view.with_findings(found)
    wrote = [write_cluster(sources, write)] if write is not None else []
    if slurm is not None and tree is not None:
        _write(slurm, tree)
        wrote.append(f"Wrote {slurm}.")
    if as_json:
        print_json(topo_json(view, full=full))
    else:
        print_text("\n\n".join([topo_text(view), *wrote]))
    finish(view.findings)


def _slurm_text(fabric: Fabric) -> tuple[str, list[Finding]]:
    """Return a topology.conf, and what it cannot say."""
    from meshwright.report.slurm_topology import slurm_topology

    return slurm_topology(fabric)


def _write(path: str, text: str) -> None:
    from meshwright.report.new_file import new_file

    with new_file(path) as file:
        file.write(text.encode())


def _check_question(question: dict[str, Any]) -> None:
    """Refuse options that do not go together."""
    asked = [name for name in ("pick", "split") if question[name] is not None]
    if len(asked) == 2:
        raise click.UsageError("--pick and --split are two questions: ask one")
    if question["among"] is not None and not asked:
        raise click.UsageError("--among goes with --pick or --split")
    if question["segment"] is not None and question["allocation"] is None:
        raise click.UsageError("--segment goes with --allocation")


def _answer(question: dict[str, Any], sources: list[Facts]) -> Choice | None:
    """Return the chosen GPUs, where a choice was asked for."""
    from meshwright.cluster.nodes.choose import choose_groups, choose_set

    if question["pick"] is None and question["split"] is None:
        return None
    gpus = _gpu_list(question["among"])
    facts, maker = _one_host(sources)
    if question["pick"] is not None:
        choice = choose_set(facts, question["pick"], gpus)
    else:
        choice = choose_groups(facts, question["split"], gpus)
    return choice.of_maker(maker)


def _one_host(sources: list[Facts]) -> tuple[Facts, Maker]:
    """Return the one host (or type of hosts) that the files describe, and whose GPUs it has.

    Raises ``UsageError`` where they describe another number of them.
    """
    from meshwright.cluster.join.all_sources import join_sources
    from meshwright.cluster.vendor import AMD, NVIDIA, is_amd
    from meshwright.errors import UsageError

    if len(sources) == 1:
        return sources[0], AMD if is_amd(sources[0]) else NVIDIA
    types = [one for one in join_sources(sources).hosts if one.facts.gpus]
    if len(types) != 1:
        shown = ", ".join(one.name[:60] for one in types[:4]) or "none with GPUs"
        raise UsageError(
            f"--pick and --split need the files of one host, or of hosts of one type: these are of "
            f"{len(types)} ({shown})"
        )
    own = [facts for facts in sources if facts.path in types[0].sources]
    return types[0].facts, AMD if any(map(is_amd, own)) else NVIDIA


def _allocation(question: dict[str, Any], sources: list[Facts]) -> Allocation | None:
    """Return a job's hosts on the network, where they are given."""
    from meshwright.cluster.allocations.allocation import MAX_HOSTS, allocation_of
    from meshwright.cluster.hostlist import expand_hostlist

    if question["allocation"] is None:
        return None
    words = question["allocation"].replace(",", " ").split()
    try:
        hosts = expand_hostlist(",".join(words), limit=MAX_HOSTS)
    except ValueError as error:
        raise click.UsageError(f"--allocation: {error}") from None
    return allocation_of(sources, hosts, question["segment"])


def _gpu_list(text: str | None) -> list[int] | None:
    """Return the numbers of ``2,3,4,5`` or ``2-3,4-5``, with or without brackets."""
    if text is None:
        return None
    words = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    matches = [_NUMBERS.fullmatch(word) for word in words]
    spans = [(int(one[1]), int(one[2] or one[1])) for one in matches if one is not None]
    if not words or len(spans) < len(words) or any(first > last for first, last in spans):
        raise click.UsageError(f"--among {text!r} is no list of GPU numbers, as 2,3,4,5 or 2-5")
    if sum(last - first + 1 for first, last in spans) > _MOST_NUMBERS:
        raise click.UsageError(f"--among {text!r} is longer than {_MOST_NUMBERS:,} GPU numbers")
    return [number for first, last in spans for number in range(first, last + 1)]
