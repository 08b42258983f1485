"""Hostlists: each form of the grammar, each refusal, and the way there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster import hostlist
from meshwright.cluster.hostlist import Hostlists, compress_hostlist, expand_hostlist


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("login", ["login"]),
        ("a[1-3,7]", ["a1", "a2", "a3", "a7"]),
        ("r[1-2]n[01-03]", ["r1n01", "r1n02", "r1n03", "r2n01", "r2n02", "r2n03"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[099-100]", ["n099", "n100"]),
        ("sw.1.[9-10].x", ["sw.1.9.x", "sw.1.10.x"]),
        ("[1-2]-a", ["1-a", "2-a"]),
        ("a[2,1],b,c[3]", ["a2", "a1", "b", "c3"]),
        ("a[1-2],a[1-2]", ["a1", "a2", "a1", "a2"]),
        ("a[1][2]", ["a12"]),
        ("a[0-1][0-1]", ["a00", "a01", "a10", "a11"]),
    ],
)
def test_expand(text: str, hosts: list[str]) -> None:
    assert expand_hostlist(text) == hosts


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a[3-1]", "'3-1'"),
        ("a[1-3", "not closed"),
        ("a1-3]", "unbalanced"),
        ("a[1-[2]]", "unbalanced"),
        ("a[]", "empty range"),
        ("a[1,]", "empty range"),
        ("a[1-]", "'1-'"),
        ("a[-2]", "'-2'"),
        ("a[x-z]", "'x-z'"),
        ("a[1-2-3]", "'1-2-3'"),
        ("a[1-02]", "'1-02'"),
        ("a,,b", "empty name"),
        ("a,", "empty name"),
        ("a b", "blank"),
        ("a[\u0661-\u0663]", "numbers like"),
        ("x" * 256, "255"),
        ("x" * 250 + "[100000-100001]", "255"),
        ("a[1-2000001]", "2,000,000"),
        ("a[1-2000]b[1-2000]", "2,000,000"),
        ("a" + "[0-9]" * 200, "2,000,000"),
        ("a[1-999999999999999999]", "2,000,000"),
    ],
)
def test_refused(text: str, part: str) -> None:
    with pytest.raises(ValueError) as caught:
        expand_hostlist(text)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 200


def test_limit_is_on_the_sum() -> None:
    assert len(expand_hostlist("a[1-5],b[1-5]", limit=10)) == 10
    with pytest.raises(ValueError):
        expand_hostlist("a[1-5],b[1-6]", limit=10)


def test_lists_share_one_limit_and_it_is_named() -> None:
    lists = Hostlists(10)
    assert lists.expand("a[1-2]", "", "b[1-3]") == ["a1", "a2", "b1", "b2", "b3"]
    with pytest.raises(ValueError, match="than 10 names together with the hostlists before it"):
        lists.expand("c[1-2]", "d[1-4]")
    # What was refused does not count.
    assert lists.expand("c[1-5]") == [f"c{number}" for number in range(1, 6)]
    with pytest.raises(ValueError, match=r"^'e\[1-11\]' stands for more than 10 names$"):
        lists.expand("e[1-11]")


def test_a_long_list_is_counted_before_a_name_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(hostlist, "_expand_item", made.append)
    with pytest.raises(ValueError, match="2,000,000 names together"):
        Hostlists(2_000_000).expand(*["n[0-1999999]"] * 50)
    assert made == []


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([], ""),
        (["a1"], "a1"),
        (["a1", "a2", "a3", "a7"], "a[1-3,7]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n9", "n010"], "n[9,010]"),
        (["n2", "n1"], "n[2,1]"),
        (["n1", "n1"], "n[1,1]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["n1-ib", "n2-ib", "login", "n3-ib"], "n[1-2]-ib,login,n3-ib"),
    ],
)
def test_compress(hosts: list[str], text: str) -> None:
    assert compress_hostlist(hosts) == text


@pytest.mark.parametrize("host", ["", "a,b", "a[1]", "a b", "a\n"])
def test_compress_refuses(host: str) -> None:
    with pytest.raises(ValueError):
        compress_hostlist(["a1", host])


_NAMES = st.from_regex(r"[a-c.-]{0,2}[0-9]{1,3}[a.-]{0,1}|[a-z]{1,4}", fullmatch=True)


@given(st.lists(_NAMES, max_size=40))
def test_there_and_back(hosts: list[str]) -> None:
    assert expand_hostlist(compress_hostlist(hosts)) == hosts


@given(st.integers(0, 1200), st.integers(0, 200), st.integers(1, 5))
def test_runs_come_back(first: int, count: int, width: int) -> None:
    hosts = [f"n{number:0{width}d}" for number in range(first, first + count)]
    text = compress_hostlist(hosts)
    assert expand_hostlist(text) == hosts
    assert text.count("-") <= 1


@given(st.text(alphabet="ab1029-[],. ", max_size=30))
def test_any_text_gives_names_or_a_value_error(text: str) -> None:
    try:
        hosts = expand_hostlist(text, limit=1000)
    except ValueError:
        return
    assert len(hosts) <= 1000
    assert expand_hostlist(compress_hostlist(hosts)) == hosts


def test_a_hundred_thousand_hosts() -> None:
    hosts = expand_hostlist("rack[001-100]-node[0001-1000].cluster")
    text = compress_hostlist(hosts)
    assert len(hosts) == 100_000
    assert expand_hostlist(text) == hosts
