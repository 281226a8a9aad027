"""Which images under test a worker runs: its own list, whatever a gate let into the queue."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from engines import PYTHON
from staging import Staging

HELLO = """
import json
print(json.dumps({"type": "check", "name": "right", "ok": True}))
"""


def _work(staging: Staging, *options: str, **environment: str) -> str:
    """Have ``compatgate worker`` empty the queue; returns what it logged."""
    done = subprocess.run(
        [sys.executable, "-m", "compatgate", "worker", "--once",
         "--hosts", str(staging.hosts_file), "--database", staging.url,
         "--workloads", str(staging.workloads), *options],
        capture_output=True, text=True, timeout=120, check=True,
        env={**{k: v for k, v in os.environ.items() if k[:10] != "COMPATGATE"}, **environment},
    )  # fmt: skip
    return done.stderr


@pytest.fixture
def run(staging: Staging) -> str:
    staging.workload("good", HELLO)
    return staging.submit("good", image=PYTHON)


def test_an_image_that_is_not_on_the_list_is_not_run(staging: Staging, run: str) -> None:
    _work(staging, "--image", "registry.example/team/*", "--image", "docker.io/library/*")
    ended = staging.run(run)
    assert ended.state == "error"
    assert f"docker.io/{PYTHON} is not an allowed image under test" in ended.reason
    assert "registry.example/team/*, docker.io/library/*" in ended.reason
    assert "worker --image PATTERN" in ended.reason
    assert staging.show(run).steps == ()


def test_an_image_on_the_list_is_run_by_its_full_name(staging: Staging, run: str) -> None:
    _work(staging, COMPATGATE_CANARY_IMAGES="docker.io/compatgate-test/*")
    (step,) = staging.show(run).steps
    assert step.body["exit_code"] == 0
    assert step.body["image"].startswith("sha256:")


def test_without_a_list_only_the_owner_of_an_sqlite_file_names_images(
    staging: Staging, run: str
) -> None:
    logged = _work(staging)
    ran = bool(staging.show(run).steps)
    if staging.url.startswith("postgresql"):
        assert not ran
        assert "allowed: none" in staging.run(run).reason
        assert "runs that name an image are refused: add a pattern with worker --image" in logged
    else:
        assert ran
