"""``meshwright model``: what a model holds and costs a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meshwright.cli.number_types import FiniteRange
from meshwright.cli.output import finish, json_option, print_json, print_text

if TYPE_CHECKING:
    from meshwright.findings import Finding
    from meshwright.job.model import Model
    from meshwright.report.model_report import ModelPage

_SPARSE = (1.9, 2.1)
"""A peak so many times the dense one is the one with 2:4 sparsity."""


@click.command(
    "model",
    short_help="Shape, parameters and FLOPs of a model; MFU of a measured rate.",
    epilog="""\b
Examples:
  $ meshwright model llama3-8b --seq-len 8192
  llama-3-8b: 8,030,261,248 parameters; 32 layers, hidden 4096, …
  $ meshwright model --gpu "H100 SXM" --tokens-per-s 9600 \\
      --tflop-per-token 0.05
  … H100 SXM 80G has 989.4 TFLOP/s dense bf16: MFU 48.5 %.""",
)
@click.argument("name", metavar="[NAME|config.json]", required=False)
@json_option
@click.option("--seq-len", type=click.IntRange(1, 1 << 31), help="Tokens of a sequence (4096).")
@click.option("--mtp-layers", type=click.IntRange(0, 64), default=0, help="Trained MTP layers.")
@click.option("--gpu", help="GPU whose dense peak a rate is compared with.")
@click.option(
    "--precision",
    type=click.Choice(["bf16", "fp16", "fp8", "fp4"]),
    default="bf16",
    show_default=True,
)
@click.option("--tokens-per-s", type=FiniteRange(0, 1e15), help="Measured, of one GPU.")
@click.option("--tflop-per-token", type=FiniteRange(0, 1e15), help="Instead of the model's own.")
@click.option("--peak", type=FiniteRange(0, 1e9), help="A peak in TFLOP/s to look at.")
def command(name: str | None, *, as_json: bool, **options: Any) -> None:
    """Show shape, parameters by part and FLOPs of a token; with a rate, the share of the dense peak.

    NAME is a name of the catalogue, a Hugging Face config.json or a folder with one. A family that is not
    known is read as a Llama-like decoder and marked so.
    """
    from meshwright.report.model_report import model_json, model_text

    page = _page(name, options)
    if as_json:
        print_json(model_json(page))
    else:
        print_text(model_text(page))
    finish(page.findings)


def _page(name: str | None, options: dict[str, Any]) -> ModelPage:
    from meshwright.errors import UsageError
    from meshwright.job.flops import flops_per_token, utilisation
    from meshwright.job.model_findings import model_findings
    from meshwright.report.model_report import ModelPage, Utilisation
    from meshwright.units import tera

    model = _model(name) if name is not None else None
    flops = None
    known = () if model is None else model_findings(model)
    if model is not None:
        length = options["seq_len"] or min(4096, model.max_positions or 4096)
        flops = flops_per_token(model, length, mtp_layers=options["mtp_layers"])
    gpu, rate, given = options["gpu"], options["tokens_per_s"], options["tflop_per_token"]
    if model is None and rate is None:
        raise UsageError("name a model, or give --gpu, --tokens-per-s and --tflop-per-token")
    if gpu is None:
        if rate is not None or options["peak"] is not None:
            raise UsageError("whose peak? --gpu 'H100 SXM'")
        return ModelPage(model, flops, None, known)
    found, peak = _peak(gpu, options["precision"])
    findings = known + _peak_findings(options["peak"], found, peak, options["precision"])
    if rate is None:
        return ModelPage(model, flops, None, findings)
    if given is None and flops is None:
        raise UsageError("how many FLOPs has a token? name a model, or give --tflop-per-token")
    each = tera(given) if given is not None else flops.causal if flops is not None else 0.0
    used = Utilisation(found, options["precision"], peak, rate, each, utilisation(rate, each, peak))
    return ModelPage(model, flops, used, findings)


def _model(name: str) -> Model:
    from pathlib import Path

    from meshwright.chain.jobfile import is_there
    from meshwright.errors import UsageError
    from meshwright.job.catalogue import UnknownModelError, find_model
    from meshwright.job.huggingface.config import read_huggingface_config

    if is_there(Path(name)):
        return read_huggingface_config(name)
    try:
        return find_model(name)
    except UnknownModelError as error:
        raise UsageError(f"{error}; no file of this name either") from None


def _peak(gpu: str, precision: str) -> tuple[str, float]:
    """Return the GPU's name and its dense peak."""
    from meshwright.cluster.gpus import UnknownGpuError, find_gpu
    from meshwright.errors import UsageError

    try:
        found = find_gpu(gpu)
    except UnknownGpuError as error:
        raise UsageError(str(error)) from None
    peak = getattr(found, f"{precision}_flops_per_s")
    if peak is None:
        raise UsageError(f"{found.name} has no known {precision} peak ({found.note or found.mark})")
    return found.name, float(peak)


def _peak_findings(
    listed: float | None, gpu: str, peak: float, precision: str
) -> tuple[Finding, ...]:
    """Say what a peak that was read somewhere is, against the dense one."""
    from meshwright.findings import Finding, Place, Severity
    from meshwright.units import tera

    if listed is None:
        return ()
    times = tera(listed) / peak
    numbers = {"listed_flops_per_s": tera(listed), "dense_flops_per_s": peak, "times": times}
    place = Place(subject="--peak")
    if _SPARSE[0] <= times <= _SPARSE[1]:
        return (
            Finding(
                "model/sparse-peak",
                Severity.WARNING,
                place,
                f"{listed:g} TFLOP/s is {times:.2f} × the dense {precision} peak of {gpu}: the figure with 2:4 "
                "sparsity, which training does not use. An MFU against it is half of what it should be.",
                numbers,
                f"leave --peak out: {gpu} has {peak / tera(1):g} TFLOP/s dense",
            ),
        )
    if abs(times - 1) < 0.01:
        return ()
    message = f"{listed:g} TFLOP/s is {times:.2f} × the dense {precision} peak of {gpu}."
    remedy = f"leave --peak out: {gpu} has {peak / tera(1):g} TFLOP/s dense"
    return (Finding("model/peak-differs", Severity.NOTE, place, message, numbers, remedy),)
