"""``meshwright topo``: what topology files say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from meshwright.cli.output import finish, json_option, print_json, print_text

_NUMBER = re.compile(r"[0-9]{1,6}")

if TYPE_CHECKING:
    from meshwright.cluster.allocation import Allocation
    from meshwright.cluster.choose import Choice
    from meshwright.cluster.fabric import Fabric
    from meshwright.cluster.facts import Facts
    from meshwright.findings import Finding


@click.command(
    "topo",
    short_help="What topology files say.",
    epilog="""\b
Example: the four GPUs of a PCIe box that are nearest to each other and to a NIC:
  $ nvidia-smi topo -m > topo.txt
  $ meshwright topo topo.txt --pick 4
  Nearest paths: GPUs {4, 5, 6, 7}: PIX at worst inside a group; nearest NIC PIX""",
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
@click.option("--among", help="Only these GPUs, for --pick and --split: 2,3,4,5.")
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

    Several files of one cluster are joined, and what differs between them is said. Recognised by
    content: captures of `meshwright capture`, nvidia-smi (topo -m, topo -p2p, nvlink -s and -R, -q),
    rocm-smi, amd-smi, NCCL and hwloc XML, ibnetdiscover, iblinkinfo, ibsim, OpenSM forwarding tables,
    Slurm topology files and scontrol output, topograph models, Kubernetes node labels, AWS, GCP, OCI,
    NetQ and NMX JSON; and a cluster file, alone.
    """
    from meshwright.chain.cluster_file import is_cluster_file
    from meshwright.report.new_file import check_new_file

    _check_question(question, len(files))
    for path in (write, slurm):
        if path is not None:
            check_new_file(path)
    told = [path for path in files if is_cluster_file(path)]
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

    cluster = load_cluster(Path(path))
    findings = [*cluster.findings]
    if slurm is not None:
        findings += _write_slurm(cluster.fabric, slurm)
    if as_json:
        print_json(cluster_report_json(cluster, path, findings, full=full))
    else:
        print_text(cluster_report_text(cluster, path, findings))
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
    choice = _answer(question, sources[0])
    view = topo_view(sources, choice, _allocation(question, sources))
    write, slurm = outputs
    if write is not None:
        write_cluster(sources, write)
    if slurm is not None:
        view = view.with_findings(_write_slurm(view.fabric(), slurm))
    if as_json:
        print_json(topo_json(view, full=full))
    else:
        print_text(topo_text(view))
    finish(view.findings)


def _write_slurm(fabric: Fabric, path: str) -> list[Finding]:
    """Write a topology.conf; return what it cannot say."""
    from meshwright.report.new_file import new_file
    from meshwright.report.slurm_topology import slurm_topology

    text, findings = slurm_topology(fabric)
    with new_file(path) as file:
        file.write(text.encode())
    return findings


def _check_question(question: dict[str, Any], num_files: int) -> None:
    """Refuse options that do not go together."""
    asked = [name for name in ("pick", "split") if question[name] is not None]
    if len(asked) == 2:
        raise click.UsageError("--pick and --split are two questions: ask one")
    if asked and num_files != 1:
        raise click.UsageError("--pick and --split need one file")
    if question["among"] is not None and not asked:
        raise click.UsageError("--among goes with --pick or --split")
    if question["segment"] is not None and question["allocation"] is None:
        raise click.UsageError("--segment goes with --allocation")


def _answer(question: dict[str, Any], facts: Facts) -> Choice | None:
    """Return the chosen GPUs, where a choice was asked for."""
    from meshwright.cluster.choose import choose_groups, choose_set

    gpus = _gpu_list(question["among"])
    if question["pick"] is not None:
        return choose_set(facts, question["pick"], gpus)
    if question["split"] is not None:
        return choose_groups(facts, question["split"], gpus)
    return None


def _allocation(question: dict[str, Any], sources: list[Facts]) -> Allocation | None:
    """Return a job's hosts on the network, where they are given."""
    from meshwright.cluster.allocation import allocation_of
    from meshwright.cluster.hostlist import expand_hostlist

    if question["allocation"] is None:
        return None
    words = question["allocation"].replace(",", " ").split()
    try:
        hosts = expand_hostlist(",".join(words))
    except ValueError as error:
        raise click.UsageError(f"--allocation: {error}") from None
    return allocation_of(sources, hosts, question["segment"])


def _gpu_list(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = [word for word in text.replace(",", " ").split() if word]
    if not words or not all(_NUMBER.fullmatch(word) for word in words):
        raise click.UsageError(f"--among {text!r} is no list of GPU numbers, as 2,3,4,5")
    return [int(word) for word in words]
