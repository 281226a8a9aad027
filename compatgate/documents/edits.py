"""Change documents in the text of a file, and keep its comments, order and form.

A document that does not differ keeps its text byte by byte. In one that differs, only the values
that differ are written; where that would not give the wanted document, it is written anew.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeGuard

import yaml
from msgspec import Struct

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.performance import pause_garbage_collection
from compatgate.core.stack import canonical_key
from compatgate.documents.sources import Source
from compatgate.documents.specs import Document, key_of, to_sorted_body
from compatgate.documents.text import to_json, to_yaml
from compatgate.documents.validation import read_documents
from compatgate.errors import ManyProblems

Body = dict[str, Any]
_NESTED = re.compile(
    r"^( *)[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)(- )?", re.M
)
_HEAD = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*---[^\n]*\n")
"""Comments and the marker before a document."""
_WIDEST = 2**16


class FileEdit(Struct, frozen=True):
    """The new text of a file, empty if no document is left, with kind and name of its documents.

    The ``rewritten`` ones were written anew, without their comments.
    """

    text: str
    documents: tuple[tuple[str, str], ...] = ()
    rewritten: tuple[str, ...] = ()


def edit_file(source: Source, wanted: Mapping[tuple[str, str], Document], gpus: Gpus) -> FileEdit:
    """Return a file with the wanted documents instead of its own, which are removed."""
    known = _read(source, gpus)
    if all(wanted.get(key_of(document)) == document for document in known):
        return FileEdit(source.text, tuple(map(key_of, known)))
    parts = split_documents(source.text)
    if parts is None or len(parts) != len(known):
        left = [new for document in known if (new := wanted.get(key_of(document)))]
        bodies = [to_sorted_body(document) for document in left]
        in_json = source.text.lstrip()[:1] in ("[", "{")
        text = (to_json if in_json else to_yaml)(bodies) if bodies else ""
        keys = tuple(map(key_of, left))
        return FileEdit(text, keys, tuple(map(" ".join, keys)))
    texts, rewritten = [], []
    for part, before in zip(parts, known, strict=True):
        after = wanted.get(key_of(before))
        if after is None:
            continue
        edited = part if after == before else _edit_text(part, before, after, gpus)
        if edited is None:
            rewritten.append(" ".join(key_of(after)))
            edited = f"---\n{to_yaml([to_sorted_body(after)])}"
        texts.append(edited if edited.endswith("\n") else f"{edited}\n")
    whole = "".join(texts)
    if texts and texts[0] is not parts[0] and not parts[0].lstrip().startswith("---"):
        whole = re.sub(r"\A---[ \t]*\n", "", whole)  # the first document needs no marker
    kept = tuple(key for key in map(key_of, known) if key in wanted)
    return FileEdit(whole, kept, tuple(rewritten))


def _read(source: Source, gpus: Gpus) -> list[Document]:
    """Return the documents of a file, whatever targets they name: another file may define these."""
    return read_documents([source], gpus, _list_targets(source.text))


def _list_targets(text: str) -> set[str]:
    """Return the targets that documents name, as far as the text can be read."""
    found: set[str] = set()
    try:
        for body in yaml.load_all(text, yaml.SafeLoader):
            for one in body if isinstance(body, list) else [body]:
                spec = one.get("spec") if isinstance(one, dict) else None
                named = spec.get("targets") if isinstance(spec, dict) else None
                if isinstance(named, list):
                    found.update(name for name in named if isinstance(name, str))
    except (yaml.YAMLError, RecursionError):
        pass  # reading the documents says what is wrong
    return found


def split_documents(text: str) -> list[str] | None:
    """Return the text of each YAML document, with its marker and comments, in order.

    The parts together are the text; None if a document is a list or in braces.
    """
    starts, found = [], 0
    root = False
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            root = True
            mark = event.start_mark
            starts.append(mark.line if event.explicit and mark else 0)
        elif root and isinstance(event, yaml.NodeEvent):
            root = False
            if not isinstance(event, yaml.MappingStartEvent) or event.flow_style:
                return None
            found += 1
    lines = text.splitlines(keepends=True)
    bounds = [0, *starts[1:], len(lines)]
    parts = ["".join(lines[start:end]) for start, end in pairwise(bounds)]
    return parts if found == len(parts) else None


def _edit_text(text: str, before: Document, after: Document, gpus: Gpus) -> str | None:
    """Return the text of a document with the values that differ; None: that did not work."""
    edited = merge_into_text(text, to_sorted_body(before), to_sorted_body(after))
    if edited is None:
        return None
    try:
        (found,) = _read(Source("edited", edited), gpus)
    except (ManyProblems, ValueError):
        return None
    return edited if found == after else None


def merge_into_text(text: str, before: Body, after: Body) -> str | None:
    """Return the YAML of one document with only the values that differ written anew.

    Comments, order, quotes and indents stay. Whoever calls reads the result: YAML 1.1 and 1.2
    differ in what plain text means. None if the text cannot be edited in place.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    editor = YAML()
    editor.preserve_quotes = True
    editor.width = _WIDEST
    mapping, sequence, offset = _find_indents(text)
    editor.indent(mapping=mapping, sequence=sequence, offset=offset)
    head = _HEAD.match(text)
    start = head.end() if head else 0
    try:
        with pause_garbage_collection():
            document = editor.load(text[start:])
            _merge(document, before, after)
            stream = io.StringIO()
            editor.dump(document, stream)
    except (YAMLError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None
    return text[:start] + stream.getvalue()


def _find_indents(text: str) -> tuple[int, int, int]:
    """Return the indents that a text uses: of mappings, of sequences, and of their dashes."""
    mapping = offset = None
    for match in _NESTED.finditer(text):
        step = len(match[2]) - len(match[1])
        if match[3] and offset is None and step >= 0:
            offset = step
        elif not match[3] and mapping is None and step > 0:
            mapping = step
    return mapping or 2, (offset or 0) + 2, offset or 0


def _merge(node: Any, before: Body, after: Body) -> None:
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        aliases = (one for one in node if canonical_key(str(one)) == name)
        key = name if name in node else next(aliases, name)
        if new is None:
            node.pop(key, None)
        elif isinstance(old, dict) and isinstance(new, dict) and isinstance(node.get(key), dict):
            _merge(node[key], old, new)
        elif _is_named(old) and _is_named(new) and isinstance(node.get(key), list):
            _merge_named(node[key], old, new)
        elif (
            _is_mappings(old)
            and _is_mappings(new)
            and _is_mappings(items := node.get(key))
            and len(items) == len(old) <= len(new)  # none of the mappings was taken away
        ):
            for item, one, other in zip(items, old, new, strict=False):
                _merge(item, one, other)
            items.extend(new[len(old) :])
        else:
            node[key] = _keep_form(new, node.get(key))


def _is_named(value: Any) -> TypeGuard[list[Body]]:
    return isinstance(value, list) and all(isinstance(v, dict) and "name" in v for v in value)


def _is_mappings(value: Any) -> TypeGuard[list[Body]]:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _merge_named(node: Any, before: list[Body], after: list[Body]) -> None:
    before = _rename_items(node, before, after)
    old = {item["name"]: item for item in before}
    for index in reversed(range(len(node))):
        if node[index]["name"] not in {item["name"] for item in after}:
            del node[index]
    known = {item["name"]: item for item in node}
    for item in after:
        if item["name"] in known:
            _merge(known[item["name"]], old[item["name"]], item)
        else:
            node.append(item)
    if [item["name"] for item in node] != [item["name"] for item in after]:
        place = {item["name"]: item for item in node}
        for index, item in enumerate(after):
            node[index] = place[item["name"]]


def _rename_items(node: Any, before: list[Body], after: list[Body]) -> list[Body]:
    """Rename the items that have another name at the same place; return the items with it."""
    if not len(node) == len(before) == len(after):
        return before
    earlier, later = ({item["name"] for item in side} for side in (before, after))
    renamed = []
    for item, old, new in zip(node, before, after, strict=True):
        same = old["name"] in later or new["name"] in earlier
        if not same:
            item["name"] = new["name"]
        renamed.append(old if same else {**old, "name": new["name"]})
    return renamed


def _keep_form(value: Any, written: Any) -> Any:
    """Return a value in the form of the one that it replaces: in quotes, or in brackets."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, SingleQuotedScalarString

    made: Any = value
    if isinstance(value, str):
        if isinstance(written, DoubleQuotedScalarString | SingleQuotedScalarString):
            made = type(written)(value)
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        made = CommentedSeq(value)
        if not isinstance(written, CommentedSeq) or written.fa.flow_style():
            made.fa.set_flow_style()
    elif isinstance(value, dict) and isinstance(written, CommentedMap):
        made = CommentedMap(value)
        if written.fa.flow_style():
            made.fa.set_flow_style()
    return made
