"""What people see of a run on a real engine: its progress, and how long it takes."""

from __future__ import annotations

import pytest
from staging import ENV, Staging, until

from compatgate.cli.canary.runs import run_line
from compatgate.web.pages.runs import run_note

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
HALF = """
say.progress(0.53)
time.sleep(6)
say.check("right", True)
"""


def test_a_programs_own_progress_is_the_runs(staging: Staging) -> None:
    staging.workload("good", ENV + HALF)
    run = staging.submit("good")
    assert staging.run(run).doing == "takes at most 60 s; no earlier run shows how long"
    with staging.worker():
        row = until(lambda: (row := staging.run(run)).doing.count("53%") and row)
        assert row.progress == pytest.approx(0.53, abs=0.01)
        assert run_note(row).startswith("53 %: running good-0 (1 of 1), 53%, about ")
        assert "running good-0 (1 of 1), 53%, about " in run_line(row.to_json())
        assert staging.await_state(run, "passed").left_s is None


def test_a_second_run_is_expected_to_take_as_long_as_the_first(staging: Staging) -> None:
    staging.workload("good", ENV + 'time.sleep(3)\nsay.check("right", True)\n')
    for number in range(2):
        run = staging.submit("good", against="none")
        expected = staging.run(run).left_s
        staging.work_until_ended(run)
        row = staging.run(run)
        assert row.started_at
        assert row.finished_at
        took = (row.finished_at - row.started_at).total_seconds()
        if number:
            assert expected
            assert took / 2 < expected < 2 * took
        else:
            assert expected is None
