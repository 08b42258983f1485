"""Model shapes: which layers have experts, and what makes a shape unsound."""

import msgspec
import pytest

from meshwright.job.catalogue import find_model, model_names
from meshwright.job.model import Model, is_moe_layer, moe_layers, shape_problems

SMALL = Model(
    name="small",
    num_layers=7,
    hidden=64,
    ffn=160,
    heads=8,
    kv_heads=2,
    head_dim=8,
    vocab=100,
)
EXPERTS = msgspec.structs.replace(SMALL, experts=4, top_k=2, moe_ffn=32)


def changed(model, **fields):
    return msgspec.structs.replace(model, **fields)


def test_dense_model_has_no_expert_layer():
    assert not SMALL.is_moe
    assert moe_layers(SMALL) == (False,) * 7


@pytest.mark.parametrize(
    ("first", "period", "offset", "expected"),
    [
        (0, 1, 0, "1111111"),
        (3, 1, 0, "0001111"),
        (0, 2, 1, "0101010"),
        (0, 2, 0, "1010101"),
        (3, 2, 0, "0000101"),
        (7, 1, 0, "0000000"),
    ],
)
def test_expert_layers(first, period, offset, expected):
    model = changed(
        EXPERTS, first_dense_layers=first, moe_layer_period=period, moe_layer_offset=offset
    )
    mask = moe_layers(model)
    assert "".join("01"[flag] for flag in mask) == expected
    assert [is_moe_layer(model, layer) for layer in range(7)] == list(mask)
    assert model.num_moe_layers == expected.count("1")


def test_value_width_differs_only_with_latent_attention():
    assert SMALL.value_dim == 8
    assert not SMALL.is_mla
    deepseek = find_model("deepseek-v3")
    assert deepseek.is_mla
    assert (deepseek.head_dim, deepseek.value_dim) == (192, 128)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"heads": 0}, {"heads"}),
        ({"hidden": -3, "vocab": 0}, {"hidden", "vocab"}),
        ({"kv_heads": 3}, {"kv_heads"}),
        ({"output_groups": 3}, {"output_groups"}),
        ({"output_groups": -8}, {"output_groups"}),
        ({"num_layers": 10**9}, {"num_layers"}),
        ({"vocab": 2**40}, {"vocab"}),
        ({"ffn": 0}, {"ffn"}),
        ({"experts": 4, "top_k": 5, "moe_ffn": 0}, {"top_k", "moe_ffn"}),
        ({"experts": 4, "top_k": 1, "moe_ffn": 8, "moe_layer_offset": 1}, {"moe_layer_offset"}),
        ({"kv_lora_rank": 4}, {"qk_nope_dim", "qk_rope_dim", "v_head_dim", "head_dim"}),
    ],
)
def test_unsound_shape_names_every_field(fields, named):
    assert {field for field, _ in shape_problems(changed(SMALL, **fields))} == named


def test_sound_shapes_have_no_problem():
    assert shape_problems(SMALL) == []
    assert shape_problems(changed(EXPERTS, ffn=0)) == []
    assert [name for name in model_names() if shape_problems(find_model(name))] == []
