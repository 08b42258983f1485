"""Layers of several kinds: parameters by hand, letters, what is not modelled."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.job.catalogue import find_model, model_names
from meshwright.job.layer_parts import layer_kind, parts_of
from meshwright.job.mixers import DeltaNet, Extra, Mamba, ShortConvolution, mean_keys
from meshwright.job.model import Model, mixer_of, mlp_of, moe_layers, shape_problems
from meshwright.job.parameters import (
    StageLayers,
    active_parameters,
    parameter_parts,
    parameters_per_rank,
    total_parameters,
)

SMALL = Model(
    name="small",
    num_layers=4,
    hidden=8,
    ffn=20,
    heads=4,
    kv_heads=2,
    head_dim=3,
    vocab=10,
)
MAMBA2 = Mamba(version=2, inner=16, state=5, heads=4, groups=2, conv=3)
DELTA = DeltaNet(key_heads=2, value_heads=4, key_dim=3, value_dim=5, conv=3)


def changed(model, **fields):
    return msgspec.structs.replace(model, **fields)


def mixer_size(model, layer=0):
    parts = parts_of(model, layer_kind(model, layer))
    return parts.attention_sharded + parts.attention_replicated


def test_mamba2_by_hand():
    model = changed(SMALL, mixers="MMMM", mamba=MAMBA2)
    into = 2 * 16 + 2 * 2 * 5 + 4
    expected = 8 * into + 16 * 8 + (16 + 2 * 2 * 5) * (3 + 1) + 3 * 4 + 16
    assert mixer_size(model) == expected
    bare = changed(MAMBA2, conv_bias=False, gated_norm=False)
    assert mixer_size(changed(model, mamba=bare)) == expected - 36 - 16
    biased = changed(MAMBA2, proj_bias=True)
    assert mixer_size(changed(model, mamba=biased)) == expected + into + 8


def test_mamba1_by_hand():
    space = Mamba(version=1, inner=16, state=5, dt_rank=2, conv=3)
    model = changed(SMALL, mixers="MMMM", mamba=space)
    expected = 8 * 32 + 16 * 4 + 16 * (2 + 10) + (2 + 1) * 16 + 16 * 5 + 16 + 16 * 8
    assert mixer_size(model) == expected
    normed = changed(space, inner_norms=True)
    assert mixer_size(changed(model, mamba=normed)) == expected + 2 + 10


def test_delta_rule_by_hand():
    model = changed(SMALL, mixers="GGGG", delta=DELTA)
    keys, values = 6, 20
    expected = (
        8 * (2 * keys + 2 * values + 2 * 4) + values * 8 + (2 * keys + values) * 3 + 2 * 4 + 5
    )
    assert mixer_size(model) == expected


def test_parallel_layer_holds_both():
    both = changed(SMALL, mixers="PPPP", mamba=MAMBA2)
    alone = changed(both, mixers="MMMM")
    assert mixer_size(both) == mixer_size(alone) + mixer_size(SMALL)


def test_sliding_layers_may_have_heads_of_their_own():
    model = changed(SMALL, mixers="*SSS", window=4, sliding_kv_heads=1, sliding_head_dim=6)
    assert mixer_size(model, 0) == 8 * 12 + 8 * 12 + 12 * 8
    assert mixer_size(model, 1) == 8 * 24 + 8 * 12 + 24 * 8
    assert parts_of(model, layer_kind(model, 1)).kv_heads == 1


def test_letters_say_what_a_layer_is():
    model = changed(SMALL, mixers="M.*.", mlps=".E.-", mamba=MAMBA2, experts=4, top_k=2, moe_ffn=6)
    assert shape_problems(model) == []
    assert [mixer_of(model, i) + mlp_of(model, i) for i in range(4)] == ["M.", ".E", "*.", ".-"]
    assert moe_layers(model) == (False, True, False, False)
    kinds = parameter_parts(model).kinds
    assert [(one.mixer, one.mlp, one.count) for one in kinds] == [
        ("M", ".", 1),
        (".", "E", 1),
        ("*", ".", 1),
        (".", "-", 1),
    ]
    expert = 3 * 8 * 6
    assert kinds[1].parts.total == 4 * expert + 8 * 4 + 2 * 8
    assert total_parameters(model) - active_parameters(model) == 2 * expert


def test_experts_at_a_latent_width():
    plain = changed(SMALL, experts=4, top_k=2, moe_ffn=6)
    latent = changed(plain, moe_latent=5)
    less = 4 * (4 * 3 * 6 * (8 - 5) - 2 * 8 * 5)
    assert total_parameters(plain) - total_parameters(latent) == less


def test_extras_count_where_they_are():
    layers = Extra(name="some", parameters=7, at=(1, 3))
    ends = (
        Extra(name="in", parameters=5, place="input"),
        Extra(name="out", parameters=3, place="output"),
    )
    model = changed(SMALL, extras=(layers, *ends))
    assert total_parameters(model) - total_parameters(SMALL) == 2 * 7 + 5 + 3

    def held(first, last, **ends):
        part = StageLayers(tuple(range(first, last)), **ends)
        found, plain = (
            parameters_per_rank(one, part, tp=2, ep=1, etp=1).dense for one in (model, SMALL)
        )
        return found - plain

    assert held(0, 2, has_embedding=True, has_output=False) == 7 + 5
    assert held(2, 4, has_embedding=False, has_output=True) == 7 + 3


def test_mamba_and_delta_matrices_are_over_tp_and_their_norms_are_not():
    part = StageLayers((0,), has_embedding=False, has_output=False)
    for model, whole in (
        (changed(SMALL, mixers="MMMM", mamba=MAMBA2), 0),
        (changed(SMALL, mixers="GGGG", delta=DELTA), 5),
    ):
        one, two = (parameters_per_rank(model, part, tp=tp, ep=1, etp=1).dense for tp in (1, 2))
        assert 2 * two - one == 2 * 8 + whole


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"mixers": "***"}, {"mixers"}),
        ({"mixers": "**?*"}, {"mixers"}),
        ({"mlps": "--"}, {"mlps"}),
        ({"mlps": "--E-"}, {"experts"}),
        ({"mixers": "MMMM"}, {"mamba"}),
        ({"mixers": "PPPP"}, {"mamba"}),
        ({"mixers": "GGGG"}, {"delta"}),
        ({"mixers": "CCCC"}, {"convolution"}),
        ({"mixers": "SSSS"}, {"window"}),
        ({"sliding_kv_heads": 3}, {"sliding_kv_heads"}),
        ({"mamba": changed(MAMBA2, heads=3)}, {"mamba.heads"}),
        ({"mamba": changed(MAMBA2, groups=3)}, {"mamba.groups"}),
        ({"mamba": changed(MAMBA2, inner=0)}, {"mamba.inner"}),
        ({"mamba": Mamba(version=1, inner=4, state=2)}, {"mamba.dt_rank"}),
        ({"delta": changed(DELTA, value_heads=3)}, {"delta.value_heads"}),
        ({"convolution": ShortConvolution(kernel=0)}, {"convolution.kernel"}),
        ({"extras": (Extra(name="x", parameters=-1),)}, {"extras.parameters"}),
    ],
)
def test_unsound_letters_and_records_are_named(fields, named):
    assert {field for field, _ in shape_problems(changed(SMALL, **fields))} == named


def test_a_layer_without_an_mlp_needs_no_width_of_one():
    model = changed(SMALL, ffn=0, mlps="....", mixers="MMMM", mamba=MAMBA2)
    assert shape_problems(model) == []
    assert not model.has_attention
    assert SMALL.has_attention


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, ()),
        ({"mixers": "*SS*", "window": 4}, ()),
        ({"mixers": "MM**", "mamba": MAMBA2}, ("Mamba",)),
        ({"mlps": ".---"}, ("layers of one part alone",)),
        ({"attention_gate": "full"}, ("gated attention",)),
        ({"extras": (Extra(name="norm", parameters=3),)}, ()),
        ({"extras": (Extra(name="indexer", parameters=3, multiply_adds=3),)}, ("indexer",)),
    ],
)
def test_what_is_not_modelled_is_named(fields, named):
    assert changed(SMALL, **fields).unmodelled_layers == named


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_mean_keys_never_pass_half_the_sequence_nor_the_window(seq_len, window):
    keys = mean_keys(seq_len, window)
    assert 0 < keys <= min(seq_len / 2, window)
    assert mean_keys(seq_len) == seq_len / 2
    seen = sum(min(i + 0.5, window) for i in range(min(seq_len, 2000))) / min(seq_len, 2000)
    assert mean_keys(min(seq_len, 2000), window) == pytest.approx(seen, rel=1e-3)


@pytest.mark.parametrize("name", [name for name in model_names() if find_model(name).mixers])
def test_catalogue_shapes_survive_json(name):
    model = find_model(name)
    assert msgspec.json.decode(msgspec.json.encode(model), type=Model) == model
