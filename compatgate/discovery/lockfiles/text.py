"""Decode text, TOML and YAML from bytes: bounded, with the file and line in every message.

`read_table_lock` reads a lock that lists its packages in tables, in TOML or JSON.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml
from msgspec import Struct

from compatgate.discovery.lockfiles.interface import ListedPackage, LockContents, LockFile
from compatgate.discovery.lockfiles.platform import Markers, Platform
from compatgate.discovery.observations import Conflict
from compatgate.errors import BadInput, InconclusiveInput, quote_error

LARGEST_FILE = 32 * 1024 * 1024
"""In bytes; the uv.lock of a monorepo with a thousand packages is about 5 MB."""
MAX_PACKAGES = 20_000
"""Packages of a lock; conda-lock lists each once for every platform."""
_MAX_LEVELS = 40
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""YAML loader with scalars as text: ``python: 3.10`` must not become 3.1."""
_TEMPLATE = re.compile(r"\{\{[^{}]{0,200}\}\}|\{%[^%]{0,200}%\}|<%[^%]{0,200}%>")
_VARIABLE = re.compile(
    r"\$\{[^}]{0,200}\}|\$\([^)]{0,200}\)|%\([^)]{0,200}\)s|@[A-Z][A-Z0-9_]{2,}@|\{\{|\{%"
)
_LONG_KEY = re.compile(r"""(?<![\w\-"'])(?:[\w\-"']+[ \t]*\.[ \t]*){60}""")
"""Dotted keys cost `tomllib` the square of their length."""
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


Table = dict[str, Any]


def decode_text(data: bytes, name: str, largest: int = LARGEST_FILE) -> str:
    """Return the text of a file; PowerShell writes ``pip freeze > FILE`` as UTF-16."""
    if len(data) > largest:
        raise BadInput(f"is larger than {largest >> 20} MiB", field=name)
    encoding = next((code for bom, code in _BOMS if data.startswith(bom)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise BadInput("is not text", field=name, hint="name a lockfile")
    if not text.strip():
        raise InconclusiveInput(
            "is empty", field=name, hint="write the lockfile again with its tool"
        )
    return text


def refuse_template(text: str, name: str) -> None:
    """Refuse a template that was not rendered."""
    if match := _TEMPLATE.search(text):
        line = text.count("\n", 0, match.start()) + 1
        shown = match[0].splitlines()[0]
        raise _template_error(shown, f"{name}:{line}")


def refuse_variable(value: str, where: str) -> str:
    """Return the value; refuse variables except in a URL's credentials."""
    if match := _VARIABLE.search(_CREDENTIALS.sub("", value)):
        raise _template_error(match[0], where)
    return value


def _template_error(shown: str, where: str) -> InconclusiveInput:
    hint = "render the template, or give the resulting lock"
    return InconclusiveInput(f"is a template: {shown!r} is not filled in", field=where, hint=hint)


def read_toml(text: str, name: str) -> dict[str, Any]:
    """Read TOML."""
    if match := _LONG_KEY.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise BadInput("has a key of too many parts", field=f"{name}:{line}")
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"\(at line (\d+), column \d+\)", quote_error(error))
        field = f"{name}:{at[1]}" if at else name
        problem = quote_error(error)[: at.start() if at else None].strip()
        raise BadInput(f"is not valid TOML: {problem[:200]}", field=field) from None
    except (RecursionError, ValueError):
        raise BadInput("is not valid TOML", field=name) from None


def read_yaml(text: str, name: str) -> Any:
    """Read one YAML document; every scalar is text."""
    try:
        depth = 0
        for event in yaml.parse(text, _Loader):
            if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                depth += 1
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                depth -= 1
            if depth > _MAX_LEVELS or isinstance(event, yaml.AliasEvent):
                what = "is nested too deeply" if depth > _MAX_LEVELS else "uses YAML aliases"
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise BadInput(what, field=f"{name}:{line}")
        return yaml.load(text, _Loader)  # noqa: S506 - a loader of plain text
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        field = f"{name}:{mark.line + 1}" if mark else name
        problem = quote_error(error.problem or error.context or "malformed")
        raise BadInput(f"is not valid YAML: {problem}", field=field) from None
    except (yaml.YAMLError, RecursionError, ValueError, UnboundLocalError):
        raise BadInput("is not valid YAML", field=name) from None


def read_tables(value: Any, where: str, name: str) -> list[dict[str, Any]]:
    """Return a list of tables."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadInput("must be a list of tables", field=f"{name}: {where}")
    if len(value) > MAX_PACKAGES:
        raise BadInput(f"has more than {MAX_PACKAGES} items", field=f"{name}: {where}")
    return value


def read_text(table: Mapping[str, Any], key: str, name: str, default: str = "") -> str:
    """Return a text of a table, without placeholders."""
    value = table.get(key, default)
    if not isinstance(value, str):
        raise BadInput("must be text", field=f"{name}: {key}", value=value)
    return refuse_variable(value, name)


def read_nested(table: Table, file: str, *path: str) -> str:
    """Return a text within tables, without placeholders; empty where it is absent."""
    for at, key in enumerate(path[:-1], 1):
        table = read_table(table.get(key), ".".join(path[:at]), file)
    return read_text(table, path[-1], file)


class TableLock(Struct, frozen=True):
    """A document of one lock, with what decides on its packages."""

    document: Table
    file: str
    markers: Markers

    @property
    def platform(self) -> Platform:
        """Return the target's platform."""
        return self.markers.platform

    def tables(self, key: str) -> list[Table]:
        """Return a list of tables of the document."""
        return read_tables(self.document.get(key), key, self.file)

    def text(self, table: Table, key: str) -> str:
        """Return a text of a table, without placeholders; empty where it is absent."""
        return read_text(table, key, self.file)


def read_table_lock(
    file: LockFile,
    platform: Platform,
    *,
    load: Callable[[LockFile, Platform], Table],
    requires: Callable[[Table, str], str],
    packages: Callable[[TableLock], Iterable[ListedPackage | None]],
    conflicts: Callable[[TableLock], tuple[Conflict, ...]] = lambda _: (),
    groups: str = "",
) -> LockContents:
    """Return the packages of a lock, by the functions in which its format differs from others.

    ``requires`` returns the constraint on Python that a document states, ``packages`` None where
    the platform leaves one out. ``groups`` is the key of the groups that are always installed.
    """
    document = load(file, platform)
    python = requires(document, file.name)
    always = list_texts(document.get(groups))
    markers = Markers(platform, file=file.name, requires_python=python, groups=always)
    lock = TableLock(document, file.name, markers)
    found = tuple(package for package in packages(lock) if package is not None)
    return LockContents(found, conflicts=markers.conflicts + conflicts(lock))


def list_texts(value: Any) -> list[str]:
    """Return the items of a list as text; none for another value."""
    return [str(item) for item in value] if isinstance(value, list) else []


def list_rows(value: Any) -> list[Table]:
    """Return the tables of a list without its other items."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def read_table(value: Any, where: str, file: str) -> Table:
    """Return an object; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput("must be an object", field=f"{file}: {where[:200]}")
    return value
