"""Near misses."""

from __future__ import annotations

import pytest

from meshwright.documents import nearest


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("tpp", "tp"),
        ("TP", "tp"),
        ("pipline", "pp"),
        ("pipeline-parallel", None),
        ("micro-batch", "micro_batch"),
        ("elsewhere", None),
        ("xyz", None),
        ("", None),
        ("t" * 1000, None),
    ],
)
def test_nearest(word, expected):
    aliases = {"pipeline": "pp", "elsewhere": "not_allowed_here"}
    assert nearest(word, ["tp", "pp", "micro_batch"], aliases) == expected
