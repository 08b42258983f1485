"""Schedules in torch's CSV form: one line a rank, one cell an action.

``_PipelineScheduleRuntime._load_csv`` of pytorch torch/distributed/pipelining/schedules.py reads it:
computations alone as ``compute_only``, with messages (``schedules/torch_form/comms.py``) as ``compute_comms``.
"""

from __future__ import annotations

import numpy as np

from meshwright.errors import UsageError
from meshwright.schedules.orders import Orders
from meshwright.schedules.torch_form.actions import WORDS, Actions, actions_of

TOGETHER = "OVERLAP_F_B"
"""Word of a forward and a backward that run together: ``(0F1;7B0)OVERLAP_F_B``."""


def torch_csv(schedule: Orders | Actions) -> str:
    """Return a schedule in torch's form, lines ended by a line feed.

    Raises
    ------
    UsageError
        The schedule runs two pipelines against each other: torch has no second copy of a stage.
    """
    if isinstance(schedule, Orders):
        if schedule.chains > 1:
            raise UsageError(
                f"{schedule.schedule} runs two pipelines against each other; torch's schedules have one copy "
                "of every stage (dualpipev is the nearest that torch runs)"
            )
        schedule = actions_of(schedule)
    cells = [
        f"{stage}{WORDS[act]}{microbatch if microbatch >= 0 else ''}"
        for act, stage, microbatch in zip(
            schedule.act.tolist(),
            schedule.stage.tolist(),
            schedule.microbatch.tolist(),
            strict=True,
        )
    ]
    for index in np.flatnonzero(schedule.overlapped).tolist():
        cells[index + 1] = f"({cells[index]};{cells[index + 1]}){TOGETHER}"
        cells[index] = ""
    lines = (cells[schedule.of_rank(rank)] for rank in range(schedule.ranks))
    return "".join(",".join(cell for cell in line if cell) + "\n" for line in lines)
