"""What the tests of schedules share: golden rows, orders as text, figures of a run."""

import csv

import numpy as np

from meshwright.schedules.orders import LETTERS, orders_of, rows_of
from meshwright.timeline.core import run
from meshwright.timeline.measure import measure
from meshwright.timeline.program import StageTimes, program_of
from support import shared_path

NOT_COMPUTED = ("UNSHARD", "RESHARD", "REDUCE_GRAD")


def golden(name):
    """Return the rows of a golden file of pipelines."""
    with shared_path(f"reference/golden/{name}").open(newline="") as stream:
        return list(csv.DictReader(stream))


def torch_computes(text):
    """Return the computations of a golden row of torch: no waits, nothing of FSDP."""
    return [one for one in text.split() if one != "." and not one.endswith(NOT_COMPUTED)]


def torch_group(row):
    """Return the microbatches of a round as torch's source has it: m over max(1, m // p)."""
    pp, count = int(row["p"]), int(row["m"])
    return count // max(1, count // pp)


def sizes(row):
    """Return p, m, v and the rank of a golden row."""
    return tuple(int(row[key]) for key in ("p", "m", "v", "rank"))


def cells(orders, rank, show, pair):
    """Return a rank's operations as text.

    ``show`` makes one of letter, stage, microbatch; ``pair`` is the form of two that run together.
    """
    of_rank = orders.of_rank(rank)
    shown = [
        show(LETTERS[kind], stage, microbatch)
        for kind, stage, microbatch in zip(
            orders.kind[of_rank].tolist(),
            orders.stage[of_rank].tolist(),
            orders.microbatch[of_rank].tolist(),
            strict=True,
        )
    ]
    for at in np.flatnonzero(orders.overlapped[of_rank]).tolist():
        shown[at + 1], shown[at] = pair.format(shown[at], shown[at + 1]), ""
    return [one for one in shown if one]


def torch_cells(orders, rank):
    """Return a rank's operations as torch writes them."""

    def show(letter, stage, microbatch):
        return f"{stage}{letter}{microbatch}"

    return cells(orders, rank, show, "({};{})OVERLAP_F_B")


def orders_from(*ranks, ranks_of_stages=None):
    """Return a schedule from a text a rank: ``orders_from("0F0 0B0", "1F0 1B0")``.

    Stage s sits on rank s where nothing else is said.
    """
    by_rank = []
    for text in ranks:
        operations = []
        for cell in text.split():
            letter = next(one for one in cell if one in LETTERS)
            stage, microbatch = cell.split(letter)
            operations.append((LETTERS.index(letter), int(stage), int(microbatch)))
        by_rank.append(rows_of(operations))
    return orders_of("by hand", by_rank, ranks_of_stages or list(range(len(ranks))))


def simulated(orders, times=(1.0, 1.0, 1.0)):
    """Return what a run comes to with the same F, I and W on every stage and free messages."""
    program = program_of(orders, StageTimes.equal(orders.chain_length, *times))
    return measure(program, run(program))
