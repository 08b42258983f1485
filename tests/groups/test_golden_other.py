"""Groups of DeepSpeed, nanotron, Megatron's main branch, FSDP1 and jax, as their own code made them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groups.building import errors_of, layout_of
from groups.test_golden_megatron import KEY_OF_ARGUMENT, RULE_OF_ERROR
from meshwright.groups.creation import groups_numbered
from meshwright.groups.table import group_kinds
from meshwright.job.layout import Layout
from support import FIXTURES, shared_path

pytestmark = pytest.mark.golden

Groups = list[list[int]]


def _shared(name: str) -> list[dict[str, Any]]:
    return list(json.loads(shared_path(f"reference/golden/{name}.json").read_text())["cases"])


def _other(part: str) -> list[dict[str, Any]]:
    return [case for case in _shared("rank_groups_other") if part in case["framework"]]


def _recorded(name: str) -> list[dict[str, Any]]:
    return list(json.loads((FIXTURES / "groups" / f"{name}.json").read_text())["cases"])


def _groups(layout: Layout) -> dict[str, Groups]:
    assert errors_of(layout) == []
    kinds = group_kinds(layout)
    assert all(kind.oracle is not None for kind in kinds if kind.name in _TESTED[layout.framework])
    return {kind.name: kind.members().tolist() for kind in kinds}


_TESTED = {
    "megatron": (),
    "torch": ("dp_shard", "dp_replicate", "tp", "pp"),
    "deepspeed": (
        *("pipe", "data", "model", "sequence", "sequence_data", "ds_model", "p2p"),
        *("expert_parallel", "expert_data_parallel", "zero_param_intra_parallel"),
    ),
    "nanotron": ("tp", "cp", "dp", "pp", "mp", "dp_cp"),
    "maxtext": (),
}


def _deepspeed(**keys: Any) -> dict[str, Groups]:
    return _groups(layout_of(framework="deepspeed", **keys))


@pytest.mark.parametrize("topology", ["PipeDataParallelTopology", "PipeModelDataParallelTopology"])
def test_deepspeed_topologies(topology):
    cases = _other(topology)
    assert (
        len(cases) == {"PipeDataParallelTopology": 2, "PipeModelDataParallelTopology": 4}[topology]
    )
    for case in cases:
        args = case["args"]
        ours = _deepspeed(pp=args["pp"], dp=args["dp"], tp=args.get("mp", 1))
        for axis, groups in case["groups"].items():
            assert ours[axis] == groups, (args, axis)


def test_deepspeed_experts_sharded_over_tp():
    cases = _other("_get_expert_parallel_ranks")
    assert len(cases) == 7
    for case in cases:
        args = case["args"]
        ours = _deepspeed(
            world_size=args["world"],
            tp=args["tp"],
            etp=args["tp"],
            ep=args["ep"],
            pp=args["pp"],
            use_data_before_expert_parallel=args["use_data_before_expert"],
        )
        assert ours["expert_parallel"] == case["groups"]["expert_parallel"], args
        assert ours["expert_data_parallel"] == case["groups"]["expert_data_parallel"], args


def test_deepspeed_experts_of_consecutive_ranks_and_with_mp_size():
    cases = _other("_create_expert_and_data_parallel")
    assert len(cases) == 8
    for case in cases:
        args = case["args"]
        size = args["mp_size"] or 1
        ours = _deepspeed(
            world_size=args["world"],
            **{"tp" if args["mp_mode"] == "tp" else "cp": size},
            **({"mp_mode": args["mp_mode"]} if size > 1 else {}),
            ep=args["ep"],
            pp=args["pp"],
            use_data_before_expert_parallel=args["use_data_before_expert"],
        )
        made, stages = case["groups_in_creation_order"], args["pp"]
        assert _in_order_of_creation(ours, stages, new_path=size > 1) == made, args


def _in_order_of_creation(ours: dict[str, Groups], stages: int, *, new_path: bool) -> Groups:
    """The old path makes all EDP groups, then all EP groups; the new one EP, EDP stage by stage."""
    ep, edp = ours["expert_parallel"], ours["expert_data_parallel"]
    if not new_path:
        return edp + ep
    made = []
    for stage in range(stages):
        for groups in (ep, edp):
            each = len(groups) // stages
            made += groups[stage * each : (stage + 1) * each]
    return made


def test_deepspeed_experts_of_other_sizes():
    for case in _recorded("deepspeed_created"):
        args = case["args"]
        if case["function"] == "_get_expert_parallel_ranks":
            ours = _deepspeed(
                world_size=args["world"],
                tp=args["tp"],
                etp=args["tp"],
                ep=args["ep"],
                pp=args["pp"],
                use_data_before_expert_parallel=args["use_data_before_expert_parallel"],
            )
            assert (ours["expert_parallel"], ours["expert_data_parallel"]) == (
                case["ep"],
                case["edp"],
            )
        elif case["function"] == "_create_expert_and_data_parallel":
            axis = "tp" if args["mp_mode"] == "tp" else "cp"
            ours = _deepspeed(
                **{axis: args["mp_size"]},
                world_size=args["world"],
                ep=args["ep"],
                pp=args["pp"],
                mp_mode=args["mp_mode"],
            )
            assert _in_order_of_creation(ours, args["pp"], new_path=True) == case["created"], args


def test_deepspeed_sequence_secondary_partition_and_pipeline_grid():
    met = set()
    for case in _recorded("deepspeed_created"):
        args, made = case["args"], case.get("created")
        if case["function"] == "initialize_sequence_parallel":
            ours = _deepspeed(world_size=args["world"], cp=args["sp"])
            # ZeRO's group is the world: the same ranks, listed along both axes
            assert ours["sequence"] + [sorted(one) for one in ours["sequence_data"]] == made
            assert ours["sequence_data"] == made[-1:]
        elif case["function"] == "_create_zero_param_parallel_group":
            keys = {"world_size": args["world"], "zero_hpz_partition_size": args["size"]}
            assert _deepspeed(sharding="zero3", **keys)["zero_param_intra_parallel"] == made
        elif case["function"] == "PipelineParallelGrid":
            ours = _deepspeed(pp=args["pp"], tp=args["mp"], dp=args["dp"])
            names = ("ds_model", "data", "pipe", "model")
            assert [group for name in names for group in ours[name]] == made, args
            assert ours["p2p"] == case["p2p"]
        met.add(case["function"])
    assert len(met) == 5


def test_nanotron():
    cases = _other("nanotron")
    assert len(cases) == 4
    for case in cases:
        args = {name: value for name, value in case["args"].items() if name != "ep"}
        ours = _groups(layout_of(framework="nanotron", **args))
        for name, groups in case["groups"].items():
            assert ours[name] == groups, (args, name)
        assert ours["tp_and_ep"] == [sorted(g) for g in ours["tp_and_ep"]]
        unverified = {
            kind.name
            for kind in group_kinds(layout_of(framework="nanotron", **args))
            if kind.oracle is None
        }
        assert unverified == {"ep", "tp_and_ep"}


def _megatron(case: dict[str, Any], **more: Any) -> Layout:
    keys = {KEY_OF_ARGUMENT.get(name, name): value for name, value in case["args"].items()}
    if "hierarchical_cp" in keys:
        keys["hierarchical_cp"] = tuple(keys["hierarchical_cp"])
    return layout_of(world_size=case["world"], framework="megatron", **keys, **more)


@pytest.mark.parametrize("given", ["main", "d98e8a64", "Megatron-LM main d98e8a64"])
def test_megatron_main_has_the_same_groups_and_three_more(given):
    cases = _shared("rank_groups_megatron_main_d98e8a64")
    accepted = [case for case in cases if "groups" in case]
    assert len(accepted) == 34
    for case in accepted:
        layout = _megatron(case, framework_version=given)
        ours = [(kind.name, kind.members().tolist()) for kind in group_kinds(layout)]
        assert errors_of(layout) == []
        assert ours == list(case["groups"].items()), case["args"]


def test_megatron_main_refuses_what_the_release_refuses():
    refused = [c for c in _shared("rank_groups_megatron_main_d98e8a64") if "groups" not in c]
    assert len(refused) == 11
    for case in refused:
        errors = errors_of(_megatron(case, framework_version="main"))
        expected = [rule for part, rule in RULE_OF_ERROR.items() if part in case["error"]]
        assert [one.rule for one in errors] == expected, (case["args"], case["error"])


def test_megatron_groups_have_the_numbers_that_torch_gives_them():
    """Twins over Gloo, hybrid and hierarchical context parallelism, optimizer instances."""
    cases = _recorded("megatron_created")
    assert len(cases) == 8
    for case in cases:
        layout = _megatron(case)
        kinds = group_kinds(layout)
        setting = "true" if case["create_gloo_process_groups"] else "false"
        for number, (name, ranks) in enumerate(case["created"], start=1):
            [found] = [
                one
                for one in groups_numbered(layout, kinds, number)
                if setting in (one.condition or "")
            ]
            assert (found.twin or found.kind.name) == name, (case["args"], number)
            assert found.kind.members()[found.index].tolist() == ranks
        beyond = groups_numbered(layout, kinds, len(case["created"]) + 1)
        assert all(setting not in (one.condition or "") for one in beyond)
        # every kind that was made is listed, and nothing else
        made = {name.replace("_GLOO", "") for name, _ in case["created"]}
        assert {kind.name for kind in kinds} == made


def test_a_mesh_in_any_order_has_the_groups_and_descriptions_of_torch():
    cases = _recorded("torch_meshes")
    assert len(cases) == 4
    for case in cases:
        sizes = dict(zip(case["names"], case["shape"], strict=True))
        keys: dict[str, Any] = {name: sizes[name] for name in ("tp", "pp", "dp") if name in sizes}
        if "dp_shard" in sizes:
            keys |= {"dp": sizes["dp_shard"] * sizes["dp_replicate"], "sharding": "hsdp"}
            keys |= {"shard_degree": sizes["dp_shard"], "order": "tp-dp"}
        else:
            keys |= {"sharding": "fsdp", "order": "-".join(reversed(case["names"]))}
        layout = layout_of(framework="torch", **keys)
        assert errors_of(layout) == []
        ours = {kind.name: kind for kind in group_kinds(layout)}
        for name, groups in case["groups"].items():
            kind = ours["dp_shard" if name == "dp" else name]
            assert kind.members().tolist() == groups, (sizes, name)
            if name != "dp":
                assert kind.also == (case["descriptions"][name],)


def test_hybrid_shard_of_fsdp1_shards_over_hosts():
    cases = _recorded("torch_hybrid_shard")
    assert len(cases) == 3
    for case in cases:
        from meshwright.job.layout import resolve_layout
        from meshwright.job.sections import LayoutSection

        section = LayoutSection(framework="torch", sharding="HYBRID_SHARD")
        layout = resolve_layout(section, case["world"], case["gpus_per_host"])
        ours = _groups(layout)
        assert ours["dp_shard"] == case["shard"]
        assert ours["dp_replicate"] == case["replicate"]
        assert case["descriptions"][:2] == ["undefined", "undefined"]


def test_the_mesh_of_maxtext_is_that_of_jax():
    cases = _recorded("jax_meshes")
    assert len(cases) == 8
    for case in cases:
        layout = layout_of(
            framework="maxtext",
            ici={"fsdp": 1} | case["ici"],
            dcn={"data": 1} | case["dcn"] if case["num_slices"] > 1 else None,
            num_slices=case["num_slices"],
            world_size=len(case["devices"]),
        )
        assert errors_of(layout) == [], case
        _same_as_mesh(layout, case["shape"], case["devices"])


def _same_as_mesh(layout: Layout, shape: list[int], devices: list[int]) -> None:
    import numpy as np

    from meshwright.job.jax_mesh import MESH_AXES

    mesh = np.array(devices).reshape(shape)
    kinds = {kind.name: kind.members().tolist() for kind in group_kinds(layout)}
    for index, axis in enumerate(MESH_AXES):
        expected = np.moveaxis(mesh, index, -1).reshape(-1, shape[index]).tolist()
        assert kinds[axis] == expected, axis
    assert layout.jax_mesh is not None
    batch = [MESH_AXES.index(a) for a in ("diloco", "data", "fsdp", "fsdp_transpose", "expert")]
    outside = [index for index in range(len(shape)) if index not in batch]
    together = mesh.transpose(outside + batch).reshape(-1, layout.dp).tolist()
    assert kinds["activation_batch"] == together
