"""The shared modules of programs, imported as programs do; they are no part of the package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from compatgate.resources import canary_dir, package_dir

Load = Callable[[str], ModuleType]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import one of them by its name."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(canary_dir() / "lib"), *sys.path])
    monkeypatch.syspath_prepend(str(package_dir() / "diagnostics"))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if name == "loaded" or str(canary_dir()) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
