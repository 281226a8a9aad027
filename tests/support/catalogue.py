"""Which facts a test reads: the pinned catalogue, or what is shipped where that is the subject.

The pinned catalogue (``tests/fixtures/catalogue``) is a part of the facts as they once were, in
their formats: a release or a GPU that is added to ``matrix/facts`` changes no answer there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compatgate.catalog import sources
from compatgate.catalog.compiled import cache_directory
from compatgate.catalog.sources import ROOT

TESTS = Path(__file__).parents[1]
PINNED = TESTS / "fixtures" / "catalogue"
SHIPPED = TESTS.parent / "matrix" / "facts"
ABOUT_SHIPPING = (
    "conformance",  # the facts themselves
    "e2e",  # the program as it is shipped
)
"""Files and folders below ``tests`` that read what is shipped."""
COMPILED = Path(cache_directory())
"""Compiled facts, which all processes share: a gate takes seconds to compile its own."""


def own_cache(folder: Path) -> str:
    """Return a folder for ``XDG_CACHE_HOME`` that holds compiled facts and nothing else."""
    facts = folder / "compatgate" / COMPILED.name
    if not facts.is_symlink():
        COMPILED.mkdir(parents=True, exist_ok=True)
        facts.parent.mkdir(parents=True, exist_ok=True)
        facts.symlink_to(COMPILED)
    return str(folder)


@cache
def reads_shipped(path: Path) -> bool:
    """Say whether the tests of a file are about the facts that are shipped."""
    below = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
    return any(below == one or below.startswith(f"{one}/") for one in ABOUT_SHIPPING)


def _choose(path: Path) -> None:
    """Name the facts for this process and for the programs that it starts."""
    if reads_shipped(path):
        os.environ.pop(ROOT, None)
    else:
        os.environ[ROOT] = str(PINNED)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Choose for modules that read facts when they are imported."""
    _choose(collector.path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose before any fixture is made."""
    _choose(item.path)


_SAID: dict[tuple[str, bytes, bool], list[tuple[str, Any, str]]] = {}


@pytest.fixture(scope="module")
def schemas_asked_once() -> Iterator[None]:
    """Ask a schema about a document once in a process: most documents are the same in all tests."""
    asked = sources.schema_errors

    def errors(source: str, document: Any, *, partial: bool = False) -> list[tuple[str, Any, str]]:
        key = f"{sources.facts_dir()} {source}", msgspec.msgpack.encode(document), partial
        if key not in _SAID:
            _SAID[key] = list(asked(source, document, partial=partial))
        return _SAID[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "schema_errors", errors)
        yield


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse shipped facts to tests that read the pinned catalogue."""
    if event != "open" or ROOT not in os.environ:
        return
    path = os.fspath(arguments[0]) if isinstance(arguments[0], str | os.PathLike) else ""
    if str(path).startswith(f"{SHIPPED}{os.sep}"):
        raise AssertionError(
            f"{path} is shipped: read tests/fixtures/catalogue, or list the test in "
            "ABOUT_SHIPPING of tests/support/catalogue.py"
        )


sys.addaudithook(_refuse)
