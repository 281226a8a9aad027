"""From a candidate to a blessed stack and back: server, worker, Docker engine and command line.

The engine is real and has no GPU: it takes requests for one, and the workloads print the `env` of
an A100. Everything else is as in production.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engines import PYTHON, Engine, engine, missing, vary_python
from staging import DRIVER, ENV, GPU, host_table, until, write_workload

ROOT = Path(__file__).parents[2]
COMPATGATE = [sys.executable, "-m", "compatgate"]
NEWER = "550.54.15"
STACK = "cuda=12.4,arch=sm_80"
MEASURES = """
import random
values = random.Random({seed}).gauss
say.metric("time", "ms", [10.0 + values(0, 0.02) for _ in range(40)])
say.check("right", True)
"""
METRIC = 'seeds = [0]\n[metrics.time]\nunit = "ms"\nbetter = "lower"\n'


@pytest.fixture(scope="module")
def gpu_engine() -> Iterator[Engine]:
    """An engine that takes requests for GPUs, though it has none."""
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with engine(gpus=True) as running:
        yield running


class Story:
    """A gate with a target and a candidate, and a folder of an operator's workloads."""

    def __init__(self, server: Any, folder: Path, engine: Engine) -> None:
        self.server = server
        self.folder = folder
        self.engine = engine
        self.hosts = folder / "hosts.toml"

    def target(self, driver: str) -> dict[str, Any]:
        pool = {"name": "a100", "gpu": GPU, "driver": driver, "count": 512}
        canary = {"require": True, "suites": ["story"], "promote": "automatic"}
        policy = {"mode": "enforce", "requireEntry": True, "canary": canary}
        return {"metadata": {"name": "prod"}, "spec": {"pools": [pool], "policy": policy}}

    def entry(self, cuda: str = "12.4", status: str = "candidate") -> dict[str, Any]:
        return {
            "metadata": {"name": f"cuda{cuda.replace('.', '')}"},
            "spec": {
                "targets": ["prod"],
                "components": {"cuda": f"{cuda}.*"},
                "status": status,
                "reason": "to be run on staging",
            },
        }

    def bless_by_hand(self, image: str) -> None:
        """Bless the first entry without any run, and ask once about an image of it."""
        target = self.target(DRIVER)
        required = target["spec"]["policy"]["canary"]
        target["spec"]["policy"]["canary"] = {**required, "require": False}
        self.server.admin("PUT", "targets/prod", target)
        self.server.admin("PUT", "entries/cuda124", self.entry(status="blessed"))
        asked = {"cuda": "12.4", "arch": ["sm_80"]}
        assert self.server.gate(asked, image=image)["allowed"]
        self.server.admin("PUT", "targets/prod", self.target(DRIVER))

    def upgrade(self, image: str, cuda: str) -> tuple[int, dict[str, Any]]:
        """Exit status of ``canary run`` of an image for the target, and the run."""
        done = self.command(
            "canary", "run", "--suite", "story", "--target", "prod", "--stack", f"cuda={cuda}",
            "--entry", f"cuda{cuda.replace('.', '')}", "--image", image, "--format", "json",
        )  # fmt: skip
        assert done.stdout, done.stderr
        assert "pair 1 of 5: story-0, " in done.stderr
        (made,) = json.loads(done.stdout)
        return done.returncode, made

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command, as somebody who may operate the gate."""
        known = {"COMPATGATE_SERVER": self.server.url, "COMPATGATE_TOKEN": self.server.token}
        return subprocess.run(
            [*COMPATGATE, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**self.server.env, **known},
        )

    def check(self) -> tuple[int, set[str]]:
        """Exit status of a check, and the rules that fail."""
        done = self.server.check("--target", "prod", "--stack", STACK)
        return done.returncode, set(re.findall(r"^FAIL +(CG\d+)", done.stdout, re.MULTILINE))

    def run(self, image: str = PYTHON) -> tuple[int, dict[str, Any]]:
        """Exit status of ``canary run`` of an image alone for the target, and the run."""
        done = self.command(
            "canary", "run", "--suite", "story", "--target", "prod", "--stack", "cuda=12.4",
            "--image", image, "--against", "none", "--format", "json",
        )  # fmt: skip
        assert done.stdout, done.stderr
        (made,) = json.loads(done.stdout)
        return done.returncode, made

    @contextmanager
    def worker(self, driver: str) -> Iterator[None]:
        """A worker that serves a host with a driver; told to stop at the end."""
        self.hosts.write_text(host_table("stage", self.engine, driver=driver))
        command = [
            *COMPATGATE, "worker", "--hosts", str(self.hosts), "--database", self.server.database,
        ]  # fmt: skip
        with (self.folder / "worker.log").open("a") as log:
            process = subprocess.Popen(command, stderr=log, cwd=ROOT, env=self.server.env)
        try:
            until(lambda: self._serves(driver))
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0, (self.folder / "worker.log").read_text()

    def _serves(self, driver: str) -> bool:
        hosts = self.server.admin("GET", "hosts")["items"]
        return [(host["name"], host["driver"]) for host in hosts] == [("stage", driver)]


@pytest.fixture
def story(
    start_server: Callable[..., Any], tmp_path: Path, gpu_engine: Engine
) -> Callable[[str, str], Story]:
    """Begin with one workload: its program, and more of its ``workload.toml``."""

    def begin(program: str, more: str = "") -> Story:
        workloads = tmp_path / "workloads"
        write_workload(workloads, "story", program, more=more)
        server = start_server(COMPATGATE_WORKLOADS=str(workloads))
        begun = Story(server, tmp_path, gpu_engine)
        server.admin("POST", "targets", begun.target(DRIVER))
        server.admin("POST", "entries", begun.entry())
        return begun

    return begin


OUTDATED = f"""\
import os, sys
sys.path.insert(0, "lib")
import canary_lines as say
driver = os.environ.get("DRIVER", "{DRIVER}")
say.env(driver=driver, gpus=[{{"name": "NVIDIA {GPU}"}}], versions={{"cuda": "12.4.1"}})
say.check("right", driver == "{DRIVER}", "wrong result")
"""


def test_a_candidate_is_run_blessed_outdated_and_contradicted(story: Callable[..., Story]) -> None:
    begun = story(OUTDATED)
    server = begun.server
    assert begun.check() == (1, {"CG801", "CG811"}), "nothing was run, nothing is blessed"

    refused = begun.command("canary", "run", "--suite", "story", "--target", "prod")
    assert refused.returncode == 2
    assert "compatgate worker --hosts FILE" in refused.stderr

    with begun.worker(DRIVER):
        status, run = begun.run()
        assert (status, run["state"]) == (0, "passed"), run["reason"]
        assert '"type": "env"' in begun.command("canary", "logs", run["id"]).stdout
    (evidence,) = server.admin("GET", "evidence")["items"]
    assert (evidence["run"], evidence["sku"], evidence["driver"]) == (run["id"], GPU, DRIVER)
    assert evidence["components"] == {"cuda": "12.4.1"}, "what was measured, not what was stated"
    entry = server.admin("GET", "entries/cuda124")
    assert entry["spec"]["status"] == "blessed"
    assert run["id"] in entry["spec"]["reason"]
    assert begun.check() == (0, set())
    allowed = server.gate({"cuda": "12.4", "arch": ["sm_80"]})
    assert (allowed["allowed"], allowed["evidence"]) == (True, [run["id"]])

    server.admin("PUT", "targets/prod", begun.target(NEWER))
    assert begun.check() == (1, {"CG812"}), "compatible is not identical"

    vary_python(begun.engine.api, "compatgate-test/newer:1", DRIVER=NEWER)
    with begun.worker(NEWER):
        status, failed = begun.run("compatgate-test/newer:1")
        assert (status, failed["state"]) == (1, "failed"), failed["reason"]
        assert failed["reason"] == "story-0: check right failed: wrong result"
    assert begun.check() == (1, {"CG813"})
    (warning,) = server.admin("GET", "entries/cuda124")["warnings"]
    assert warning["run"] == failed["id"]
    shown = begun.command("matrix", "show", "cuda124", "--database", server.database).stdout
    assert "status: blessed" in shown
    assert f"run {failed['id']} of suite story" in shown

    links = server.admin("GET", "audit?limit=500")["items"]
    done = [link["action"] for link in reversed(links) if link["action"].startswith("run.")]
    assert done.count("run.passed") == done.count("run.failed") == 1
    assert not begun.engine.everything()[0], "no container is left"


def test_a_metric_is_judged_once_a_person_has_approved_what_to_expect(
    story: Callable[..., Story], tmp_path: Path
) -> None:
    begun = story(ENV + MEASURES.format(seed=1), METRIC)
    with begun.worker(DRIVER):
        status, first = begun.run()
        assert (status, first["state"]) == (3, "inconclusive")
        assert "no baseline yet" in first["reason"]
        assert begun.check() == (1, {"CG801", "CG811"})
        for _ in range(2):
            assert begun.run()[0] == 3

        listed = begun.command("canary", "baselines", "list", "--format", "json")
        (proposed,) = json.loads(listed.stdout)
        assert (proposed["metric"], proposed["sku"], proposed["state"]) == ("time", GPU, "proposed")
        approved = begun.command("canary", "baselines", "approve", str(proposed["id"]))
        assert approved.returncode == 0, approved.stderr

        status, second = begun.run()
        assert (status, second["state"]) == (0, "passed"), second["reason"]
    assert begun.check() == (0, set())


UPGRADE = """\
import os, random, sys
sys.path.insert(0, "lib")
import canary_lines as say
ratio, cuda = float(os.environ["RATIO"]), os.environ["CUDA"]
say.env(driver="{driver}", gpus=[{{"name": "NVIDIA {gpu}"}}], versions={{"cuda": cuda}})
values = random.Random(cuda).gauss
say.metric("time", "ms", [ratio * (10.0 + values(0, 0.02)) for _ in range(6)])
say.check("right", True)
"""


def test_an_upgrade_is_judged_against_the_entry_that_it_would_replace(
    story: Callable[..., Story],
) -> None:
    begun = story(UPGRADE.format(driver=DRIVER, gpu=GPU), METRIC)
    server, api = begun.server, begun.engine.api
    images = {"a:1": ("1.0", "12.4.1"), "a:2": ("1.01", "12.6.1"), "a:3": ("1.1312", "12.8.1")}
    for name, (ratio, cuda) in images.items():
        vary_python(api, f"compatgate-test/{name}", RATIO=ratio, CUDA=cuda)
    begun.bless_by_hand("compatgate-test/a:1")
    for cuda in ("12.6", "12.8"):
        server.admin("POST", "entries", begun.entry(cuda))

    with begun.worker(DRIVER):
        status, run = begun.upgrade("compatgate-test/a:2", "12.6")
        assert (status, run["state"]) == (0, "passed"), run["reason"]
        against = run["against"]
        assert (against["entry"], against["image"]) == ("cuda124", "compatgate-test/a:1")
        status, slow = begun.upgrade("compatgate-test/a:3", "12.8")
    assert (status, slow["state"]) == (1, "failed"), slow["reason"]
    assert re.search(r"time: 1[12].\d % higher than the reference cuda126", slow["reason"])
    shown = server.admin("GET", f"runs/{slow['id']}")["pairs"]
    (metric,) = shown["judgement"]["metrics"]
    assert (metric["metric"], metric["outcome"]) == ("story.time", "regression")
    assert 0.11 < metric["low"] <= metric["effect"] <= metric["high"] < 0.13
    order = [(block["block"]["pair"], block["block"]["arm"]) for block in shown["blocks"]]
    assert order[:4] == [(1, "A"), (1, "B"), (2, "B"), (2, "A")]
    assert len(order) == 2 * shown["done"]

    assert server.gate({"cuda": "12.6", "arch": ["sm_80"]})["allowed"], "blessed by its run"
    assert not server.gate({"cuda": "12.8", "arch": ["sm_80"]})["allowed"]
    found = server.admin("GET", "evidence")["items"]
    measured = [(one["components"]["cuda"], one["outcome"]) for one in found]
    assert measured == [("12.8.1", "failed"), ("12.6.1", "passed")]
    text = begun.command("canary", "show", slow["id"]).stdout
    assert "entry cuda126: compatgate-test/a:2 (run " in text
    assert "regression" in text
    assert not begun.engine.everything()[0], "no container is left"
