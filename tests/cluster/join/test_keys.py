"""One spelling for each key; what is no key joins nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.join.keys import (
    HostNames,
    domain_key,
    guid_key,
    host_key,
    named_domain,
    pci_key,
)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("00000000:18:00.0", "0000:18:00.0"),
        ("0000:18:00.0", "0000:18:00.0"),
        ("18:00.0", "0000:18:00.0"),
        ("00000009:AB:1C.7", "0009:ab:1c.7"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0001:00:00", "0001:00:00.0"),
        ("18", None),
        ("", None),
        (None, None),
        ("mlx5_0", None),
        ("0000:18:00.0 ", "0000:18:00.0"),
        ("0000:18:00.0x", None),
    ],
)
def test_pci_addresses(text: str | None, key: str | None) -> None:
    assert pci_key(text) == key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0x506b4b0300c10e02", "506b4b0300c10e02"),
        ("506B:4b03:00c1:0e02", "506b4b0300c10e02"),
        ("b0300c10e02", "00000b0300c10e02"),
        ("0x0", None),
        ("0000000000000000", None),
        ("mlx5_0", None),
        ("lid-12", None),
        (None, None),
    ],
)
def test_guids(text: str | None, key: str | None) -> None:
    assert guid_key(text) == key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Node01.cluster.example HCA-1", "node01"),
        ("node01 mlx5_0", "node01"),
        ("10.1.2.3", "10.1.2.3"),
        ("fe80::1", "fe80::1"),
        ("10.1.2.3.example", "10"),
        ("", None),
        ("  ", None),
        (None, None),
    ],
)
def test_host_names(text: str | None, key: str | None) -> None:
    assert host_key(text) == key


@pytest.mark.parametrize(
    ("uuid", "clique", "key"),
    [
        ("3FBF-98", 2, "3fbf-98.2"),
        ("3fbf-98", "2", "3fbf-98.2"),
        ("00000000-0000", 2, None),
        ("unknown", 2, None),
        ("N/A", 2, None),
        ("", 2, None),
        (None, 2, None),
        ("3fbf", None, None),
        ("3fbf", "N/A", None),
    ],
)
def test_a_clique_alone_is_no_domain(
    uuid: str | None, clique: str | int | None, key: str | None
) -> None:
    assert domain_key(uuid, clique) == key


def test_named_domains() -> None:
    assert named_domain("3FBF-98.0") == "3fbf-98.0"
    assert named_domain("rack-7") == "rack-7"
    assert named_domain("unknown") is None
    assert named_domain(".7") is None
    assert named_domain("0000-0000.7") is None
    assert named_domain("00000000-0000") is None
    assert named_domain("unknown.7") is None
    assert named_domain(None) is None


@given(st.text(max_size=60))
def test_keys_of_any_text_are_stable(text: str) -> None:
    for key in (pci_key, guid_key, host_key):
        once = key(text)
        assert once is None or key(once) == once
    once = named_domain(text)
    assert once is None or named_domain(once) == once


@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))
def test_every_spelling_of_an_address_is_one_key(
    domain: int, bus: int, device: int, function: int
) -> None:
    rest = f"{bus:02x}:{device:02x}.{function:x}"
    keys = {pci_key(f"{domain:04x}:{rest}"), pci_key(f"{domain:08X}:{rest.upper()}")}
    assert keys == {f"{domain:04x}:{rest}"}


def test_short_names_that_stand_for_two_hosts_are_no_key() -> None:
    names = HostNames([["n1.a", "n1.b", "n2.a"], ["n1", "N2"]])
    assert names.ambiguous == ["n1"]
    assert len({names.key("n1.a"), names.key("n1.b"), names.key("n1")}) == 3
    assert names.key("n2.a") == names.key("N2") == "n2"
    assert names.spelled("n2.a") == "N2"
    assert names.spelled("n1.a") == "n1.a"
