"""The answer of ``model``: shape, parameters by part, FLOPs of a token, utilisation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from meshwright.findings import Finding, Severity
from meshwright.job.flops import FlopsPerToken
from meshwright.job.mixers import MIXERS, MLPS, NONE, PARALLEL, WITH_ATTENTION
from meshwright.job.model import Model, mixer_of, mlp_of
from meshwright.job.parameters import active_parameters, parameter_parts, total_parameters
from meshwright.origin import Origin
from meshwright.report.text import findings_text, paragraph, table
from meshwright.units import format_count, format_flops

SCHEMA = "meshwright/model/1"
CONVENTION = (
    "two FLOPs a multiply-add, forward and backward (three passes), no router, norm or embedding"
)


@dataclass(frozen=True, slots=True)
class Utilisation:
    """A measured rate of one GPU against its dense peak."""

    gpu: str
    precision: str
    dense_peak_flops_per_s: float
    tokens_per_s: float
    flops_per_token: float
    mfu: float


@dataclass(frozen=True, slots=True)
class ModelPage:
    """What ``model`` shows. ``model`` is ``None`` where only a utilisation is asked for."""

    model: Model | None
    flops: FlopsPerToken | None
    used: Utilisation | None = None
    findings: tuple[Finding, ...] = ()


def model_json(page: ModelPage) -> dict[str, Any]:
    """Return the document of ``model --json``."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "name": None,
        "parameters": None,
        "active_parameters": None,
        "parts": None,
        "flops_per_token": None,
    }
    if page.model is not None:
        document |= {
            "name": page.model.name,
            "source": page.model.source,
            "mark": page.model.mark,
            "unverified": page.model.unverified or None,
            "unmodelled_layers": list(page.model.unmodelled_layers),
            "shape": msgspec.to_builtins(page.model),
            "parameters": total_parameters(page.model),
            "active_parameters": active_parameters(page.model),
            "parts": _parts(page.model),
        }
    if page.flops is not None:
        document["flops_per_token"] = _flops_json(page.flops)
    if page.used is not None:
        document |= {
            "mfu": page.used.mfu,
            "gpu": page.used.gpu,
            "precision": page.used.precision,
            "dense_peak_flops_per_s": page.used.dense_peak_flops_per_s,
            "flops_per_token_used": page.used.flops_per_token,
        }
    document["findings"] = [one.to_json() for one in page.findings]
    document["origin"] = {
        "shape": Origin.STATED.value,
        "parameters": Origin.MODELLED.value,
        "parts": Origin.MODELLED.value,
        "flops_per_token": Origin.MODELLED.value,
        "dense_peak_flops_per_s": Origin.STATED.value,
        "mfu": Origin.MODELLED.value,
    }
    return document


def _parts(model: Model) -> dict[str, int]:
    """Return the parameters by part, all layers together; they sum to ``parameters``."""
    parts = parameter_parts(model)
    found = {
        "embedding": parts.embedding,
        "output": parts.output,
        "position": parts.position,
        "norms": parts.embedding_norm + parts.final_norm,
        "extras": parts.extras_input + parts.extras_output,
    }
    for kind in parts.kinds:
        layer = kind.parts
        pieces = {
            _mixer_name(kind.mixer): layer.attention_sharded + layer.attention_replicated,
            "mlp": layer.mlp_sharded + layer.mlp_replicated,
            "router": layer.router,
            "experts": layer.experts_sharded + layer.experts_replicated,
            "shared_experts": layer.shared_expert,
            "norms": layer.norms,
            "extras": layer.extras,
        }
        for name, size in pieces.items():
            found[name] = found.get(name, 0) + kind.count * size
    return {name: size for name, size in found.items() if size}


def _mixer_name(mixer: str) -> str:
    """Return the name of a part: all that is attention alone counts as attention."""
    plain = mixer in WITH_ATTENTION and mixer != PARALLEL
    return "attention" if plain else MIXERS[mixer].lower().replace(" ", "_")


