"""Rows of the word embedding and the output layer, as the framework makes them."""

from __future__ import annotations

PADDED_TO = {"megatron": 128, "nanotron": 1}
"""Frameworks that pad, and the default multiple (times tp).

Megatron ``--make-vocab-size-divisible-by`` 128 (``megatron/training/vocab_utils.py``); nanotron
``make_vocab_size_divisible_by`` 1 (``config/config.py ModelArgs``).
"""


def row_multiple(framework: str, given: int | None = None) -> int | None:
    """Return the multiple (before tp) that rows are padded to; ``None`` where nothing is padded.

    ``given``: ``layout.vocab_divisible_by``.
    """
    return given if given is not None else PADDED_TO.get(framework)


def padded_rows(vocab: int, tp: int, framework: str, given: int | None = None) -> int:
    """Return the rows all tp ranks hold together. ``tp``: at least 1."""
    multiple = row_multiple(framework, given)
    if multiple is None:
        return vocab
    return -(-vocab // (multiple * tp)) * multiple * tp
