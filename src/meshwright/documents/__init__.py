"""YAML, JSON and TOML to typed frozen structs: a place for every value, all problems at once.

This room knows no domain. ``read_document`` makes a tree of nodes from a file, ``decode`` makes a
struct from a tree or a part of it, and ``dump_yaml`` writes plain values back.
"""

from meshwright.documents.constraints import AsWritten, Check, Convert, Maximum, Minimum
from meshwright.documents.decode import decode
from meshwright.documents.decoded import Decoded
from meshwright.documents.dump import dump_yaml
from meshwright.documents.nearest import nearest
from meshwright.documents.nodes import (
    Document,
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
)
from meshwright.documents.read import parse_document, read_document

__all__ = [
    "AsWritten",
    "Check",
    "Convert",
    "Decoded",
    "Document",
    "Entry",
    "MappingNode",
    "Maximum",
    "Minimum",
    "Node",
    "ScalarNode",
    "SequenceNode",
    "decode",
    "dump_yaml",
    "nearest",
    "parse_document",
    "read_document",
]
