"""Caches apart from the user's, overlays as text, and an installation as a wheel makes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from compatgate import resources
from compatgate.catalog import sources
from compatgate.catalog.library import compile_all


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has what earlier tests compiled."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(autouse=True)
def _own_caches(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(compiled))
    monkeypatch.delenv("COMPATGATE_FACTS", raising=False)


@pytest.fixture
def cache(_own_caches: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory where compiled tables are kept, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compatgate" / "facts"


@pytest.fixture
def overlay(tmp_path: Path) -> Callable[..., str]:
    """Write an overlay file; gives its path."""

    def write(text: str, name: str = "ours.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel carries, built once."""
    data = tmp_path_factory.mktemp("wheel") / "_data"
    matrix = Path(resources.locate("matrix"))
    shutil.copytree(matrix / "schema", data / "matrix" / "schema")
    shutil.copytree(sources.facts_dir(), data / "matrix" / "facts")
    compile_all(str(data / "catalog"))
    return data


@pytest.fixture
def installed(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package directory as pip leaves it; the catalog reads from there."""
    package = tmp_path / "site-packages" / "compatgate"
    shutil.copytree(built, package / "_data")
    monkeypatch.delenv(sources.ROOT)  # it reads what it carries
    monkeypatch.setattr(resources, "_PACKAGE", str(package))
    return package / "_data"
