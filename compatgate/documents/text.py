"""Read YAML and JSON text into plain values with their lines, and write documents as text.

The depth of YAML is checked first. Documents are written in the style of the examples; reading
the text gives the same document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from msgspec import Struct
from yaml.events import CollectionEndEvent, CollectionStartEvent, StreamEndEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from compatgate.documents.sources import DocumentProblem, FieldPath, Problems, Source
from compatgate.errors import quote_error

_FREE_VISITS = 100_000
_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {_TAG + name for name in ("str", "timestamp", "value", "merge")}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_ESCAPES = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\.", re.ASCII)
"""A pair of surrogates in JSON, or any other escape, which must not be read as part of a pair."""
_FLOAT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


def get_at(value: Any, *path: str | int) -> Any:
    """Return what a document has at a place; None where it has no such mapping or key."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


class RawDocument:
    """One document of a file: plain data, and the line of each part."""

    def __init__(self, file: str | None, value: Any, node: Node | None = None) -> None:
        self.file = file
        self.value = value
        self._node = node

    @property
    def name(self) -> str:
        """Return kind and name, as far as they are known: ``Entry torch24-cu124``."""
        parts = (get_at(self.value, "kind"), get_at(self.value, "metadata", "name"))
        return " ".join(part for part in parts if isinstance(part, str))

    def line(self, path: FieldPath = ()) -> int | None:
        """Return the line of a place, or of its nearest existing parent; None without a file."""
        if self._node is None:
            return None
        return _walk(self._node, path)[0]

    def written(self, path: FieldPath) -> str | None:
        """Return the scalar at a place as it was written; None if there is no scalar."""
        if self._node is None:
            return None
        _, node, left = _walk(self._node, path)
        return node.value if not left and isinstance(node, ScalarNode) else None

    def problem(
        self, path: FieldPath, problem: str, *, value: object = None, hint: str = ""
    ) -> DocumentProblem:
        """Return a mistake at a place of this document."""
        return DocumentProblem(
            problem,
            path=path,
            file=self.file,
            line=self.line(path),
            document=self.name,
            value=value,
            hint=hint,
        )


def read_nodes(
    source: Source, problems: Problems, form: TextForm | None = None
) -> Iterator[RawDocument]:
    """Yield the documents of a text; a list at the top stands for its items.

    Empty text between two lines of ``---`` is no document; a ``null`` is a document with a mistake.

    Syntax errors, duplicate keys, tags, alias bombs and the lack of any document are problems.
    ``form`` of the documents is compatgate's own where it is None.
    """
    form = form or TextForm()
    reader = _Reader(source, problems, form)
    found = form.may_be_empty
    try:
        for root in _compose(convert_json(source.text), source.most_values, form.max_depth):
            roots = root.value if isinstance(root, SequenceNode) else [root]
            for node in roots:
                if node is root and node.tag == _TAG + "null" and not node.value:
                    continue
                found = True
                yield RawDocument(source.file, reader.value(node, (), 0), node)
        if not found:
            reader.report(
                None,
                "the text has no document",
                hint="for examples, run: compatgate matrix example",
            )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, (error.context, error.problem)))
        line = mark.line + 1 if mark else None
        reader.report(
            line,
            f"not valid YAML: {quote_error(what)}",
            hint=_explain_syntax_error(source.text, error),
        )
    except yaml.reader.ReaderError as error:
        found = error.character
        character = chr(found) if isinstance(found, int) else str(found)
        at = source.text.find(character)
        line = source.text.count("\n", 0, at) + 1 if at >= 0 else None
        code = f"U+{ord(character[0]):04X}"
        reader.report(line, f"not valid YAML: the character {code} is not allowed")
    except yaml.YAMLError as error:
        reader.report(None, f"not valid YAML: {quote_error(error)}")
    except TextTooComplexError as error:
        reader.report(error.line, error.problem)
    except TooManyMistakesError:
        return


def _explain_syntax_error(text: str, error: yaml.MarkedYAMLError) -> str:
    lines, mark = text.splitlines(), error.problem_mark
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "the line begins with a tab; indent YAML with spaces"
    if "mapping values are not allowed" in (error.problem or ""):
        return "quote text with a colon, or indent the line less"
    if "did not find expected" in (error.problem or ""):
        return "indent the line like the lines around it, and close every bracket"
    return ""


def convert_json(text: str) -> str:
    """Convert JSON that YAML 1.1 does not accept: with tabs, or characters as two escapes."""
    if text.lstrip()[:1] not in ("{", "[") or not ("\t" in text or "\\u" in text):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    pair = len(r"\ud83d\ude00")
    return _ESCAPES.sub(
        lambda match: json.loads(f'"{match[0]}"') if len(match[0]) == pair else match[0],
        text.replace("\t", " "),
    )


