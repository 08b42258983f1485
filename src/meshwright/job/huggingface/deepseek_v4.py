"""Reader of DeepSeek-V4 configurations: see ``fields.py``."""

from __future__ import annotations

from meshwright.job.huggingface.fields import (
    Fields,
    Shape,
    common,
    expert_sizes,
    layer_letters,
    shared,
)
from meshwright.job.mixers import (
    COMPRESSED,
    SLIDING,
    SPARSE,
    Extra,
)

_V4_KINDS = {
    "heavily_compressed_attention": COMPRESSED,
    "compressed_sparse_attention": SPARSE,
}


def deepseek_v4(fields: Fields) -> Shape:
    """DeepSeek-V4: a window with compressed keys before it, several residual streams."""
    width = fields.size("moe_intermediate_size", field="moe_ffn")
    shape = common(fields, head_dim=512, has_mlp=False) | expert_sizes(fields, "n_routed_experts")
    layers = shape["num_layers"]
    letters = _v4_letters(fields, layers)
    return (
        shape
        | shared(fields, width, default=1)
        | {
            "q_lora_rank": fields.size("q_lora_rank", field="q_lora_rank"),
            "output_groups": fields.size("o_groups", 8, field="output_groups"),
            "o_lora_rank": fields.size("o_lora_rank", 1024, field="o_lora_rank"),
            "shared_kv": True,
            "attention_sinks": True,
            "mixers": letters,
            "window": fields.size("sliding_window", 128, field="window"),
            "extras": _v4_extras(fields, shape, letters),
            "mtp_layers": fields.count("num_nextn_predict_layers", field="mtp_layers"),
        }
    )


def _v4_letters(fields: Fields, layers: int) -> str:
    letters = layer_letters(fields, layers, _V4_KINDS)
    if letters:
        return letters
    ratios = fields.numbers("compress_ratios")[:layers]
    if len(ratios) == layers:
        kinds = {0: SLIDING, 4: SPARSE, 128: COMPRESSED}
        return "".join(kinds.get(one, COMPRESSED) for one in ratios)
    rest = "".join(SPARSE if i % 2 else COMPRESSED for i in range(max(layers - 2, 0)))
    return COMPRESSED * min(layers, 2) + rest


def _v4_extras(fields: Fields, shape: Shape, letters: str) -> tuple[Extra, ...]:
    width, hidden = shape["head_dim"], shape["hidden"]
    streams = fields.size("hc_mult", 4)
    mixed = (2 + streams) * streams
    everywhere = (
        Extra(name="norm of keys", parameters=width),
        Extra(
            name="residual streams",
            parameters=2 * (mixed * streams * hidden + mixed + 3),
            multiply_adds=2 * mixed * streams * hidden,
        ),
        Extra(
            name="residual streams at the output",
            place="output",
            parameters=streams * streams * hidden + streams + 1,
            multiply_adds=streams * streams * hidden,
        ),
    )
    some = (_heavy(fields, shape), *_chosen(fields, shape))
    return (*everywhere, *(one for one in some if one.mixers in letters))


def _heavy(fields: Fields, shape: Shape) -> Extra:
    """Return the compressor of heavily compressed attention: one key of many tokens."""
    hidden, width = shape["hidden"], shape["head_dim"]
    tokens = fields.size("compress_rates.heavily_compressed_attention", 128)
    return Extra(
        name="compressor",
        mixers=COMPRESSED,
        parameters=2 * hidden * width + tokens * width + width,
        multiply_adds=2 * hidden * width,
        core_width=2 * shape["heads"] * width,
        core_stride=tokens,
    )


def _chosen(fields: Fields, shape: Shape) -> tuple[Extra, Extra]:
    """Return the compressor of compressed sparse attention and the indexer that chooses its keys."""
    hidden, width, rank = shape["hidden"], shape["head_dim"], fields.size("q_lora_rank")
    tokens = fields.size("compress_rates.compressed_sparse_attention", 4)
    heads, index = fields.size("index_n_heads", 64), fields.size("index_head_dim", 128)
    scorer = hidden * 4 * index + rank * heads * index + hidden * heads
    compressor = Extra(
        name="compressor of chosen keys",
        mixers=SPARSE,
        parameters=4 * hidden * width + tokens * 2 * width + width,
        multiply_adds=4 * hidden * width,
        core_width=2 * shape["heads"] * width,
        core_stride=tokens,
        core_most=fields.size("index_topk", 512),
    )
    indexer = Extra(
        name="indexer",
        mixers=SPARSE,
        parameters=scorer + tokens * 2 * index + index,
        multiply_adds=scorer,
        core_width=heads * index,
        core_stride=tokens,
    )
    return compressor, indexer
