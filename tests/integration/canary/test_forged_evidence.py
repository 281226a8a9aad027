"""Programs that write their own evidence: none of them passes, and each failure says why."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engines import Engine, import_scripts

from compatgate.canary.engine import Settings
from compatgate.canary.engine.conclude import StepVerdict, conclude_step
from compatgate.canary.engine.steps import execute
from compatgate.canary.executors import Executor, Job
from compatgate.canary.executors.docker import DockerExecutor
from compatgate.canary.executors.process import ProcessExecutor
from compatgate.canary.protocol import make_reader
from compatgate.canary.run import Report, Witness
from compatgate.canary.witness.lookout import Lookout
from compatgate.canary.workload import MetricSpec
from compatgate.errors import BadInput

Make = Callable[..., Job]
HARNESS = {
    "proofs": ("python",),
    "metrics": {"time": MetricSpec("ms", "lower")},
    "checks": {"right": "it is right"},
}
HEAD = """
import os, sys, time
sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")]
import canary_lines as say
"""
HONEST = f"""{HEAD}
say.env(versions={{"python": "3.11"}})
say.metric("time", "ms", [1.0] * 30)
say.check("right", True)
time.sleep(0.3)
"""
PLAIN = """{"type": "env", "versions": {"python": "3.11"}}
{"type": "metric", "name": "time", "unit": "ms", "values": [1.0]}
{"type": "check", "name": "right", "ok": true}
"""
_numbers = count(1)


class Tried(msgspec.Struct):
    """What a program came to."""

    verdict: StepVerdict
    report: Report
    output: bytes

    @property
    def witness(self) -> Witness:
        assert self.report.witness is not None
        return self.report.witness


class _Both:
    def __init__(self, lookout: Lookout) -> None:
        self.lookout, self.output = lookout, bytearray()

    def feed(self, data: bytes) -> None:
        self.lookout.feed(data)
        self.output += data


@pytest.fixture
def attempt() -> Iterator[Callable[..., Tried]]:
    """Run a job as the engine does, and conclude it."""
    ran: list[tuple[Executor, str]] = []

    def once(executor: Executor, job: Job) -> Tried:
        ran.append((executor, job.run))
        prepared = executor.prepare(job, lambda doing, share: None)
        lookout = Lookout(job.workload, executor, make_reader(job.workload))
        job = msgspec.structs.replace(lookout.prepare(job), step=f"made-{next(_numbers)}")
        prepared = msgspec.structs.replace(prepared, job=job)
        sink = _Both(lookout)
        try:
            ended = execute(
                executor, prepared, sink.feed, lambda: False,
                settings=Settings(poll=0.1), started=lookout.started,
            )  # fmt: skip
        finally:
            lookout.close()
        report = lookout.report()
        return Tried(conclude_step(job.workload, ended, report), report, bytes(sink.output))

    yield once
    for executor, run in ran:
        executor.clean(run)


def _forge(folder: Path, output: str) -> Path:
    """A shell script in place of ``python3`` that prints a report and looks at nothing."""
    folder.mkdir()
    script = folder / "python3"
    script.write_text(f"#!/bin/sh\nprintf %s {shlex.quote(output)}\nsleep 0.3\n")
    script.chmod(0o755)
    return folder


def test_an_honest_program_passes_and_was_seen(
    process: ProcessExecutor, job: Make, attempt: Callable[..., Tried]
) -> None:
    tried = attempt(process, job(HONEST, image=None, **HARNESS))
    assert tried.verdict == StepVerdict("passed")
    assert (tried.witness.assurance, tried.witness.proofs) == ("witnessed", ("python",))
    assert "python" in tried.witness.seen["processes"]
    assert tried.witness.wall_s > 0.3


def test_a_shell_script_in_place_of_python_cannot_pass(
    process: ProcessExecutor,
    job: Make,
    attempt: Callable[..., Tried],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forged = _forge(tmp_path / "bin", PLAIN)
    monkeypatch.setenv("PATH", f"{forged}:/usr/bin:/bin")
    tried = attempt(process, job(HONEST, image=None, **HARNESS))
    assert tried.verdict.outcome == "failed"
    assert "carry no signature" in tried.verdict.reason
    assert tried.report.metrics == ()


def test_the_lines_of_an_earlier_run_cannot_pass(
    process: ProcessExecutor, job: Make, attempt: Callable[..., Tried]
) -> None:
    earlier = attempt(process, job(HONEST, image=None, **HARNESS)).output.decode()
    assert earlier.count("compatgate/1") == 4
    replay = attempt(process, job(f"print({earlier!r}, end='')", image=None, **HARNESS))
    assert replay.verdict.outcome == "failed"
    assert "recorded" in replay.verdict.reason


@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        # The program prints values beside the harness, as a library of the image could.
        (f"{HONEST}\nprint({PLAIN.splitlines()[1]!r})", "inconclusive", "the run's signature"),
        (
            HONEST.replace('say.check("right", True)', 'print(\'{"type":"check"}\')'),
            "inconclusive",
            "the run's signature",
        ),
        # It takes part of the harness's lines away.
        (
            HONEST.replace("say.check", "say._printed += 1; say.check"),
            "inconclusive",
            "is followed by",
        ),
        (
            HONEST.replace("say.env(", "say.proof = lambda *_: None; say.env("),
            "inconclusive",
            "did not answer the worker's challenge by python",
        ),
        # Its interpreter computes something else.
        (
            HONEST.replace(
                "say.env(", "say.canary_proof.multiply = lambda a, b: a; say.env("
            ),
            "failed",
            "computed by python, is wrong",
        ),
        # It says that more time has passed than the worker measured.
        (HONEST.replace("[1.0] * 30", "[60e3] * 30"), "failed", "lasted"),
        (HONEST.replace("say.env(", "say._BEGAN -= 600; say.env("), "failed", "had passed"),
    ],
    ids=["extra", "replaced", "gap", "unanswered", "wrong", "times", "clock"],
)  # fmt: skip
def test_a_program_that_bends_the_harness_cannot_pass(
    process: ProcessExecutor,
    job: Make,
    attempt: Callable[..., Tried],
    body: str,
    outcome: str,
    reason: str,
) -> None:
    tried = attempt(process, job(body, image=None, **HARNESS))
    assert tried.verdict.outcome == outcome
    assert reason in tried.verdict.reason


def test_versions_other_than_those_of_mapped_files_cannot_pass(
    process: ProcessExecutor, job: Make, attempt: Callable[..., Tried], tmp_path: Path
) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    full = tmp_path / "libcudnn.so.9.1.0"
    packages = tmp_path / "site-packages"
    packaged = packages / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    packaged.parent.mkdir(parents=True)
    (packages / "nvidia_cudnn_cu12-9.1.0.70.dist-info").mkdir()
    source = b"int nothing(void) { return 0; }"
    subprocess.run(["gcc", "-shared", "-x", "c", "-o", full, "-"], input=source, check=True)
    shutil.copy(full, packaged)
    # The name of a file states its version, or the record of its package does.
    for library, stated, outcome in (
        (full, "8.9.7", "failed"),
        (packaged, "9.2.0", "failed"),
        (packaged, "9.1.0", "passed"),
    ):
        load = f"import ctypes; ctypes.CDLL({str(library)!r})\n"
        body = HONEST.replace('"python": "3.11"', f'"cudnn": "{stated}"')
        tried = attempt(process, job(load + body, image=None, **HARNESS))
        assert tried.verdict.outcome == outcome
        said = tried.verdict.reason or tried.witness.seen["libraries"]
        assert str(tmp_path) in said
        assert "9.1.0" in said


def test_a_program_without_the_harness_counts_as_its_own_word(
    process: ProcessExecutor, job: Make, attempt: Callable[..., Tried]
) -> None:
    own: dict[str, Any] = {**HARNESS, "proofs": ()}
    body = textwrap.dedent(f"import time; print({PLAIN!r}); time.sleep(0.3)")
    tried = attempt(process, job(body, image=None, **own))
    assert tried.verdict.outcome == "passed"
    assert tried.witness.assurance == "self-reported"
    assert tried.witness.seen["processes"]


def test_an_image_with_a_forged_interpreter_cannot_pass(
    docker: DockerExecutor, job: Make, attempt: Callable[..., Tried], gpu_engine: Engine
) -> None:
    honest = attempt(docker, job(HONEST, **HARNESS))
    assert honest.verdict == StepVerdict("passed")
    assert honest.witness.assurance == "witnessed", honest.witness

    script = f"#!/bin/sh\nprintf %s {shlex.quote(PLAIN)}\nsleep 1\n"
    injected = ("ENV LD_PRELOAD=/nowhere.so PYTHONHOME=/nowhere PYTHONPATH=/bin",)
    image = import_scripts(
        gpu_engine.api, "compatgate-test/forged", {"bin/python3": script}, injected
    )
    forged = attempt(docker, job(HONEST, image=image, **HARNESS))
    assert forged.verdict.outcome == "failed"
    assert "carry no signature" in forged.verdict.reason

    # The worker's interpreter runs the program, and nothing of the image runs.
    body = HONEST.replace('"python": "3.11"', "").replace("0.3", "1")
    body += "import ctypes, hashlib, tempfile; print(sys.prefix, sorted(os.environ))"
    mounted = attempt(docker, job(body, image=image, interpreter="worker", **HARNESS))
    assert mounted.verdict == StepVerdict("passed"), mounted.output
    assert (mounted.witness.assurance, mounted.witness.interpreter) == ("witnessed", "worker")
    assert b"/compatgate-python ['COMPATGATE_INTERPRETER'" in mounted.output
    assert b"nowhere" not in mounted.output


def test_an_image_that_preloads_code_into_every_process_is_refused(
    docker: DockerExecutor, job: Make, attempt: Callable[..., Tried], gpu_engine: Engine
) -> None:
    files = {"etc/ld.so.preload": "/lib/evil.so\n"}
    image = import_scripts(gpu_engine.api, "compatgate-test/preload", files, ())
    with pytest.raises(BadInput, match=r"has /etc/ld\.so\.preload"):
        attempt(docker, job(HONEST, image=image, interpreter="worker", **HARNESS))


def test_the_worker_interpreter_is_not_the_first_python_of_the_path(
    process: ProcessExecutor,
    job: Make,
    attempt: Callable[..., Tried],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", f"{_forge(tmp_path / 'bin', PLAIN)}:/usr/bin:/bin")
    tried = attempt(process, job(HONEST, image=None, interpreter="worker", **HARNESS))
    assert tried.verdict == StepVerdict("passed")
    assert (tried.witness.assurance, tried.witness.interpreter) == ("witnessed", "worker")


def test_a_wrapper_that_ignores_the_image_is_found(
    process: ProcessExecutor, job: Make, attempt: Callable[..., Tried], tmp_path: Path
) -> None:
    """The program runs on this machine, as by a wrapper that starts no container."""
    here = tmp_path / "libcudart.so.12"
    here.write_bytes(b"of the image")
    path = str(here).lstrip("/")
    right = f"sha256:{hashlib.sha256(here.read_bytes()).hexdigest()}"
    other = f"sha256:{hashlib.sha256(b'of another image').hexdigest()}"
    made = msgspec.structs.replace(job(HONEST, image=None, **HARNESS), files={path: right})
    tried = attempt(process, made)
    assert tried.verdict == StepVerdict("passed")
    assert tried.witness.seen["image"] == "1 of its files"
    for files in ({path: other}, {path: right, "opt/missing.so": right}):
        tried = attempt(process, msgspec.structs.replace(made, files=files))
        assert tried.verdict.outcome == "inconclusive"
        assert "it did not run in the image, where it ran /" in tried.verdict.reason


def test_a_substitute_with_the_digest_of_an_earlier_answer_is_found(
    process: ProcessExecutor, job: Make, attempt: Callable[..., Tried], tmp_path: Path
) -> None:
    """An answer is bound to its challenge; one from a list that travels with an image is none."""
    missing = tmp_path / "python3"
    path = str(missing).lstrip("/")
    listed = HONEST.replace(
        "say.metric", f'say.line("files", shown={{"{path}": "{"0" * 64}"}})\nsay.metric', 1
    )
    made = job(listed, image=None, **HARNESS)
    tried = attempt(process, msgspec.structs.replace(made, files={path: f"sha256:{'0' * 64}"}))
    assert tried.verdict.outcome == "inconclusive"
    assert "it did not run in the image" in tried.verdict.reason