class _Reader:
    """Turns nodes into values; the length of the text limits the work."""

    def __init__(self, source: Source, problems: Problems, form: TextForm) -> None:
        self._form = form
        self._file = source.file
        self._problems = problems
        self._visits_left = _FREE_VISITS + len(source.text)

    def report(self, line: int | None, problem: str, path: FieldPath = (), hint: str = "") -> None:
        self._problems.add(
            DocumentProblem(problem, path=path, file=self._file, line=line, hint=hint)
        )

    def value(self, node: Node, path: FieldPath, depth: int) -> Any:
        self._visits_left -= 1
        if self._problems.enough:
            raise TooManyMistakesError
        if self._visits_left < 0:
            raise TextTooComplexError(_line(node), "aliases expand to far more than the file holds")
        if depth > self._form.max_depth:
            raise TextTooComplexError(_line(node), "nested too deeply, or an alias contains itself")
        if isinstance(node, MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, SequenceNode):
            return [self.value(n, (*path, i), depth + 1) for i, n in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: FieldPath, depth: int) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                value = self.value(value_node, path, depth + 1)
                for part in reversed(value if isinstance(value, list) else [value]):
                    merged.update(part if isinstance(part, dict) else {})
                continue
            key = str(key_node.value) if isinstance(key_node, ScalarNode) else "this"
            scalar_keys = self._form.scalar_keys and isinstance(key_node, ScalarNode)
            if key_node.tag not in _TEXT_TAGS and not scalar_keys:
                hint = f'write "{key}"' if isinstance(key_node, ScalarNode) else ""
                self.report(_line(key_node), f"the key {key} must be text", (*path, key), hint)
            if key in lines:
                what = f"{key} is stated twice; first on line {lines[key]}"
                self.report(_line(key_node), what, (*path, key), "keep one of them")
                if self._problems.enough:
                    raise TooManyMistakesError
                continue
            lines[key] = _line(key_node)
            own[key] = self.value(value_node, (*path, key), depth + 1)
        return {**merged, **own} if merged else own

    def _scalar(self, node: Node, path: FieldPath) -> Any:
        text: str = node.value
        match node.tag.removeprefix(_TAG):
            case "int":
                return int(text) if _INT.fullmatch(text) else text
            case "float":
                return float(text) if _FLOAT.fullmatch(text) else text
            case "bool":
                return text.lower() in ("true", "yes", "on", "y")
            case "null":
                return None
            case _ if node.tag in _TEXT_TAGS:
                return self._text(text, node, path)
        self.report(_line(node), f"the tag {node.tag} is not supported", path, "leave it out")
        return text

    def _text(self, text: str, node: Node, path: FieldPath) -> str:
        """Report half of a surrogate pair, which cannot be stored."""
        if text.isascii():
            return text
        try:
            text.encode()
            return text
        except UnicodeEncodeError:
            self.report(_line(node), "not valid Unicode: half of a surrogate pair", path)
            return text.encode("ascii", "replace").decode()


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _walk(node: Node, path: FieldPath) -> tuple[int, Node, FieldPath]:
    """Follow a path as far as it exists; return line, node, and the rest of the path."""
    line = _line(node)
    for index, step in enumerate(path):
        pair = _find_child(node, step)
        if pair is None:
            return line, node, path[index:]
        line, node = _line(pair[0]), pair[1]
    return line, node, ()


def _find_child(node: Node, step: str | int) -> tuple[Node, Node] | None:
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item, item
    if not isinstance(node, MappingNode):
        return None
    for key, value in node.value:
        if isinstance(key, ScalarNode) and key.value == step and not key.tag.endswith(":merge"):
            return key, value
    for key, value in node.value:
        if key.tag.endswith(":merge"):
            for part in value.value if isinstance(value, SequenceNode) else [value]:
                if found := _find_child(part, step):
                    return found
    return None


MAX_DEPTH = 32


class TextForm(Struct, frozen=True):
    """Content that a text may have in addition to documents of compatgate.

    With ``scalar_keys`` keys may be numbers or truth values, which are read as text, as in JSON.
    """

    max_depth: int = MAX_DEPTH
    scalar_keys: bool = False
    may_be_empty: bool = False


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooManyMistakesError(Exception):
    """As many mistakes were found as are reported at once; the rest is not read."""


class TextTooComplexError(Exception):
    """A text that is too deep or expands too far to be read."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


def _compose(text: str, most_values: int | None, max_depth: int) -> Iterator[Node]:
    """Yield the documents of a text as nodes; an alias is the node that it names."""
    _check_depth(text, most_values, max_depth)
    loader = _Loader(text)
    try:
        while loader.check_node():
            yield loader.get_node()
    finally:
        loader.dispose()


def _check_depth(text: str, most_values: int | None, max_depth: int) -> None:
    loader = _Loader(text)
    depth = values = 0
    mark: Any
    try:
        while not isinstance(event := loader.get_event(), StreamEndEvent):
            values += 1
            if most_values is not None and values > most_values:
                mark = event.start_mark
                what = (
                    f"more than {most_values} values; import fewer documents at a time, "
                    "or raise serve --max-request-size"
                )
                raise TextTooComplexError(mark.line + 1, what)
            if isinstance(event, CollectionStartEvent):
                depth += 1
                if depth > max_depth:
                    mark = event.start_mark
                    raise TextTooComplexError(mark.line + 1, "nested too deeply")
            elif isinstance(event, CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError:
        return  # composing raises the same error
    finally:
        loader.dispose()


_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]
    """Quotes text that YAML would read as another type, and writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write no anchors: each document is complete."""
        return True


def to_yaml(bodies: Iterable[dict[str, Any]]) -> str:
    """Write documents as one YAML text, separated by ``---``."""
    return "---\n".join(
        yaml.dump(
            body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100,
            default_flow_style=False,
        )
        for body in bodies
    )  # fmt: skip


def to_json(bodies: Iterable[dict[str, Any]]) -> str:
    """Write documents as one JSON list."""
    return json.dumps(list(bodies), indent=2, ensure_ascii=False) + "\n"
