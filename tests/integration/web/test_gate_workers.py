"""Workers without a database: a real worker process, and the token of its host."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from serving import Server
from staging import write_workload

from compatgate.catalog.sources import ROOT

API = "/api/v1"
PLAIN = """\
import sys
sys.path.insert(0, "lib")
import canary_lines as say
say.env(versions={})
say.check("right", True)
"""


class Site:
    """A gate with workloads of its own, and a worker of one host without GPUs."""

    def __init__(self, serve: Any, folder: Path) -> None:
        self.folder = folder
        for side in ("gate", "worker"):
            write_workload(folder / side, "ours", PLAIN, gpus=0)
        self.server: Server = serve("--workloads", str(folder / "gate"))
        (folder / "hosts.toml").write_text('[[host]]\nname = "laptop"\nexecutor = "process"\n')
        made = self.ask("POST", "/tokens", {"name": "laptop", "scopes": ["work"]})
        self.token = made["secret"]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.server.ask(method, f"{API}{path}", body, self.server.bearer)
        assert answer.status in (200, 201), answer.body
        return answer.json()

    def submit(self) -> str:
        run: str = self.ask("POST", "/runs", {"suite": "ours", "host": "laptop"})["runs"][0]["id"]
        return run

    def work(self, *before: str, token: str = "", options: tuple[str, ...] = ()) -> tuple[int, str]:
        """Work until nothing is left; exit status and log."""
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_") or k == ROOT
        }
        done = subprocess.run(
            [
                *before, sys.executable, "-m", "compatgate", "worker", "--once",
                "--hosts", str(self.folder / "hosts.toml"),
                "--gate", f"http://{self.server.host}:{self.server.port}",
                "--workloads", str(self.folder / "worker"), *options,
            ],
            env=environment | {"COMPATGATE_TOKEN": token or self.token},
            cwd=self.folder, text=True, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr


@pytest.fixture
def site(serve: Any, tmp_path: Path) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    made = Site(serve, folder)
    status, log = made.work()  # the host is known from now on
    assert status == 0, log
    return made


def test_a_run_is_worked_off_over_rest(site: Site) -> None:
    run = site.submit()
    status, log = site.work()
    assert status == 0, log
    found = site.ask("GET", f"/runs/{run}")
    assert (found["state"], found["on_host"]) == ("passed", "laptop"), found["reason"]
    assert [step["outcome"] for step in found["steps"]] == ["passed"]
    text = site.server.ask("GET", f"{API}/runs/{run}/logs", None, site.server.bearer).body
    assert b'"check"' in text
    assert not list(site.folder.rglob("*.db"))


def test_a_gutted_copy_of_a_suite_is_refused(site: Site) -> None:
    run = site.submit()
    program = site.folder / "worker" / "ours" / "program.py"
    program.write_text(PLAIN.replace('"right", True', '"right", 1 == 1'))
    assert site.work()[0] == 0
    found = site.ask("GET", f"/runs/{run}")
    assert found["state"] == "error"
    assert "the worker's suite ours is sha256:" in found["reason"]
    assert "the gate's is sha256:" in found["reason"]
    assert "workload ours changed" in found["reason"]
    assert found["steps"] == []


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
@pytest.mark.parametrize(("off", "said"), [("-10m", "behind"), ("+10m", "ahead of")])
def test_a_worker_whose_clock_is_off_takes_no_run(site: Site, off: str, said: str) -> None:
    run = site.submit()
    status, log = site.work("faketime", "-f", off)
    assert status == 2
    assert f"s {said} the gate's" in log
    assert "set it right: leases hold for 30 s" in log
    assert site.ask("GET", f"/runs/{run}")["state"] == "queued"


def test_the_token_of_another_host_is_named(site: Site) -> None:
    status, log = site.work(token=site.server.token)
    assert status == 2
    assert "the token is for the host admin, and the file has laptop" in log
    assert "compatgate token create --name laptop --scope work" in log
    status, log = site.work("env", "-u", "COMPATGATE_TOKEN")
    assert status == 2
    assert "--token: a worker needs the token of its host" in log


def test_a_token_without_the_scope_is_refused(site: Site) -> None:
    site.ask("DELETE", "/tokens/laptop")
    assert "the token laptop was revoked" in site.work()[1]


def test_a_gate_that_is_away_is_a_status_of_its_own(site: Site) -> None:
    site.server.kill()
    status, log = site.work()
    assert status == 3
    assert "does not answer" in log
