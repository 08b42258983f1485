"""The command line: one lazily loaded module a command, so that ``--help`` is fast."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import click

COMMANDS = {
    "groups": "Members of every communication group of a job.",
    "map": "Which hardware paths each group uses, and how loaded every link is.",
    "check": "Every rule that a layout breaks, memory included, and legal layouts nearby.",
    "memory": "Memory by stage and worst rank: does it fit, and the cheapest fix.",
    "batch": "Batch figures from any that suffice, and the idle share of the pipeline.",
    "pipeline": "A pipeline's schedule: idle shares and causes, activations, timeline.",
    "timeline": "Where the time of every rank went, from trace files.",
    "model": "Shape, parameters and FLOPs of a model; what share of a GPU's peak a rate is.",
    "rules": "Every rule with its source and versions; what one means.",
    "topo": "Read topology files: what is there, and what is wrong with it.",
    "capture": "What this node has, into one file that topo reads.",
}
EPILOG = (
    "Exit status: 0 without error findings, 1 with some, 2 for unreadable input or wrong usage."
)


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"meshwright.cli.{cmd_name}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(package_name="meshwright", prog_name="meshwright")
def cli() -> None:
    """Map each communication group of a training job to the hardware paths it uses.

    Start with:  meshwright map JOB.yaml
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program; errors that it raises on purpose become one clear message."""
    # One short run that makes millions of small lists and no cycles: collecting only costs time.
    gc.disable()
    if hasattr(signal, "SIGPIPE"):  # `meshwright … | head` ends as other programs do
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.stdout is None:  # closed by the caller (>&-): a file opened now would stand in its place
        click.echo("error: standard output is closed", err=True)
        sys.exit(2)
    try:
        cli.main(args=None if arguments is None else list(arguments), standalone_mode=True)
    except OSError as error:  # standard output is full or closed, as a rule
        click.echo(f"error: {error}", err=True)
        # What is left in the buffer goes nowhere: a flush at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(2)
    except MemoryError:
        click.echo("error: the job is too large for this machine's memory", err=True)
        sys.exit(2)
    except Exception as error:
        from meshwright.errors import MeshwrightError  # only now: --help stays fast

        if not isinstance(error, MeshwrightError):
            raise
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
