"""AWS ``describe-instance-topology``: the network nodes above each instance, top to bottom.

Three nodes an instance (four on p6-b200), ids per account, no rates and no host names but the
instance id. ``NextToken`` says that the list goes on.
"""

from __future__ import annotations

import re

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.document_values import (
    child,
    items,
    known_text,
    mapping,
    parse,
    text_of,
)
from meshwright.cluster.readers.host_places import RawPlace, settle
from meshwright.cluster.readers.host_places_findings import list_incomplete
from meshwright.documents import Node
from meshwright.errors import InputError

FORMAT = "aws_instance_topology"

_LOOKS = re.compile(r"(?<![\w./-])[\"']?NetworkNodes[\"']?[ \t\r\n]*:")


def looks_like(text: str) -> bool:
    """Tell by content whether the text is an answer of ``describe-instance-topology``."""
    return _LOOKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return the instances, and their network nodes as switches; ``counts["complete"]`` is 0 or 1.

    Raises ``InputError`` for a text of another form and a list without instance.
    """
    root = parse(text, path)
    listed = child(root, "Instances")
    nodes = items(root if listed is None else listed, "Instances")
    if not nodes:
        raise InputError(root.problem("the list holds no instance"))
    settled = settle([_instance(node) for node in nodes], path)
    token = child(root, "NextToken")
    more = token is not None and known_text(token, "NextToken") is not None
    incomplete = [list_incomplete(token.place("NextToken"), "NextToken")] if more and token else []
    return Facts(
        format=FORMAT,
        path=path,
        hosts=settled.hosts,
        switches=settled.switches,
        tree=settled.tree,
        places=settled.places,
        counts={"complete": int(not more)},
        findings=(*incomplete, *settled.findings),
    )


def _instance(node: Node) -> RawPlace:
    mapping(node, "an instance")
    host = text_of(child(node, "InstanceId"), "InstanceId", node)
    layers = [
        known_text(layer, "NetworkNodes")
        for layer in items(child(node, "NetworkNodes"), "NetworkNodes")
    ]
    return RawPlace(host, tuple(reversed(layers)), node.place(host), switches=True)
