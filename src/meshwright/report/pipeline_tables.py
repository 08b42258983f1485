"""Tables of ``pipeline``: idle shares, ranks with their idle time by cause, what changes the step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.chain.pipeline_run import PipelinePage, PipelineRun
from meshwright.report.pipeline_orders import group_of, warmup_of
from meshwright.report.pipeline_reasons import reasons_of
from meshwright.report.text import paragraph, table
from meshwright.timeline.ablation import AblationStep
from meshwright.timeline.columns import ranks_shown
from meshwright.timeline.program import splits_backward
from meshwright.units import format_binary_bytes, format_seconds, time_unit

ROWS = 16
"""Ranks shown; of more, the first and the last."""
_LOOPS = ("gpipe", "1f1b", "interleaved", "looped-bfs")
_DIGITS = 4
"""Of the makespan, in the table of ranks."""


def share(value: float) -> str:
    """Return a share as percent."""
    return f"{100 * value:.1f} %"


def signed_share(value: float) -> str:
    """Return a change as percent with its sign; ``same`` where it rounds to none."""
    text = f"{100 * value:+.1f} %"
    return "same" if text[1:] == "0.0 %" else text


def shares_text(page: PipelinePage, run: PipelineRun) -> str:
    """Return the idle share by formula, simulated, and by span."""
    measured = run.measured
    rows = []
    if page.formula_bubble_fraction is not None:
        rows.append(("formula", share(page.formula_bubble_fraction), _formula(run)))
    rows += [
        (
            "simulated",
            share(measured.bubble_fraction),
            "1 - work of all ranks / (ranks × makespan)",
        ),
        (
            "by span",
            share(measured.span_bubble_fraction),
            "most idle rank, from its own first to its last operation",
        ),
    ]
    return table(("idle share", "", ""), rows)


def _formula(run: PipelineRun) -> str:
    orders = run.orders
    if orders.schedule not in _LOOPS:
        return f"closed form of {orders.schedule}, equal stages"
    ahead, chunks = orders.ranks - 1, orders.chunks
    below = chunks * orders.microbatches + ahead
    name = "(p-1)/(m+p-1)" if chunks == 1 else "(p-1)/(v·m+p-1)"
    few = orders.microbatches < orders.ranks and chunks > 1
    return f"{name} = {ahead}/{below}, equal stages" if not few else "closed form, m below p"


def ranks_text(ask: PipelineAsk, run: PipelineRun) -> str:
    """Return a row a rank: busy and idle time, idle time by cause, warm-up, activations."""
    idle, measured, memory = run.idle, run.measured, run.peak_bytes
    unit_s, sign = time_unit(measured.makespan_s)
    whole = max(measured.makespan_s / unit_s, 1e-3)
    decimals = max(_DIGITS - 1 - math.floor(math.log10(whole)), 0)
    warmup = warmup_of(run.orders, group_of(ask))
    header = ["rank", f"busy {sign}", "idle", "warm-up", "cool-down", "sends", "stages"]
    split = splits_backward(run.orders)
    header += ["ahead", "peak"] + (["kept"] if memory is not None else [])
    parts = (idle.warm_up_s, idle.cool_down_s, idle.communication_s, idle.imbalance_s)
    rows = []
    for rank in ranks_shown(run.orders.ranks, ROWS):
        times = [measured.busy_s[rank], idle.total_s[rank], *(part[rank] for part in parts)]
        row = [f"{rank}", *(_fixed(one / unit_s, decimals) for one in times)]
        peak = f"{run.peak_in_flight[rank]}"
        row += [f"{warmup[rank]}", f"{peak}/{measured.peak_until_input[rank]}" if split else peak]
        rows.append(row + ([format_binary_bytes(memory[rank])] if memory is not None else []))
    what = "microbatches" if run.orders.chunks == 1 else "stage chunks"
    explained = paragraph(
        "Idle by cause: before the first backward; after the last forward; messages on their way (sends); waiting "
        "for other stages in between. Ahead: forwards before the first turn of forward and backward. "
        f"Peak: most {what} in flight, whose activations are kept{_until(run) if split else '.'}"
    )
    return f"{right(header, rows)}\n{explained}"


def _until(run: PipelineRun) -> str:
    """Say what is kept between the input gradient and the weight gradient, and what a cap counts.

    arXiv 2401.10241, table 1: M_W = 32sbh of M_B = 34sbh + 5abs², scores of attention kept.
    """
    text = (
        " until the weight gradient (W) / until the input gradient (I). From I to W the inputs of matrix "
        "products and the gradients of their outputs stay: the paper (arXiv 2401.10241) counts 32sbh of "
        "34sbh + 5as²b for a layer; here all counts until W"
    )
    if run.orders.schedule in ("zb-h1", "zb-h2"):
        text += f". The cap of {run.orders.schedule} counts a microbatch half from I to W"
    return f"{text}."


def _fixed(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return "-" if float(text) == 0 else text


def right(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """Return a table whose columns stand at the right, but for the first ``left`` ones."""
    every = [header, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(header))]
    aligned = [
        [cell if column < left else cell.rjust(widths[column]) for column, cell in enumerate(row)]
        for row in every
    ]
    return table(aligned[0], aligned[1:])


def changes_text(run: PipelineRun, steps: Sequence[AblationStep]) -> str:
    """Say what changes the step and why; nothing where nothing does."""
    if len(steps) < 2:
        return ""
    rows = []
    for step in steps:
        change = step.change_s / steps[0].measured.makespan_s
        rows.append(
            (
                step.name,
                format_seconds(step.measured.makespan_s),
                "-" if step is steps[0] else signed_share(change),
                share(step.measured.bubble_fraction),
            )
        )
    why = [
        paragraph(f"{step.name}: {reason.text}.", hanging="  ")
        for step, reason in zip(steps, reasons_of(run, steps), strict=True)
    ]
    return "\n".join(
        [
            "What changes the step, one after the other:",
            right(("", "step", "change", "idle"), rows, left=1),
            *why,
        ]
    )
