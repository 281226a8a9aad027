"""`make newest` names the versions that differ from the lock, and the tests that fail."""

from __future__ import annotations

import sys
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

SCRIPT = Path(__file__).parents[3] / "scripts" / "newest.py"


@pytest.fixture
def newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, for the environment of this test and a folder with a list of its own."""
    spec = spec_from_file_location("newest", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "BIN", Path(sys.prefix) / "bin")
    monkeypatch.setattr(module, "REPORT", tmp_path / "build" / "newest.xml")
    return module


def test_a_version_that_differs_from_the_lock_is_named(newest: Any, tmp_path: Path) -> None:
    list_of_lock = f"msgspec==0.1 \\\n    --hash=sha256:0\nflask=={version('flask')} \\\n"
    (tmp_path / "requirements-dev.txt").write_text(list_of_lock)
    lines = newest.compare(find_uv_bin())
    assert f"  msgspec 0.1 -> {version('msgspec')}" in lines
    assert f"  pytest (not in the lock) -> {version('pytest')}" in lines
    assert not any(line.startswith("  flask ") for line in lines)


def test_each_test_that_fails_is_named(newest: Any, tmp_path: Path) -> None:
    (tmp_path / "test_odd.py").write_text("def test_good(): pass\ndef test_bad(): assert 0\n")
    assert newest.run_tests([str(tmp_path / "test_odd.py")]) == ["test_odd::test_bad"]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("make[1]: *** [Makefile:41: types] Error 1", ["types"]),
        ("make: *** [Makefile:21: check] Error 2", ["check"]),
        ("make[1]: Target 'style' not remade because of errors.", []),
    ],
)
def test_a_step_of_make_that_fails_is_found(newest: Any, line: str, step: list[str]) -> None:
    assert newest.STEP.findall(line) == step
