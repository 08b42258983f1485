"""``meshwright topo``: what topology files say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from meshwright.cli.output import finish, json_option, print_json, print_text

_NUMBER = re.compile(r"[0-9]{1,6}")

if TYPE_CHECKING:
    from meshwright.cluster.choose import Choice
    from meshwright.cluster.facts import Facts


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
@click.option("--write", type=click.Path(path_type=str), help="Write a cluster file (a new one).")
def command(
    files: tuple[str, ...], write: str | None, *, full: bool, as_json: bool, **question: Any
) -> None:
    """Read topology FILES and say what is there and what is wrong with it.

    Recognised by content: nvidia-smi (topo -m, topo -p2p, nvlink -s), rocm-smi, amd-smi, NCCL and
    hwloc XML, ibnetdiscover, iblinkinfo, ibsim, Slurm topology files and scontrol output, topograph
    models, Kubernetes node labels, AWS, GCP, OCI, NetQ and NMX JSON.
    """
    from meshwright.cluster.readers import read_topology
    from meshwright.report.cluster_file import write_cluster
    from meshwright.report.new_file import check_new_file
    from meshwright.report.topo_report import topo_findings, topo_json, topo_text

    _check_question(question, len(files))
    if write is not None:
        check_new_file(write)
    sources = [read_topology(path) for path in files]
    choice = _answer(question, sources[0])
    if write is not None:
        write_cluster(sources, write)
    if as_json:
        print_json(topo_json(sources, choice, full=full))
    else:
        print_text(topo_text(sources, choice))
    finish(topo_findings(sources))


def _check_question(question: dict[str, Any], num_files: int) -> None:
    """Refuse options that do not go together."""
    asked = [name for name in ("pick", "split") if question[name] is not None]
    if len(asked) == 2:
        raise click.UsageError("--pick and --split are two questions: ask one")
    if asked and num_files != 1:
        raise click.UsageError("--pick and --split need one file")
    if question["among"] is not None and not asked:
        raise click.UsageError("--among goes with --pick or --split")


def _answer(question: dict[str, Any], facts: Facts) -> Choice | None:
    """Return the chosen GPUs, where a choice was asked for."""
    from meshwright.cluster.choose import choose_groups, choose_set

    gpus = _gpu_list(question["among"])
    if question["pick"] is not None:
        return choose_set(facts, question["pick"], gpus)
    if question["split"] is not None:
        return choose_groups(facts, question["split"], gpus)
    return None


def _gpu_list(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = [word for word in text.replace(",", " ").split() if word]
    if not words or not all(_NUMBER.fullmatch(word) for word in words):
        raise click.UsageError(f"--among {text!r} is no list of GPU numbers, as 2,3,4,5")
    return [int(word) for word in words]
