"""From what ``kubectl`` prints, or a list of labels, to nodes and their labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from compatgate.errors import BadInput

LARGEST = 512 * 1024 * 1024
"""Bytes of the largest file that is read; 5,000 nodes with their images are 150 MB of JSON."""
LARGEST_YAML = 32 * 1024 * 1024
MOST_NODES = 100_000
_LONGEST_VALUE = 256
_HINT = "give kubectl get nodes -o json, or labels as key=value or key: value, one a line"
_PAIR = re.compile(r"(?P<key>[A-Za-z0-9][\w./-]*)\s*=\s*(?P<value>[\w.-]*)")


class Node(Struct, frozen=True):
    """A node: its name, empty where only labels were given, and its labels.

    Attributes:
        target: that its annotation ``compatgate.dev/target`` names; empty where there is none.
    """

    name: str
    labels: dict[str, str]
    target: str = ""


class _Annotations(Struct):
    target: str = field(name="compatgate.dev/target", default="")


class _Metadata(Struct):
    name: str | None = None
    labels: dict[str, str] | None = None
    annotations: _Annotations | None = None


class _Object(Struct):
    """A node or a list of nodes; everything else of them is passed over."""

    kind: str | None = None
    metadata: _Metadata | None = None
    items: list[_Object] | None = None


def read_nodes(text: str, *, origin: str = "node labels") -> tuple[Node, ...]:
    """Read nodes.

    Args:
        text: a Node, a list of nodes, in JSON or YAML (several documents too), or labels alone:
            a mapping, or ``key=value`` separated by lines or commas.
        origin: what to call the text in errors.

    Raises:
        BadInput: it is empty, damaged or something else, or names no node.
    """
    clean = text.lstrip("\ufeff").strip()
    if not clean:
        raise BadInput("is empty", field=origin, hint=_HINT)
    if clean.startswith(("{", "[")):
        nodes = _of_json(clean, origin)
    else:
        nodes = _of_pairs(clean) or tuple(_of_yaml(clean, origin))
    if not nodes:
        raise BadInput("names no node and no label", field=origin, hint=_HINT)
    if len(nodes) > MOST_NODES:
        raise BadInput(f"names more than {MOST_NODES} nodes", field=origin)
    return nodes


def _of_json(text: str, origin: str) -> tuple[Node, ...]:
    try:
        try:
            return _nodes(msgspec.json.decode(text, type=_Object), origin)
        except msgspec.ValidationError:
            return tuple(_of_document(msgspec.json.decode(text), origin))
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"is not JSON: {error}", field=origin, hint=_HINT) from None


def _nodes(found: _Object, origin: str) -> tuple[Node, ...]:
    """The nodes of a typed document.

    Raises:
        msgspec.ValidationError: it is neither a node nor a list.
    """
    if found.items is not None:
        return tuple(node for item in found.items for node in _nodes(item, origin))
    if found.kind not in (None, "Node"):
        raise BadInput(f"is a {found.kind}, not a Node", field=origin, hint=_HINT)
    if found.metadata is None:
        raise msgspec.ValidationError("no metadata")
    about = found.metadata
    target = about.annotations.target.strip() if about.annotations else ""
    return (Node(about.name or "", about.labels or {}, target),)


def _of_yaml(text: str, origin: str) -> Iterator[Node]:
    import yaml

    if len(text) > LARGEST_YAML:
        raise BadInput("is too long to be read as YAML", field=origin, hint="give JSON")
    try:
        # Every value stays the text that it is: the driver 550.10 is not the number 550.1.
        for document in yaml.load_all(text, Loader=yaml.BaseLoader):
            yield from _of_document(document, origin)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = " ".join(str(error).split())[:200]
        raise BadInput(f"is neither YAML nor labels: {where}", field=origin, hint=_HINT) from None


def _of_document(document: Any, origin: str) -> Iterator[Node]:
    if document is None or document == "":
        return
    if isinstance(document, list):
        for item in document:
            yield from _of_document(item, origin)
        return
    if not isinstance(document, Mapping):
        raise BadInput("is neither a node nor labels", field=origin, hint=_HINT)
    if "items" in document or "metadata" in document:
        try:
            yield from _nodes(msgspec.convert(document, _Object, strict=False), origin)
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadInput(f"is no node: {error}", field=origin, hint=_HINT) from None
        return
    labels = document.get("labels", document)
    if not isinstance(labels, Mapping) or not all(_is_value(v) for v in labels.values()):
        raise BadInput("is neither a node nor labels", field=origin, hint=_HINT)
    yield Node("", {str(key): _text(value) for key, value in labels.items()})


def _is_value(value: Any) -> bool:
    return isinstance(value, (str, int, bool)) and len(str(value)) <= _LONGEST_VALUE


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_pairs(text: str) -> tuple[Node, ...]:
    """``key=value`` on lines or between commas; empty where a line is something else."""
    labels: dict[str, str] = {}
    for line in text.splitlines():
        clean = line.strip().removeprefix("Labels:").strip()
        if not clean or clean.startswith("#"):
            continue
        for item in filter(None, (part.strip() for part in clean.split(","))):
            match = _PAIR.fullmatch(item)
            if match is None:
                return ()
            labels[match["key"]] = match["value"]
    return (Node("", labels),) if labels else ()
