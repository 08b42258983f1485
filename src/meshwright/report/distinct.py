"""Distinct rows of a table given by columns, exactly and fast where most columns are constant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


def distinct_rows(columns: Sequence[NDArray[np.generic]]) -> tuple[Longs, Longs, Longs]:
    """Return (first row of each class, class of each row, rows in each class).

    Classes are numbered by the values of the columns. The columns have one length, at least 1.
    """
    rows = len(columns[0])
    label = np.zeros(rows, dtype=np.int64)
    for column in columns:
        if (column == column[0]).all():
            continue
        values, where = np.unique(column, return_inverse=True)
        _, label = np.unique(label * len(values) + where.ravel(), return_inverse=True)
        label = label.ravel()
    counts = np.bincount(label)
    first = np.full(len(counts), rows, dtype=np.int64)
    np.minimum.at(first, label, np.arange(rows))
    return first, label, counts
