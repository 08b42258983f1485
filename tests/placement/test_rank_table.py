"""Rank tables: forms that are read, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.findings import Place
from meshwright.placement.rank_table import RankTable, read_rank_table, table_of_rows


def _read(folder: Path, text: str | bytes) -> RankTable:
    path = folder / "ranks.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_rank_table(path)


FORMS = {
    "rank host gpu": "0 a 1\n1 b 0\n",
    "out of order": "1 b 0\n0 a 1\n",
    "host gpu": "a 1\nb 0\n",
    "commas": "rank,host,gpu\n0,a,1\n1,b,0\n",
    "colons": "a:1\nb:0\n",
    "header": "Rank  Host  GPU\n0  a  1\n1  b  0\n",
    "comments and blanks": "# ranks\n\n0 a 1  # first\n   \n1\tb\t0\n",
    "byte order mark": "\ufeff0 a 1\n1 b 0\n",
    "windows": "0 a 1\r\n1 b 0\r\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(tmp_path: Path, form: str) -> None:
    assert _read(tmp_path, FORMS[form]) == RankTable(("a", "b"), (1, 0))


BAD = {
    "three words": ("0 a 1\n1 b\n2 c d e\n", 3),
    "no number": ("0 a 1\n1 b x\n", 2),
    "negative": ("0 a 1\n1 b -1\n", 2),
    "no ascii digit": ("0 a 1\n1 b ²\n", 2),
    "arabic digits": ("0 a 1\n١ b 0\n", 2),
    "huge": (f"0 a 1\n1 b {'9' * 30}\n", 2),
    "very huge": (f"0 a 1\n1 b {'9' * 9999}\n", 2),
    "twice": ("0 a 1\n0 b 0\n", 2),
    "missing": ("0 a 1\n2 b 0\n", 1),
    "only comments": ("# nothing\n\n", 1),
    "empty": ("", 1),
}


@pytest.mark.parametrize("name", BAD)
def test_refused_with_the_line(tmp_path: Path, name: str) -> None:
    text, line = BAD[name]
    with pytest.raises(InputError) as caught:
        _read(tmp_path, text)
    assert line in [problem.place.line for problem in caught.value.problems]
    assert all(problem.place.file.endswith("ranks.txt") for problem in caught.value.problems)


def test_all_problems_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        _read(tmp_path, "0 a 1\nx b 1\n2 c y\n0 d 0\n")
    assert [problem.place.line for problem in caught.value.problems] == [2, 3, 4]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_rank_table(tmp_path / "absent.txt")
    with pytest.raises(InputError, match="cannot be read"):
        read_rank_table(tmp_path)
    with pytest.raises(InputError, match="is no text"):
        _read(tmp_path, b"0 a \xff\xfe\n")


def test_rows_of_a_job_file() -> None:
    place = Place("job.yaml", 7, 3)
    assert table_of_rows([(place, (1, "b", 0)), (place, (0, "a", 1))]) == RankTable(
        ("a", "b"), (1, 0)
    )
    with pytest.raises(InputError, match=r"job\.yaml:7:3: is no rank, host and GPU"):
        table_of_rows([(place, (0, "a", 1, 5))])


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("ranks")
    try:
        table = _read(folder, text.encode("utf-8", "surrogatepass"))
    except InputError:
        return
    assert len(table.hosts) == len(table.gpus) > 0
