"""The picture of a timeline: valid, the same each time, true to the times; the pictures of the docs."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from meshwright.report.svg_parts import number, text_at
from meshwright.report.timeline_svg import Look, timeline_svg
from meshwright.schedules.loops import one_forward_one_backward
from meshwright.timeline.curves import bytes_curve, chunk_curve
from meshwright.timeline.memory_over_time import memory_over_time
from meshwright.timeline.program import StageTimes, program_of
from meshwright.timeline.record import timeline_of
from meshwright.timeline.simulate import simulate
from support import ROOT
from timeline.trace_samples import SCHEDULES, program_named, timeline_named, uneven

SVG = "{http://www.w3.org/2000/svg}"
sys.path.insert(0, str(ROOT / "benchmarks"))


def parsed(text):
    return ET.fromstring(text)


def boxes_of(text):
    return [one for one in parsed(text).iter(f"{SVG}rect") if one.get("class") == "mw-op"]


def texts_of(text):
    return [one.text for one in parsed(text).iter(f"{SVG}text")]


def curve_of(name="1f1b", *, in_bytes=False):
    program = program_named(name)
    memory = memory_over_time(
        program, simulate(program), np.full(program.orders.chain_length, 3e9), np.zeros(8)
    )
    return bytes_curve(memory) if in_bytes else chunk_curve(memory, "microbatches")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_gives_a_valid_picture(schedule):
    timeline = timeline_named(schedule, send_s=0.1, seed=2)
    look = Look(messages=True, curve=curve_of(schedule))
    text = timeline_svg(timeline, look)
    assert text == timeline_svg(timeline, look)
    root = parsed(text)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {number(width)} {number(height)}"
    assert len(boxes_of(text)) == len(timeline.kind)
    for one in root.iter(f"{SVG}rect"):
        if one.get("x") is not None:
            assert float(one.get("x")) >= 0
            assert float(one.get("x")) + float(one.get("width")) <= width + 0.02
            assert float(one.get("y")) + float(one.get("height")) <= height
    lines = [one for one in root.iter(f"{SVG}path") if one.get("class") == "mw-msg"]
    assert len(lines) == int(np.count_nonzero(timeline.sender >= 0)) + 1  # and the legend's
    assert "nan" not in text
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")  # loads nothing


def test_boxes_are_true_to_the_times():
    timeline = uneven()
    boxes = boxes_of(timeline_svg(timeline))
    per_s = (960 - 74 - 20) / timeline.makespan_s
    for index, one in enumerate(boxes):
        assert float(one.get("x")) == pytest.approx(74 + timeline.start_s[index] * per_s, abs=0.01)
        length_s = timeline.end_s[index] - timeline.start_s[index]
        assert float(one.get("width")) == pytest.approx(length_s * per_s, abs=0.011)
    assert len({one.get("y") for one in boxes}) == 4
    assert len({one.get("fill") for one in boxes}) == 2


def test_numbers_stand_in_the_boxes_where_they_fit():
    found = [one for one in texts_of(timeline_svg(timeline_named("1f1b"))) if one and one.isdigit()]
    assert [found.count(str(number)) for number in (3, 7, 11)] == [8, 8, 8]
    narrow = texts_of(timeline_svg(timeline_named("1f1b"), Look(width=320)))
    assert narrow.count("11") < 8


def test_a_pair_shares_the_height():
    timeline = timeline_named("dualpipe")
    boxes = boxes_of(timeline_svg(timeline))
    for at in np.flatnonzero(timeline.overlapped):
        first, second = boxes[at], boxes[at + 1]
        assert first.get("x") == second.get("x")
        assert first.get("width") == second.get("width")
        assert float(second.get("y")) == float(first.get("y")) + 13
        assert first.get("height") == "13"


def test_later_stages_and_directions_are_paler():
    for schedule, what in (("interleaved", "later stages"), ("dualpipe", "the other direction")):
        text = timeline_svg(timeline_named(schedule))
        assert any(what in str(one) for one in texts_of(text))
        forward = {
            one.get("fill") for one in boxes_of(text) if one.get("fill") in ("#8cc8f0", "#cbe6f8")
        }
        assert forward == {"#8cc8f0", "#cbe6f8"}


def test_titles_are_escaped():
    text = timeline_svg(uneven(), Look(title='<script>"&\x1b'))
    assert "<script>" not in text
    assert '<script>"& ' in texts_of(text)
    assert text_at(1, 2, "a<b&c") == '<text x="1" y="2">a&lt;b&amp;c</text>'


def test_many_operations_are_areas():
    orders = one_forward_one_backward(8, 800)
    program = program_of(orders, StageTimes.equal(8))
    text = timeline_svg(timeline_of(program, simulate(program)))
    assert boxes_of(text) == []
    areas = [one for one in parsed(text).iter(f"{SVG}path") if one.get("fill") == "#e69f00"]
    assert len(areas) == 8
    assert len(text) < 300_000
    tops = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", areas[3].get("d"))]
    assert max(tops) <= 76 + 4 * 31


def test_of_many_ranks_the_first_and_last_are_drawn():
    orders = one_forward_one_backward(300, 2)
    program = program_of(orders, StageTimes.equal(300))
    text = timeline_svg(timeline_of(program, simulate(program)))
    assert "172 ranks between are not shown" in texts_of(text)
    assert len(boxes_of(text)) == 128 * 4
    assert float(parsed(text).get("height")) < 1100


def test_curves():
    text = timeline_svg(timeline_named("1f1b"), Look(curve=curve_of()))
    assert "activations in flight (microbatches)" in texts_of(text)
    dashed = [one for one in parsed(text).iter(f"{SVG}path") if one.get("stroke-dasharray")]
    assert len(dashed) == 2 * 4
    # rank 3 holds one microbatch from 3 s to 39 s: up by a fourth of the panel, and down at the end
    steps = dashed[6].get("d")
    assert steps.count("V") == 2
    text = timeline_svg(timeline_named("1f1b"), Look(curve=curve_of(in_bytes=True)))
    assert any(str(one).endswith("GiB") for one in texts_of(text))


def test_curves_of_many_ranks_are_a_choice():
    orders = one_forward_one_backward(16, 20)
    program = program_of(orders, StageTimes.equal(16))
    times = simulate(program)
    memory = memory_over_time(program, times, np.zeros(16), np.zeros(16))
    text = timeline_svg(timeline_of(program, times), Look(curve=chunk_curve(memory)))
    named = [one for one in texts_of(text) if str(one).startswith("rank ")]
    assert named[16:] == ["rank 0", "rank 4", "rank 8", "rank 12", "rank 15"]


def test_a_timeline_of_nothing():
    program = program_of(one_forward_one_backward(2, 0), StageTimes.equal(2))
    assert boxes_of(timeline_svg(timeline_of(program, simulate(program)))) == []


def test_the_pictures_of_the_docs_are_what_the_script_makes():
    import timeline_pictures

    kept = {one.name for one in timeline_pictures.FOLDER.glob("pipeline-*.svg")}
    assert kept == set(timeline_pictures.PICTURES)
    for name, make in timeline_pictures.PICTURES.items():
        text = (timeline_pictures.FOLDER / name).read_text(encoding="utf-8")
        assert text == make(), f"{name}: python benchmarks/timeline_pictures.py --write"


def test_the_pictures_say_what_their_titles_say():
    import timeline_pictures

    about = {name: str(texts_of(make())[1]) for name, make in timeline_pictures.PICTURES.items()}
    assert about["pipeline-1f1b.svg"].startswith("modelled makespan 45.0 s;")
    assert "20.0 % is the bubble" in about["pipeline-1f1b.svg"]
    assert about["pipeline-1f1b-uneven.svg"].startswith("modelled makespan 63.6 s")
    assert about["pipeline-zb-h1.svg"].startswith("modelled makespan 39.0 s")
