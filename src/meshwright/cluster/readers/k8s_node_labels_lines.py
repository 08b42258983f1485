"""Nodes as lines of text: a name, other columns or none, and ``label=value`` pairs.

This is what ``kubectl get nodes --show-labels`` prints; the pairs are joined by commas.
"""

from __future__ import annotations

import re

from meshwright.cluster.readers.k8s_node_labels_documents import (
    CONTROL_PLANE,
    KubernetesNode,
    Listing,
)
from meshwright.cluster.readers.k8s_node_labels_families import KNOWN_PREFIXES
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

_LINE = re.compile(
    r"^(?![#\"'{\[-])[^\s=:]++[ \t][^\n]*?(?:" + KNOWN_PREFIXES + r")[\w./-]*=", re.M
)
_NO_NODE = re.compile(r"^NAME\s.*\bLABELS\s*\Z|\bkubectl\b")
"""The header, and the command itself."""
_ANY_PAIR = re.compile(r"\S*[^\s=,]=\S*\Z")


def looks_like_lines(text: str) -> bool:
    """Tell whether some line is a node name with topology labels."""
    return _LINE.search(text) is not None


def read_lines(text: str, path: str) -> Listing:
    """Return the nodes of a text of lines; the header and comments are passed over.

    Raises ``InputError`` for a line that holds no label.
    """
    nodes = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#") or _NO_NODE.search(line):
            continue
        pairs = [word for word in words[1:] if _ANY_PAIR.match(word)]
        if not pairs and words[-1] != "<none>":
            message = f"the line of {words[0][:80]} holds no label=value"
            raise InputError(Problem(Place(path, number, 1), message, excerpt=line.strip()[:120]))
        labels = {}
        for pair in ",".join(pairs).split(","):
            label, mark, value = pair.partition("=")
            if mark and label:
                labels[label] = value
        control = any(CONTROL_PLANE.match(label) for label in labels)
        place = Place(path, number, 1, words[0])
        nodes.append(KubernetesNode(words[0], labels, place, control))
    return Listing(tuple(nodes))
