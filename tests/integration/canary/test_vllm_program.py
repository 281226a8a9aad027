"""The vLLM workload on a stand-in that reads the model's files and computes by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from canary_programs import failed, keeps_to_its_manifest
from torch_programs import run_with_torch

from compatgate.canary.protocol import read_report
from compatgate.canary.run import Report
from compatgate.canary.workloads.library import read_workload
from compatgate.resources import canary_dir

NAME = "vllm-serving"
STAND_INS = Path(__file__).parent / "stand_ins"
FEW = ("--device", "cpu", "--repetitions", "1", "--warmup", "0")


def _report(tmp_path: Path, fault: str = "") -> Report:
    program = canary_dir() / NAME / "program.py"
    starter = tmp_path / "starter.py"
    starter.write_text(f"""
import runpy, sys
sys.argv = {[str(program), *FEW]!r}
sys.path[:0] = {[str(program.parent), str(STAND_INS)]!r}
runpy.run_path({str(program)!r}, run_name="__main__")
""")
    done = run_with_torch([starter], {"STAND_IN_FAULT": fault})
    assert done.returncode == 0, done.stderr.decode()
    return read_report([done.stdout], read_workload(program.parent))


def test_answers_are_those_of_double_precision_and_timed(tmp_path: Path) -> None:
    report = _report(tmp_path)
    keeps_to_its_manifest(NAME, report)
    assert failed(report) == {}


@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        ("order", {"answers", "probabilities", "batch", "timed"}),
        ("batch", {"batch", "timed"}),
        ("timed", {"timed"}),
    ],
)
def test_tokens_that_are_read_in_another_order_or_forgotten_are_found(
    fault: str, checks: set[str], tmp_path: Path
) -> None:
    assert set(failed(_report(tmp_path, fault))) == checks


def test_an_answer_that_is_too_short_to_be_timed_is_found(tmp_path: Path) -> None:
    wrong = failed(_report(tmp_path, "short"))
    assert wrong == {"timed": "an answer has 3 tokens instead of 4"}


def test_a_vllm_that_does_not_start_is_a_failure_that_says_why(tmp_path: Path) -> None:
    report = _report(tmp_path, "start")
    words = "RuntimeError: no kernel image is available for execution on the device"
    assert failed(report) == {"starts": words}
    assert report.metrics == ()


def test_an_image_without_vllm_has_nothing_to_test() -> None:
    done = run_with_torch([canary_dir() / NAME / "program.py", *FEW])
    said = done.stdout.decode().splitlines()
    assert said[-1] == f"{NAME}: nothing to test: the image has no vLLM"
