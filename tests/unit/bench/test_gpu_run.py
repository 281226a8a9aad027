"""What is kept of a program: all that it printed, or nothing where its time was up."""

from __future__ import annotations

import time
from pathlib import Path

from gpu_plan import Step
from gpu_run import Kept, run

from compatgate.canary.workload import ImageSpec, Workload

STEP = Step("made", "baseline", "baseline-1")
WRITES = 'echo \'{"type": "env"}\'; echo out; echo wrong >&2; exit 3'


def workload(folder: Path) -> Workload:
    return Workload("made", "made", ("true",), ImageSpec(inside=True), folder=folder)


def test_output_and_how_it_ended_are_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "out")
    ran = run(kept, workload(tmp_path), STEP, ["sh", "-c", WRITES], {"A": "b"}, 20)
    assert ran is not None
    assert (ran.exit, ran.environment, kept.runs()) == (3, {"A": "b"}, [ran])
    assert kept.output(STEP).read_text() == '{"type": "env"}\nout\n'
    assert kept.note(ran) == "wrong"


def test_one_that_has_no_time_left_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    kept, late = Kept(tmp_path / "out"), tmp_path / "late"
    script = f"(sleep 1; touch {late}) & echo begun; sleep 30"
    begin = time.monotonic()
    assert run(kept, workload(tmp_path), STEP, ["sh", "-c", script], {}, 0.3) is None
    assert time.monotonic() - begin < 10
    assert kept.runs() == []
    assert not kept.output(STEP).exists()
    time.sleep(1.2)
    assert not late.exists()


def test_a_crash_is_told_by_its_signal(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "out")
    ran = run(kept, workload(tmp_path), STEP, ["sh", "-c", "kill -SEGV $$"], {}, 20)
    assert ran is not None
    assert ran.exit == 139
