"""The event core that a program needs: plain, with shared links, or with blocking sends."""

from __future__ import annotations

from meshwright.timeline.blocking import run_blocking
from meshwright.timeline.contended import run_contended
from meshwright.timeline.core import Times, run
from meshwright.timeline.program import Program


def simulate(program: Program, *, blocking: bool = False) -> Times:
    """Run a program. Raises ``DeadlockError``.

    Parameters
    ----------
    blocking
        Ranks wait for their sends. Messages then share no links.
    """
    if blocking:
        return run_blocking(program)
    shared = len(program.link) and int(program.link.max()) >= 0
    return run_contended(program) if shared else run(program)
