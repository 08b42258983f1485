"""``meshwright topo``: what topology files say."""

from __future__ import annotations

import click

from meshwright.cli.output import finish, json_option, print_json, print_text


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
def command(
    files: tuple[str, ...],
    pick: int | None,
    split: int | None,
    among: str | None,
    *,
    full: bool,
    as_json: bool,
) -> None:
    """Read topology FILES and say what is there and what is wrong with it.

    Recognised by content: nvidia-smi (topo -m, topo -p2p, nvlink -s), rocm-smi, amd-smi, NCCL and
    hwloc XML, ibnetdiscover, iblinkinfo, ibsim, Slurm topology files and scontrol output, topograph
    models, Kubernetes node labels, AWS, GCP, OCI, NetQ and NMX JSON.
    """
    from meshwright.cluster.choose import choose_groups, choose_set
    from meshwright.cluster.readers import read_topology
    from meshwright.report.topo_report import topo_findings, topo_json, topo_text

    if pick is not None and split is not None:
        raise click.UsageError("--pick and --split are two questions: ask one")
    if (pick or split) and len(files) != 1:
        raise click.UsageError("--pick and --split need one file")
    if among is not None and pick is None and split is None:
        raise click.UsageError("--among goes with --pick or --split")
    sources = [read_topology(path) for path in files]
    gpus = _gpu_list(among)
    choice = None
    if pick is not None:
        choice = choose_set(sources[0], pick, gpus)
    elif split is not None:
        choice = choose_groups(sources[0], split, gpus)
    if as_json:
        print_json(topo_json(sources, choice, full=full))
    else:
        print_text(topo_text(sources, choice))
    finish(topo_findings(sources))


def _gpu_list(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = [word for word in text.replace(",", " ").split() if word]
    if not words or not all(word.isdigit() for word in words):
        raise click.UsageError(f"--among {text!r} is no list of GPU numbers, as 2,3,4,5")
    return [int(word) for word in words]
