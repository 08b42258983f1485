"""torch's CSV form: written as torch writes it, read back, and refused with a place."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError, UsageError
from meshwright.schedules.make import make_orders
from meshwright.schedules.orders import orders_of, rows_of
from meshwright.schedules.torch_form import csv_read as torch_csv_read
from meshwright.schedules.torch_form.actions import WORDS, Act, Actions, computations
from meshwright.schedules.torch_form.comms import lowered
from meshwright.schedules.torch_form.csv_read import (
    MAX_MICROBATCH,
    MAX_STAGE,
    parse_torch_csv,
    read_torch_csv,
)
from meshwright.schedules.torch_form.csv_write import torch_csv
from meshwright.schedules.validity import flaws_of
from schedule_samples import golden, sizes, torch_cells, torch_computes

NAMES = {
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved",
    "InterleavedZeroBubble": "interleaved-zb",
    "LoopedBFS": "looped-bfs",
    "DualPipeV": "dualpipev",
    "ZBVZeroBubble": "zb-v",
}


def read(text):
    return computations(parse_torch_csv(text, "s.csv"))


def same(one, other):
    return all(
        np.array_equal(getattr(one, key), getattr(other, key))
        for key in ("first", "stage", "microbatch", "overlapped")
    )


def problems(text):
    with pytest.raises(InputError) as caught:
        parse_torch_csv(text, "s.csv")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.golden
def test_torch_rows_are_read_and_written_again():
    compared = 0
    rows = [row for row in golden("pipeline_torch_compute.csv") if row["schedule"] in NAMES]
    for row in rows:
        p, m, v, rank = sizes(row)
        cells = torch_computes(row["ops"])
        mine = make_orders(NAMES[row["schedule"]], p, m, chunks=v, convention="torch")
        lines = torch_csv(mine).splitlines()
        assert lines[rank] == ",".join(cells), row
        again = parse_torch_csv(row["ops"].replace(".", "").replace(" ", ","), "s.csv")
        assert torch_cells(computations(again), 0) == cells
        compared += 1
    assert compared == 225


ACTION = st.tuples(
    st.sampled_from(list(Act)), st.integers(0, 40), st.integers(0, 60), st.booleans()
)


def actions_from(ranks):
    """Return actions as drawn; a pair is made where one is possible."""
    rows, first = [], [0]
    for drawn in ranks:
        for act, stage, microbatch, together in drawn:
            if together and act == Act.FORWARD:
                rows.append((act, stage, microbatch, 1))
                rows.append((Act.BACKWARD, stage + 1, microbatch, 0))
            else:
                rows.append((act, stage, microbatch if act < Act.UNSHARD else -1, 0))
        first.append(len(rows))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Actions("s.csv", np.array(first), *table[:, :3].T, table[:, 3].astype(bool))


@given(ranks=st.lists(st.lists(ACTION, min_size=1, max_size=12), min_size=1, max_size=5))
def test_what_is_written_is_read_back(ranks):
    actions = actions_from(ranks)
    if not np.any(actions.act <= Act.WEIGHT):
        return
    again = parse_torch_csv(torch_csv(actions), "s.csv")
    assert same(actions, again)
    assert np.array_equal(actions.act, again.act)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved-zb", "zb-v", "dualpipev"])
def test_a_schedule_comes_back_with_its_ranks(schedule, tmp_path):
    orders = make_orders(schedule, 3, 7 if schedule != "interleaved-zb" else 8, convention="torch",
                         **({"chunks": 2} if schedule == "interleaved-zb" else {}))  # fmt: skip
    for number, text in enumerate((torch_csv(orders), torch_csv(lowered(orders)))):
        file = tmp_path / f"{number}.csv"
        file.write_text(text)
        again = computations(read_torch_csv(file))
        assert same(orders, again)
        assert np.array_equal(orders.kind, again.kind)
        assert np.array_equal(orders.rank_of_stage, again.rank_of_stage)
        assert flaws_of(again) == []


def test_blanks_quotes_line_ends_and_empty_cells():
    orders = read('\ufeff 0F0 ,, "0F1"\t,0B0,0B1\r\n,1F0,1F1 , (1F2; 1B0)OVERLAP_F_B\r\n\r\n')
    assert torch_cells(orders, 0) == ["0F0", "0F1", "0B0", "0B1"]
    assert torch_cells(orders, 1) == ["1F0", "1F1", "(1F2;1B0)OVERLAP_F_B"]
    assert orders.ranks == 2


def test_a_rank_without_operations_keeps_its_line():
    assert read("0F0,0B0\n\n1F0,1B0\n").first.tolist() == [0, 2, 2, 4]


def test_actions_on_whole_stages_and_messages_are_not_computed():
    text = "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD"
    actions = parse_torch_csv(text, "s.csv")
    assert actions.act.tolist() == [8, 0, 4, 7, 1, 10, 9]
    assert torch_csv(actions) == text + "\n"
    assert torch_cells(computations(actions), 0) == ["0F0", "0B0"]


def test_places_of_what_cannot_be_read():
    found = problems("0F0,0X1,0B0\n2F,F2,(0F1)OVERLAP_F_B,(0F1;0F2)OVERLAP_F_B,0F0x\n")
    assert [text.split(": ")[0] for text in found] == [
        "s.csv:1:2",
        "s.csv:2:1",
        "s.csv:2:2",
        "s.csv:2:3",
        "s.csv:2:4",
        "s.csv:2:5",
    ]
    assert "'0X1' is no action of a schedule" in found[0]
    assert "2F names no microbatch" in found[1]
    assert "2F0 for the first microbatch" in found[1]
    assert "is not a forward and a backward" in found[4]
    assert '(") is not closed' in problems('0F0,"0B0')[0]
    assert "no rank computes anything" in problems("0UNSHARD,0RESHARD\n")[0]
    assert "no rank computes anything" in problems(" \n\n")[0]


def test_numbers_and_sizes_are_bounded(monkeypatch):
    assert f"stage {MAX_STAGE + 1} is over" in problems(f"{MAX_STAGE + 1}F0")[0]
    assert "is over 1,048,575" in problems(f"0F{MAX_MICROBATCH + 1}")[0]
    assert "make at least" in problems(f"0F{MAX_MICROBATCH},{MAX_STAGE}F0")[0]
    assert "is no action" in problems(f"0F{'9' * 5000}")[0]
    assert "lines (ranks)" in problems("\n" * 70_000)[0]
    monkeypatch.setattr(torch_csv_read, "MAX_CELLS", 10)
    assert "cells are over 10" in problems("," * 11)[0]


def test_files_that_are_none(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="cannot be read"):
        read_torch_csv(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read_torch_csv(tmp_path)
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"0F0\n\xff\xfe")
    with pytest.raises(InputError, match=r"b.csv:2: .*UTF-8"):
        read_torch_csv(binary)
    monkeypatch.setattr(torch_csv_read, "MAX_CSV_BYTES", 3)
    with pytest.raises(InputError, match="the file is over"):
        read_torch_csv(binary)


def test_many_problems_are_counted():
    found = problems("\n".join(["x,y"] * 500))
    assert len(found) == 201
    assert "800 further problems" in found[-1]


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_are_read_or_refused(seed):
    random_ = random.Random(seed)
    text = list(torch_csv(lowered(make_orders("dualpipev", 2, 5))))
    for _ in range(random_.randint(1, 12)):
        at = random_.randrange(len(text))
        text[at] = random_.choice('0123456789FBIW(;),"\n\r \t_ENDRV\x00\u2028é') * random_.randint(
            0, 3
        )
    refused = []
    try:
        orders = read("".join(text))
    except InputError as error:
        refused = error.problems
    else:
        assert all(flaw.message for flaw in flaws_of(orders))
    assert all(str(problem).startswith("s.csv") for problem in refused)


def test_two_pipelines_have_no_form():
    with pytest.raises(UsageError, match="dualpipe runs two pipelines"):
        torch_csv(make_orders("dualpipe", 2, 4))


def test_words_are_torchs():
    assert WORDS[:4] == ("F", "B", "I", "W")
    assert {"SEND_F", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"} <= set(WORDS)
    rows = rows_of([(Act.FORWARD, 0, 0), (Act.BACKWARD, 0, 0)])
    assert torch_csv(orders_of("x", [rows], [0])) == "0F0,0B0\n"
