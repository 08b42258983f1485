"""YAML to nodes: YAML 1.2 core schema, no tags, no merge keys, bounded aliases.

The nodes are made from the parser's events, so nothing is ever constructed by a tag and nothing
recurses over the document.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

import msgspec
import yaml

from meshwright.documents.core_schema import resolve
from meshwright.documents.limits import MAX_ALIASED_NODES, MAX_DEPTH, MAX_NODES
from meshwright.documents.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from meshwright.documents.source import YAML_NEWLINE, At, ProblemList, Source, shown
from meshwright.errors import InputError, Problem

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG_DIRECTIVE = re.compile(r"(?:\A|[\n\r\x85\u2028\u2029])%TAG\b")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_REMEDIES = {
    "mapping values are not allowed": "put a value that holds ': ' in quotes, or check the indent",
    "a tab": "indent with spaces, not tabs",
    "'\\t'": "indent with spaces, not tabs",
    "cannot start any token": "indent with spaces, not tabs; put a value starting with @, ` or % "
    "in quotes",
    "expected node content": "check that quotes and brackets are closed",
    "did not find expected key": "check the indent, and that quotes and brackets are closed",
    "found undefined alias": "write the anchor (&name) above its alias (*name)",
}


def yaml_root(source: Source, problems: ProblemList, loader: Any = _LOADER) -> Node:
    """Return the root node of a YAML text.

    Recoverable problems (tags, merge keys, keys that are no text or stand twice) go to
    ``problems``. Raises ``InputError`` for all others: syntax, several documents, no value,
    nesting deeper than ``MAX_DEPTH``, too many values.
    """
    match = _TAG_DIRECTIVE.search(source.text)
    if match is not None:
        # Refused before parsing: libyaml takes quadratic time over many %TAG lines.
        line = 1 + sum(1 for _ in YAML_NEWLINE.finditer(source.text, 0, match.end()))
        raise InputError(source.problem((line, 1), "%TAG is not allowed: no tags are"))
    builder = _Builder(source, problems)
    try:
        for event in yaml.parse(source.text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise InputError(_syntax_problem(source, error)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        at = builder.at
        raise InputError(source.problem(at, f"not valid YAML: {shown(str(error))}")) from None
    root = builder.root
    if root is None or (isinstance(root, ScalarNode) and root.value is None and not root.text):
        raise InputError(source.problem((1, 1), "the document holds no value"))
    return root


def _syntax_problem(source: Source, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    at = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    text = str(error.problem or error.context or "cannot be parsed")
    if "maximum nesting depth" in text:
        # libyaml looks ahead of its events, and has a limit of its own.
        return source.problem(at, f"nested deeper than {MAX_DEPTH} levels")
    remedy = next((remedy for key, remedy in _REMEDIES.items() if key in text), None)
    start = error.context_mark
    if error.problem and error.context and start is not None:
        text += f" ({error.context} from line {start.line + 1}, column {start.column + 1})"
    return source.problem(at, f"not valid YAML: {text}", remedy=remedy)


class _Built(msgspec.Struct, frozen=True, eq=False):
    """A finished node with its size and depth when every alias in it is expanded."""

    node: Node
    size: int = 1
    height: int = 0


class _Frame:
    """A container that is still open."""

    __slots__ = ("anchor", "at", "awaits_key", "entries", "height", "items", "key", "size")

    def __init__(self, at: At, anchor: str | None, *, mapping: bool) -> None:
        self.at = at
        self.anchor = anchor
        self.entries: dict[str, Entry] | None = {} if mapping else None
        self.items: list[Node] = []
        self.awaits_key = mapping
        self.key: tuple[str, At] | None = None  # None: the value of a refused key is dropped
        self.size = self.height = 1


class _Builder:
    """Makes nodes from events, with its own stack."""

    def __init__(self, source: Source, problems: ProblemList) -> None:
        self.root: Node | None = None
        self.at: At = (1, 1)
        self._source = source
        self._problems = problems
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Built | None] = {}
        self._documents = self._count = self._aliased = 0

    def take(self, event: yaml.Event) -> None:
        """Take the next event."""
        mark = event.start_mark
        if mark is not None:
            self.at = (mark.line + 1, mark.column + 1)
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._fail("a second document starts here", "keep one document a file")

    def _fail(self, message: str, remedy: str | None = None) -> NoReturn:
        raise InputError(self._source.problem(self.at, message, remedy=remedy))

    def _report(self, at: At, message: str, remedy: str) -> None:
        self._problems.add(self._source.problem(at, message, remedy=remedy))

    def _begin(self, event: Any) -> None:
        """Count a node and refuse its tag."""
        self._count += 1
        if self._count > MAX_NODES:
            self._fail(f"the document holds more than {MAX_NODES:,} values")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._report(
                self.at,
                f"tag {shown(tag)} is not allowed: values are text, numbers, true, false and null",
                "remove the tag; text that looks like a number goes in quotes",
            )
        if event.anchor is not None:
            self._anchors[event.anchor] = None

    def _scalar(self, event: Any) -> None:
        self._begin(event)
        text = event.value
        if event.style and _SURROGATE.search(text):
            self._fail("half a surrogate pair is no character")
        value = text if event.style or event.tag is not None else resolve(text)
        built = _Built(ScalarNode(self._source, *self.at, value, text))
        if event.anchor is not None:
            self._anchors[event.anchor] = built
        if not event.style and text == "<<" and self._stack and self._stack[-1].awaits_key:
            self._refuse_key("merge keys (<<) are not allowed", "write the keys out")
        else:
            self._put(built)

    def _alias(self, name: str | None) -> None:
        if name is None or name not in self._anchors:
            self._fail(f"alias *{name} has no anchor above it", _REMEDIES["found undefined alias"])
        built = self._anchors[name]
        if built is None:
            self._fail(f"alias *{name} stands inside what it stands for")
        if len(self._stack) + built.height > MAX_DEPTH:
            self._fail(f"alias *{name} nests deeper than {MAX_DEPTH} levels")
        self._aliased += built.size
        if self._aliased > MAX_ALIASED_NODES:
            self._fail(f"aliases stand for more than {MAX_ALIASED_NODES:,} values")
        if self._stack and self._stack[-1].awaits_key:
            self._refuse_key("an alias cannot be a key", "write the key out")
            return
        line, column = self.at
        node = msgspec.structs.replace(built.node, line=line, column=column)
        self._put(_Built(node, built.size, built.height))

    def _open(self, event: Any) -> None:
        self._begin(event)
        if len(self._stack) >= MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH} levels")
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._stack.append(_Frame(self.at, event.anchor, mapping=mapping))

    def _close(self) -> None:
        frame = self._stack.pop()
        node: Node
        if frame.entries is not None:
            node = MappingNode(self._source, *frame.at, frame.entries)
        else:
            node = SequenceNode(self._source, *frame.at, tuple(frame.items))
        built = _Built(node, frame.size, frame.height)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = built
        self._put(built)

    def _put(self, built: _Built) -> None:
        """Give a finished node to the container that is open."""
        if not self._stack:
            self.root = built.node
            return
        frame = self._stack[-1]
        frame.size += built.size
        frame.height = max(frame.height, built.height + 1)
        if frame.entries is None:
            frame.items.append(built.node)
        elif frame.awaits_key:
            self._take_key(frame, built.node)
        else:
            frame.awaits_key = True
            if frame.key is not None:
                key, at = frame.key
                frame.entries[key] = Entry(*at, built.node)

    def _take_key(self, frame: _Frame, node: Node) -> None:
        entries = frame.entries or {}
        if not isinstance(node, ScalarNode):
            self._refuse_key("a mapping or list cannot be a key", "write the key as text", node.at)
        elif isinstance(node.value, bool | float) or node.value is None:
            remedy = f'write it in quotes: "{node.text}"' if node.text else "write a key"
            self._refuse_key(f"key {shown(node.text)} is no text", remedy, node.at)
        elif node.text in entries:
            line, column = entries[node.text].at
            twice = f"key {shown(node.text)} stands twice, first at line {line}, column {column}"
            self._refuse_key(twice, "keep one of the two", node.at)
        else:
            frame.key = (node.text, node.at)
            frame.awaits_key = False

    def _refuse_key(self, message: str, remedy: str, at: At | None = None) -> None:
        """Report a key and drop the value that follows it."""
        self._report(at or self.at, message, remedy)
        self._stack[-1].key = None
        self._stack[-1].awaits_key = False