def _flops_json(flops: FlopsPerToken) -> dict[str, Any]:
    return {
        "seq_len": flops.seq_len,
        "convention": CONVENTION,
        "causal": flops.causal,
        "full_square": flops.full,
        "forward": flops.forward,
        "hardware_selective_recompute": flops.hardware("selective"),
        "hardware_full_recompute": flops.hardware("full"),
        "parts": _flops_parts(flops),
    }


def _flops_parts(flops: FlopsPerToken) -> dict[str, float]:
    parts = {
        "attention_projections": flops.projections,
        "attention_core_causal": flops.core_causal,
        "recurrence": flops.recurrence,
        "mlp": flops.mlp,
        "experts": flops.experts,
        "shared_experts": flops.shared_experts,
        "extras": flops.extras,
        "multi_token_prediction": flops.mtp,
        "logits": flops.logits,
    }
    return {name: value for name, value in parts.items() if value}


def model_text(page: ModelPage) -> str:
    """Return the page of ``model``."""
    parts = []
    if page.model is not None:
        parts += _shape_text(page.model)
    if page.flops is not None:
        parts += _flops_text(page.flops)
    if page.used is not None:
        used = page.used
        rate = format_flops(used.tokens_per_s * used.flops_per_token, "FLOP/s")
        peak = format_flops(used.dense_peak_flops_per_s, "FLOP/s")
        parts.append(
            paragraph(
                f"{used.tokens_per_s:g} tokens/s × {format_flops(used.flops_per_token)} a token = "
                f"{rate}; {used.gpu} has "
                f"{peak} dense {used.precision}: "
                f"MFU {100 * used.mfu:.1f} %."
            )
        )
    text = findings_text(page.findings, *Severity)
    parts += [text] if text else []
    return "\n\n".join(parts)


def _shape_text(model: Model) -> list[str]:
    total, active = total_parameters(model), active_parameters(model)
    head = (
        f"{model.name}: {format_count(total)} parameters"
        + (f", {format_count(active)} active" if active != total else "")
        + f"; {model.num_layers} layers{_mixed(model)}, hidden {model.hidden}, "
        + (
            f"{model.heads} heads of {model.head_dim}, {model.kv_heads} KV heads, "
            if model.has_attention
            else ""
        )
        + f"vocabulary {model.vocab}"
        + (f", {model.experts} experts, top-k {model.top_k}" if model.is_moe else "")
        + "."
    )
    rows = [
        (name, format_count(size), f"{100 * size / total:.1f} %")
        for name, size in _parts(model).items()
    ]
    return [paragraph(head), table(("part", "parameters", "share"), rows)]


def _mixed(model: Model) -> str:
    """Return how many layers are of each kind, where they are of several or of no plain attention."""
    counts: Counter[str] = Counter()
    for layer in range(model.num_layers):
        mixer = mixer_of(model, layer)
        counts[MIXERS[mixer] if mixer != NONE else MLPS[mlp_of(model, layer)]] += 1
    if set(counts) == {"attention"}:
        return ""
    return " (" + ", ".join(f"{count} {name}" for name, count in counts.items()) + ")"


def _flops_text(flops: FlopsPerToken) -> list[str]:
    rows = [
        (name.replace("_", " "), format_flops(value), f"{100 * value / flops.causal:.1f} %")
        for name, value in _flops_parts(flops).items()
    ]
    text = (
        f"A token of a sequence of {flops.seq_len}: {format_flops(flops.causal)} with the causal half of "
        f"attention, {format_flops(flops.full)} with its full square ({CONVENTION}). With recompute the GPU "
        f"runs {format_flops(flops.hardware('selective'))} (selective) or {format_flops(flops.hardware('full'))} (full)."
    )
    return [paragraph(text), table(("part", "FLOPs a token", "share"), rows)]
