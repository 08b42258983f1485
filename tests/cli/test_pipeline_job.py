"""``meshwright pipeline JOB``: durations from FLOPs, messages from routes, and what is not given."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cli.pipeline_asking import SCHEDULES, SEVERAL, answer, ask, cells, job_file
from cli.running import finding_of, rules_of
from meshwright.chain.jobfile import load_job
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import workload_of
from meshwright.costs.stage_flops import stage_flops
from meshwright.job.flops import flops_per_token
from meshwright.memory.peak import recompute_of
from meshwright.schedules.orders import loop_ranks

H100_FLOPS_PER_S = 989.4e12
"""Dense bf16 peak of an H100 SXM (NVIDIA's data sheet: 1,979 with sparsity)."""
TOKENS = 8192


def work_of(path):
    return workload_of(outline_job(load_job(path)))


def test_durations_are_flops_over_a_share_of_the_peak(tmp_path):
    path = job_file(tmp_path)
    found = answer(path)
    flops = stage_flops(work_of(path), loop_ranks(4), recompute_of(work_of(path)))
    rate = 0.5 * H100_FLOPS_PER_S
    times = found["stage_times"]
    assert times["forward_s"] == pytest.approx((flops.forward / rate).tolist())
    assert times["input_gradient_s"] == pytest.approx((flops.input / rate).tolist())
    assert times["weight_gradient_s"] == pytest.approx((flops.weight / rate).tolist())
    assert times["recompute_s"] == pytest.approx((flops.recompute / rate).tolist())
    # all ranks of all stages together do the model's FLOPs, its recomputation with them
    model = flops_per_token(work_of(path).model, TOKENS).hardware("selective")
    assert sum(found["busy_s"]) * 8 * rate == pytest.approx(16 * TOKENS * model)
    half = answer(path, "--efficiency", 0.25)
    assert sum(half["busy_s"]) == pytest.approx(2 * sum(found["busy_s"]))
    assert finding_of(found, "assumed/stage-times")["numbers"]["efficiency"] == 0.5
    assert found["origin"]["stage_times"] == "assumed"
    assert found["unit"] == "seconds"


def test_the_last_stage_has_the_output_layer(tmp_path):
    found = answer(job_file(tmp_path))
    forward = found["stage_times"]["forward_s"]
    assert forward[0] == pytest.approx(forward[2])
    assert forward[3] > forward[0]
    assert found["layers"] == [20, 20, 20, 20]
    split = found["best_split"]
    assert sum(split["layers"]) == 80
    assert max(split["stage_s"]) < sum(found["busy_s"]) / 16  # a stage is not the whole


def test_messages_take_their_bytes_over_the_nics_rate(tmp_path):
    found = answer(job_file(tmp_path))
    # 8192 tokens × 8192 × 2 bytes over tp 8, 400 Gbit/s, two links of 1.35 us
    expected = 8192 * 8192 * 2 / 8 / 50e9 + 2 * 1.35e-6
    assert [(one["from"], one["to"]) for one in found["send_s"]] == [
        (0, 1),
        (1, 0),
        (1, 2),
        (2, 1),
        (2, 3),
        (3, 2),
    ]
    assert [one["send_s"] for one in found["send_s"]] == pytest.approx([expected] * 6)
    assert found["origin"]["send_s"] == "modelled"
    without = answer(job_file(tmp_path, layout={"sequence_parallel": False}))
    assert without["send_s"][0]["send_s"] == pytest.approx(8 * expected - 7 * 2.7e-6)


def test_interleaved_ranks_also_send_from_the_last_to_the_first(tmp_path):
    path = job_file(tmp_path, layout={"vp": 2}, training={"schedule": "interleaved"})
    found = answer(path)
    assert {(0, 3), (3, 0)} <= {(one["from"], one["to"]) for one in found["send_s"]}
    assert found["chunks"] == 2
    assert found["layers"] == [10] * 8
    assert "shared links" in [step["step"] for step in found["changes"]]
    # asked of a job without chunks, it is the same pipeline
    plain = answer(job_file(tmp_path), "--schedule", "interleaved", "-v", 2)
    assert plain["makespan_s"] == pytest.approx(found["makespan_s"])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_of_a_job(tmp_path, schedule):
    chunks = ["-v", 2] if schedule in SEVERAL else []
    found = answer(job_file(tmp_path), "--schedule", schedule, *chunks)
    usual = answer(job_file(tmp_path))
    assert sum(found["layers"]) == 80
    assert sum(found["busy_s"]) == pytest.approx(sum(usual["busy_s"]))
    kept = found["peak_activation_bytes"]
    assert min(kept) > 0
    page = ask(job_file(tmp_path), "--schedule", schedule, *chunks)
    assert page.status == 0
    assert max(map(len, page.out.replace(str(tmp_path), "").splitlines())) <= 80


def test_a_v_shape_has_the_output_layer_on_the_first_rank(tmp_path):
    found = answer(job_file(tmp_path), "--schedule", "zb-v")
    assert found["rank_of_stage"] == [0, 1, 2, 3, 3, 2, 1, 0]
    forward = found["stage_times"]["forward_s"]
    assert forward[7] > forward[0]
    assert found["busy_s"][0] == max(found["busy_s"])
    assert (0, 3) not in {(one["from"], one["to"]) for one in found["send_s"]}


def test_two_pipelines_against_each_other(tmp_path):
    found = answer(job_file(tmp_path), "--schedule", "dualpipe")
    assert found["rank_of_stage"] == [0, 1, 2, 3, 3, 2, 1, 0]
    assert len(found["stage_times"]["forward_s"]) == 4
    # ranks r and p-1-r hold the same two stages
    assert found["busy_s"][0] == pytest.approx(found["busy_s"][3])
    assert found["busy_s"][1] == pytest.approx(found["busy_s"][2])


def test_experts_multi_token_prediction_and_uneven_stages(tmp_path):
    moe = job_file(
        tmp_path,
        model="deepseek-v3",
        cluster="dgx-h100 x 8",
        layout={"tp": 1, "pp": 8, "ep": 8, "dp": 8, "stages": [8, 8, 8, 8, 8, 8, 8, 5], "sequence_parallel": None},
        batch={"seq_len": 4096},
        training={"mtp_layers": 1},
    )  # fmt: skip
    found = answer(moe)
    assert found["layers"] == [8, 8, 8, 8, 8, 8, 8, 5]
    forward = found["stage_times"]["forward_s"]
    # three dense layers, each as wide as 8 routed experts and the shared one: 18,432 = 9 × 2,048
    assert forward[0] == pytest.approx(forward[1])
    assert forward[6] == pytest.approx(forward[1])
    assert "Layers by stage: 8, 8, 8, 8, 8, 8, 8, 5." in ask(moe).out
    without = json.loads(moe.read_text())
    del without["training"]["mtp_layers"]
    moe.write_text(json.dumps(without))
    assert answer(moe)["stage_times"]["forward_s"][7] < forward[7]


def test_ends_given_and_the_rest_spread(tmp_path):
    model = {
        "name": "nine", "num_layers": 9, "hidden": 512, "ffn": 2048, "heads": 8, "kv_heads": 8,
        "head_dim": 64, "vocab": 1024,
    }  # fmt: skip
    path = job_file(
        tmp_path, model=model, cluster=None,
        layout={"tp": 1, "pp": 4, "first_stage_layers": 2, "last_stage_layers": 1, "sequence_parallel": None},
    )  # fmt: skip
    assert answer(path)["layers"] == [2, 3, 3, 1]
    assert "Layers by stage: 2, 3, 3, 1." in ask(path).out


def test_without_a_model_stages_are_equal(tmp_path):
    for micro_batch, count, share in ((1, 32, 7 / 39), (2, 16, 7 / 23), (4, 8, 7 / 15)):
        path = tmp_path / "job.yaml"
        path.write_text(
            "layout: {pp: 8, dp: 8}\n"
            f"batch: {{global_batch: 256, micro_batch: {micro_batch}}}\n"
            "training: {schedule: 1f1b}\n"
        )
        found = answer(path)
        assert found["microbatches"] == count
        assert found["bubble_fraction"] == pytest.approx(share)
        assert found["formula_bubble_fraction"] == pytest.approx(share)
        assert "assumed/equal-stages" in rules_of(found)
        assert "assumed/free-messages" not in rules_of(found)
        assert found["unit"] == "mean forwards of a stage"
        assert found["layers"] is None
        assert found["peak_activation_bytes"] is None
    page = " ".join(ask(path, "--compare").out.split())
    assert "with half the microbatches each is twice as large" in page
    assert "Times are multiples of a stage's mean forward." in page


def test_without_a_cluster_times_are_multiples(tmp_path):
    found = answer(job_file(tmp_path, cluster=None))
    assert sum(found["stage_times"]["forward_s"]) / 4 == pytest.approx(1)
    assert found["unit"] == "mean forwards of a stage"
    assert "assumed/no-gpu-rate" in rules_of(found)
    assert found["send_s"] == []
    with_rate = answer(job_file(tmp_path), "--send", 0)
    shares = [
        answer(job_file(tmp_path, cluster=None))["bubble_fraction"],
        with_rate["bubble_fraction"],
    ]
    assert shares[0] == pytest.approx(shares[1])


def test_without_a_batch(tmp_path):
    path = job_file(tmp_path, batch={"num_microbatches": None})
    ran = ask(path)
    assert ran.status == 2
    assert "number of microbatches does not follow" in ran.err
    assert answer(path, "-m", 8)["microbatches"] == 8
    found = answer(job_file(tmp_path, batch={"seq_len": None, "micro_batch": None}))
    assert "assumed/equal-stages" in rules_of(found)


def test_measured_durations_instead_of_flops(tmp_path):
    given = ("--forward", 0.01, "--backward", 0.012, "--weight", 0.008)
    found = answer(job_file(tmp_path), *given)
    assert found["busy_s"] == pytest.approx([16 * 0.03] * 4)
    assert found["origin"]["stage_times"] == "stated"
    assert found["unit"] == "seconds"
    assert "assumed/stage-times" not in rules_of(found)
    usual = answer(job_file(tmp_path))
    assert found["peak_activation_bytes"] == usual["peak_activation_bytes"]
    assert found["send_s"] == usual["send_s"]
    assert found["layers"] == [20] * 4
    # twice the stages: each has half of what one was said to take only if that was said of its cut
    looped = answer(job_file(tmp_path), *given, "--schedule", "interleaved", "-v", 2)
    assert looped["busy_s"] == pytest.approx([2 * 16 * 0.03] * 4)
    uneven = answer(job_file(tmp_path), *given, "--stage-times", "1,1,1,2")
    assert uneven["busy_s"] == pytest.approx([0.48, 0.48, 0.48, 0.96])


def test_what_does_not_go_with_a_job(tmp_path):
    path = job_file(tmp_path)
    for options, says in [
        (("-p", 4), "layout.pp"),
        (("--ranks-per-link", 2), "--ranks-per-link"),
        (("--forward", 0.1), "together"),
        (("--stage-times", "1,1,1,1"), "together"),
        (
            ("--forward", 0.1, "--backward", 0.1, "--weight", 0.1, "--efficiency", 0.4),
            "--efficiency",
        ),
        (("--efficiency", "nan"), "--efficiency nan"),
        (("--efficiency", 1.5), "--efficiency 1.5"),
        (("--efficiency", 1e-320), "a share from 1e-06 to 1"),
        (("--schedule", "zb-q"), "known"),
        (("--group", 4), "--group is for"),
        (("-m", 1 << 20, "-v", 2), "operations"),
    ]:
        ran = ask(path, *options)
        assert ran.status == 2, options
        assert says in ran.err, (options, ran.err)
    missing = ask(tmp_path / "none.yaml")
    assert missing.status == 2


def test_rules_of_the_job_and_of_the_schedule(tmp_path):
    two = job_file(
        tmp_path, cluster=None, layout={"pp": 2, "vp": 2}, training={"overlap_p2p": False, "schedule": None}
    )  # fmt: skip
    assert "pipeline/interleaved-pp2" in rules_of(answer(two, status=1))
    assert "no pipeline to simulate" in ask(two).out
    odd = job_file(tmp_path, batch={"num_microbatches": 15})
    found = answer(odd, "--schedule", "dualpipe", status=1)
    finding = finding_of(found, "pipeline/dualpipe-even")
    assert finding["remedy"] == "num_microbatches: 16"
    assert "job.json:1:" in finding["place"]
    thin = answer(
        job_file(tmp_path, layout={"stages": [40, 38, 1, 1]}), "--schedule", "zb-v", status=1
    )
    assert "rank 2 has 1" in finding_of(thin, "pipeline/schedule-chunks")["message"]


def test_frameworks_have_conventions(tmp_path):
    layout = {
        "framework": "torchtitan",
        "tp": 8,
        "pp": 4,
        "vp": 2,
        "dp": 1,
        "sequence_parallel": None,
    }
    titan = job_file(tmp_path, layout=layout, training={"schedule": "Interleaved1F1B"})
    found = answer(titan, "-m", 6)
    assert found["convention"] == "torch"
    assert found["group"] == 6
    assert not found["blocking"]
    assert answer(titan, "-m", 6, "--convention", "megatron", status=1)["makespan_s"] is None


def test_which_ranks_wait_for_their_sends(tmp_path):
    def blocking(*options, **sections):
        return answer(job_file(tmp_path, **sections), *options)["blocking"]

    assert blocking()
    assert not blocking("--asynchronous")
    assert not blocking(training={"overlap_p2p": True})
    assert not blocking("--schedule", "zb-h1")
    assert blocking("--schedule", "zb-h1", "--blocking")
    assert not blocking(layout={"vp": 2}, training={"schedule": "interleaved"})
    assert blocking(layout={"vp": 2}, training={"schedule": "interleaved", "overlap_p2p": False})
    # torch's Schedule1F1B waits for its sends with the receives behind them, its other classes do not
    torch = {"framework": "torch", "sequence_parallel": None}
    assert blocking(layout=torch)
    assert not blocking(layout=torch, training={"schedule": "gpipe"})
    assert not blocking(layout=torch | {"vp": 2}, training={"schedule": "interleaved"})
    rows = answer(
        job_file(tmp_path, layout=torch | {"vp": 2}, training={"schedule": "interleaved"}),
        "--compare",
    )
    plain = next(row for row in rows["alternatives"] if row["schedule"] == "1f1b")
    assert plain["makespan_s"] == answer(job_file(tmp_path, layout=torch))["makespan_s"]


def notes(found, rule):
    return [one for one in found["findings"] if one["rule"] == rule]


def test_narrow_formats_are_narrow_in_products_with_weights_alone(tmp_path):
    wide, narrow = (
        answer(job_file(tmp_path, training={"precision": precision, "recompute": "none"}))
        for precision in ("bf16", "fp8")
    )
    flops = stage_flops(work_of(job_file(tmp_path)), loop_ranks(4), "none")
    rates = 0.5 * np.array([989.4e12, 1978.9e12])
    matmul, core = flops.weight, flops.forward - flops.weight  # the output layer's are in both
    assert wide["stage_times"]["forward_s"][0] == pytest.approx((matmul + core)[0] / rates[0])
    assert narrow["stage_times"]["forward_s"][0] == pytest.approx(
        matmul[0] / rates[1] + core[0] / rates[0], rel=1e-3
    )
    last = narrow["stage_times"]["weight_gradient_s"]
    output = wide["stage_times"]["weight_gradient_s"]
    # the output layer takes the same in both
    assert last[3] - last[0] == pytest.approx(output[3] - output[0], rel=1e-3)
    assert "attention's core" in notes(narrow, "assumed/stage-times")[0]["message"]
    assert "attention's core" not in notes(wide, "assumed/stage-times")[0]["message"]


def test_what_communicates_inside_a_stage_is_named(tmp_path):
    (told,) = notes(answer(job_file(tmp_path)), "assumed/stage-times")
    assert told["numbers"]["inside"] == ["tp 8"]
    assert "(tp 8) is not in it" in told["message"]
    alone = job_file(tmp_path, layout={"tp": 1, "dp": 1, "sequence_parallel": None})
    assert notes(answer(alone), "assumed/stage-times")[0]["numbers"]["inside"] == []


def test_a_gpu_whose_peak_is_not_known_is_named(tmp_path):
    layout = {"tp": 1, "pp": 8, "dp": 2, "sequence_parallel": None}
    found = answer(job_file(tmp_path, cluster="rtx-pro-6000-8 x 2", layout=layout))
    assert "RTX PRO 6000" in notes(found, "assumed/no-gpu-rate")[0]["message"]
    nobody = answer(job_file(tmp_path, cluster=None))
    assert "no GPU is named" in notes(nobody, "assumed/no-gpu-rate")[0]["message"]


@pytest.mark.parametrize(
    ("framework", "schedule", "runs"),
    [
        ("megatron", "dualpipe", False),
        ("megatron", "1f1b", True),
        ("torch", "zb-v", True),
        ("torch", "chimera", False),
        ("deepspeed", "1f1b", True),
        ("deepspeed", "gpipe", False),
        ("nanotron", "gpipe", True),
    ],
)
def test_schedules_that_the_framework_does_not_run(tmp_path, framework, schedule, runs):
    layout = {"framework": framework, "sequence_parallel": None}
    path = job_file(tmp_path, layout=layout, training={"schedule": schedule})
    found = answer(path)
    assert len(notes(found, "pipeline/schedule-of-framework")) == (not runs)
    rows = answer(path, "--compare")["alternatives"]
    assert rows[0]["framework_runs"] is runs
    asked = answer(job_file(tmp_path, layout=layout), "--schedule", schedule)
    assert len(notes(asked, "pipeline/schedule-of-framework")) == (not runs)


def test_whose_order_is_said_for_each_framework(tmp_path):
    for framework, words in (
        ("megatron", "Megatron-Core 0.10"),
        ("torch", "rules: torch."),
        ("deepspeed", "DeepSpeed's TrainSchedule"),
        ("nanotron", "nanotron's engines"),
    ):
        layout = {"framework": framework, "sequence_parallel": None}
        page = " ".join(ask(job_file(tmp_path, layout=layout)).out.split())
        assert words in page, framework
    plain = " ".join(ask("-p", 4, "-m", 8).out.split())
    assert "Order and rules: Megatron-Core 0.10 and later." in plain
    maxtext = job_file(
        tmp_path,
        model="llama3-8b",
        layout={"framework": "maxtext", "tp": None, "pp": None, "sequence_parallel": None, "ici": {"tensor": 8}, "dcn": {"stage": 4}},
    )  # fmt: skip
    page = " ".join(ask(maxtext).out.split())
    assert "That is not modelled" in page
    assert "Megatron" not in page


def test_other_microbatches_are_another_batch(tmp_path):
    found = answer(job_file(tmp_path), "-m", 32)
    (told,) = notes(found, "pipeline/other-batch")
    assert "2 × the job's batch" in told["message"]
    assert not notes(answer(job_file(tmp_path), "-m", 16), "pipeline/other-batch")
    assert not notes(answer(job_file(tmp_path)), "pipeline/other-batch")


def test_the_best_split_does_not_depend_on_the_cluster(tmp_path):
    splits = [
        answer(job_file(tmp_path, cluster=cluster), *more)["best_split"]["layers"]
        for cluster in ("dgx-h100 x 4", "dgx-a100 x 4", "dgx-b200 x 4", None)
        for more in ((), *([("--efficiency", 0.37)] if cluster else []))
    ]
    assert splits == [splits[0]] * len(splits)


def test_chunks_that_the_job_gives_one_by_one(tmp_path):
    stages = [10, 11, 10, 10, 10, 10, 10, 9]
    path = job_file(
        tmp_path, layout={"vp": 2, "stages": stages}, training={"schedule": "interleaved"}
    )
    assert answer(path)["layers"] == stages


def test_torchtitans_own_split(tmp_path):
    layout = {"framework": "torchtitan", "sequence_parallel": None}
    assert answer(job_file(tmp_path, layout=layout))["layers"] == [20, 21, 20, 19]


def test_activations_in_the_table_are_those_of_the_document(tmp_path):
    path = job_file(tmp_path)
    found, page = answer(path), ask(path).out
    for row, size in zip(
        cells(page, "rank  busy")[1:], found["peak_activation_bytes"], strict=True
    ):
        assert float(row[-1].split()[0]) == pytest.approx(size / 2**30, abs=0.0051)
