"""What the soak program makes of what it watched, without a GPU and without PyTorch."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from compatgate.resources import canary_dir

MIB = 1 << 20
QUIET: dict[str, Any] = {
    "resident": [900 * MIB] * 40,
    "allocated": [500 * MIB] * 40,
    "used": [2000 * MIB] * 40,
    "fingerprints": ["a"] * 40,
    "xids": [],
    "looks": 100,
    "slowed": {},
    "hottest": 71,
}


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for folder in ("lib", "soak"):
        monkeypatch.syspath_prepend(str(canary_dir() / folder))
    yield import_module("verdicts")
    for name in ("verdicts", "canary_lines", "canary_numerics"):
        sys.modules.pop(name, None)


def _checks(
    verdicts: ModuleType,
    capsys: pytest.CaptureFixture[str],
    times: list[float] | None = None,
    errors: dict[str, int] | None = None,
    **watched: object,
) -> dict[str, tuple[bool, str]]:
    watching = SimpleNamespace(**{**QUIET, **watched}, new_errors=lambda: errors)
    verdicts.report({"gemm": times or [2.0] * 40, "convnet": [9.0] * 40}, watching)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {line["name"]: (line["ok"], line["message"]) for line in lines}


def test_a_quiet_run_passes_every_check(
    verdicts: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = _checks(verdicts, capsys, errors={"0000:9b": 0})
    assert all(ok for ok, _ in checks.values())
    assert checks["throttling"][1] == "no slowdown in 100 looks, at most 71 C"


def test_work_that_becomes_slower_is_drift(
    verdicts: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = [2.0 + 0.005 * n for n in range(40)]
    ok, message = _checks(verdicts, capsys, times=slower)["steady"]
    assert not ok
    assert message == "gemm: last quarter +7.4 % to the first, allowed 5 %"


@pytest.mark.parametrize(
    ("what", "check", "each"),
    [
        ("resident", "host-memory", 4),
        ("allocated", "device-memory", 0.1),
        ("used", "device-memory", 12),
    ],
)
def test_memory_that_grows_in_every_window_is_a_leak(
    verdicts: ModuleType, capsys: pytest.CaptureFixture[str], what: str, check: str, each: float
) -> None:
    grown = [int((1000 + each * n) * MIB) for n in range(40)]
    assert not _checks(verdicts, capsys, **{what: grown})[check][0]


def test_memory_that_is_taken_once_while_it_gets_warm_is_no_leak(
    verdicts: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = [100 * MIB] * 3 + [3000 * MIB] * 37
    checks = _checks(verdicts, capsys, resident=taken, used=taken)
    assert checks["host-memory"][0]
    assert checks["device-memory"][0]


@pytest.mark.parametrize(
    ("watched", "check", "said"),
    [
        ({"xids": [79, 13, 79]}, "xid", "Xid 13, 79"),
        ({"slowed": {"heat": 3}}, "throttling", "heat 3 times in 100 looks, at most 71 C"),
        ({"fingerprints": ["a", "b", "a"]}, "same-bits", "2 results in 3 windows"),
        ({"errors": {"0000:9b": 2}}, "ecc", "2 uncorrected errors"),
    ],
)
def test_what_must_not_happen_fails_its_check(
    verdicts: ModuleType,
    capsys: pytest.CaptureFixture[str],
    watched: dict[str, Any],
    check: str,
    said: str,
) -> None:
    assert _checks(verdicts, capsys, **watched)[check] == (False, said)


def test_what_could_not_be_looked_at_is_not_reported(
    verdicts: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = _checks(verdicts, capsys, xids=None, looks=0, used=[], allocated=[])
    assert set(checks) == {"steady", "host-memory", "same-bits"}


def test_a_gpu_without_ecc_is_told_from_one_that_was_not_asked(
    verdicts: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _checks(verdicts, capsys, errors={})["ecc"] == (True, "this GPU has no ECC")
