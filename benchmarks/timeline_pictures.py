"""Make the pictures of pipeline schedules in docs/pictures/.

    python benchmarks/timeline_pictures.py            # say which differ from what is there
    python benchmarks/timeline_pictures.py --write    # replace them

A forward takes 1 s and a backward 2 s (input gradient 1 s, weight gradient 1 s) on a whole stage unless a
title says otherwise; the times are made up, the schedules are not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from meshwright.report.timeline_svg import Look, timeline_svg
from meshwright.schedules.make import make_orders
from meshwright.schedules.orders import Orders
from meshwright.timeline.core import run
from meshwright.timeline.curves import chunk_curve
from meshwright.timeline.memory_over_time import memory_over_time
from meshwright.timeline.program import Messages, StageTimes, program_of
from meshwright.timeline.record import timeline_of

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
UNEVEN = (1.0, 1.0, 1.0, 1.5)
SEND_S = 0.1


def _picture(orders: Orders, times: StageTimes, title: str, *, send_s: float = 0.0) -> str:
    program = program_of(orders, times, Messages.uniform(orders.ranks, send_s))
    ran = run(program)
    none = np.zeros(orders.chain_length)
    unit = "microbatches" if orders.chunks * orders.chains == 1 else "chunks"
    curve = chunk_curve(memory_over_time(program, ran, none, none), unit)
    look = Look(title=title, messages=send_s > 0.0, curve=curve)
    return timeline_svg(timeline_of(program, ran), look)


def one_forward_one_backward() -> str:
    title = "1F1B: 4 stages, 12 microbatches, equal stages, messages free"
    return _picture(make_orders("1f1b", 4, 12), StageTimes.equal(4), title)


def uneven() -> str:
    title = "1F1B: 4 stages, 12 microbatches, stage times 1, 1, 1, 1.5, a message takes 0.1 s"
    times = StageTimes.equal(4).scaled(np.array(UNEVEN))
    return _picture(make_orders("1f1b", 4, 12), times, title, send_s=SEND_S)


def interleaved() -> str:
    title = "Interleaved 1F1B: 4 ranks of 2 half stages, 8 microbatches"
    times = StageTimes.equal(8, 0.5, 0.5, 0.5)
    return _picture(make_orders("interleaved", 4, 8, chunks=2), times, title)


def zb_h1() -> str:
    title = "ZB-H1: 4 stages, 12 microbatches, weight gradients fill the gaps"
    return _picture(make_orders("zb-h1", 4, 12), StageTimes.equal(4), title)


def dualpipe() -> str:
    title = "DualPipe: 4 ranks with 2 stages each, 12 microbatches from both ends"
    return _picture(make_orders("dualpipe", 4, 12), StageTimes.equal(4), title)


PICTURES: dict[str, Callable[[], str]] = {
    "pipeline-1f1b.svg": one_forward_one_backward,
    "pipeline-1f1b-uneven.svg": uneven,
    "pipeline-interleaved.svg": interleaved,
    "pipeline-zb-h1.svg": zb_h1,
    "pipeline-dualpipe.svg": dualpipe,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="replace the pictures")
    write = parser.parse_args().write
    for name, make in PICTURES.items():
        path, text = FOLDER / name, make()
        equal = path.exists() and path.read_text(encoding="utf-8") == text
        print(f"{name}: {len(text):,} bytes, {'the same' if equal else 'differs'}")
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
