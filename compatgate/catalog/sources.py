"""Find, hash and parse the fact files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from compatgate import resources
from compatgate.core.digest import sha256
from compatgate.errors import CatalogError

SUFFIX = ".yaml"
FOLDERS = {"frameworks": "framework", "packages": "packages"}
"""Folders of fact files with a common format, mapped to its schema, adapter and kind of table."""
NOT_FACTS = frozenset({"exceptions"})
"""Files in the folder of facts that configure checks."""


ROOT = "COMPATGATE_FACTS_ROOT"
"""Variable that names a folder of facts to use instead of the shipped one. For tests, whose answers
must not change with every added release; operators use overlays."""


_ROOTED: ContextVar[str | None] = ContextVar("rooted", default=None)


def replaced() -> str | None:
    """Return the folder that replaces the shipped facts (and compiled tables), if any."""
    return _ROOTED.get() or os.environ.get(ROOT) or None


@contextmanager
def rooted(folder: str) -> Iterator[None]:
    """Use another whole folder of facts, such as that of another release, inside the block."""
    token = _ROOTED.set(folder)
    try:
        yield
    finally:
        _ROOTED.reset(token)


def facts_dir() -> str:
    """Return the directory of the shipped fact files."""
    return replaced() or os.path.join(resources.locate("matrix"), "facts")


def source_path(name: str) -> str:
    """Return the path of a shipped fact file (``nccl``, ``frameworks/torch``)."""
    return os.path.join(facts_dir(), *name.split("/")) + SUFFIX


def paths() -> dict[str, str]:
    """Return the paths of the shipped fact files by name."""
    folder = facts_dir()
    return {name: os.path.join(folder, name) + SUFFIX for name in names()}


def names() -> tuple[str, ...]:
    """Return the names of the shipped fact files: ``nccl``, ``frameworks/torch``."""
    found = [stem for stem in _stems("") if stem not in NOT_FACTS]
    for folder in FOLDERS:
        found += [f"{folder}/{stem}" for stem in _stems(folder)]
    return tuple(sorted(found))


def _stems(folder: str) -> list[str]:
    try:
        found = os.listdir(os.path.join(facts_dir(), folder))
    except FileNotFoundError:
        return []
    return [n.removesuffix(SUFFIX) for n in found if n.endswith(SUFFIX) and n[0] != "."]


def ships(name: str) -> bool:
    """Tell whether a fact file is shipped, not only in an overlay."""
    return os.path.exists(source_path(name))


def form(name: str) -> str:
    """Return the format of a fact file, which names its schema: the folder's, else its own."""
    folder, _, rest = name.rpartition("/")
    return FOLDERS[folder] if folder else rest


def title(name: str) -> str:
    """Return the short name of a fact file: ``torch`` for ``frameworks/torch``."""
    return name.rpartition("/")[2]


def read_bytes(path: str) -> bytes:
    """Return the content of a fact file.

    Raises:
        CatalogError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CatalogError(
            f"cannot read the file: {error.strerror}", field=path, value=path
        ) from error


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file's content."""
    return sha256(read_bytes(path))


@lru_cache(maxsize=1)
def _loader() -> type[Any]:
    """Return the C SafeLoader, changed to read dates as text like any version."""
    import yaml

    class Loader(yaml.CSafeLoader):
        yaml_implicit_resolvers = {
            first: [pair for pair in pairs if not pair[0].endswith(":timestamp")]
            for first, pairs in yaml.CSafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


def parse(data: bytes, path: str) -> dict[str, Any]:
    """Parse YAML into a mapping.

    Raises:
        CatalogError: not YAML, or not a mapping; names the file and the line.
    """
    import yaml

    try:
        document = yaml.load(data, _loader())  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        raise CatalogError(
            f"not YAML: {getattr(error, 'problem', None) or error}", field=where, value=path
        ) from error
    if not isinstance(document, dict):
        raise CatalogError("not a mapping", field=path, value=path, hint="see docs/facts.md")
    return document
