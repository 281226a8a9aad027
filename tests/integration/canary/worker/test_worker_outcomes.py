"""Runs in containers from the queue to their end: what programs do decides what becomes of them."""

from __future__ import annotations

import json
import shlex

import pytest
from engines import Engine, import_scripts
from image_registry import Registry
from staging import DRIVER, ENV, GOOD, GPU, HANGS, STACK, Staging, host_table

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def ended(staging: Staging, engine: Engine, program: str, **fields: str) -> tuple[str, str, str]:
    """State and reason of a run of a program, which leaves nothing behind; and its id."""
    staging.workload("made", program, **fields)
    run = staging.submit("made")
    staging.work()
    assert engine.left_of(run) == []
    assert staging.rooms.runs.hosts().items[0].busy == 0
    found = staging.run(run)
    return found.state, found.reason, run


def test_a_passing_run_is_evidence_for_what_was_measured(
    staging: Staging, gpu_engine: Engine
) -> None:
    state, reason, run = ended(staging, gpu_engine, GOOD)
    assert state == "passed", reason
    (evidence,) = staging.rooms.runs.evidence().items
    assert (evidence.run, evidence.suite, evidence.outcome) == (run, "made", "passed")
    assert (evidence.sku, evidence.driver) == (GPU, DRIVER)
    assert evidence.components == {"cuda": "12.4.1"}
    states = ["queued", "leased", "preparing", "running", "judging", "passed"]
    assert staging.states(run) == states
    (step,) = staging.show(run).steps
    assert step.body["image"].startswith("sha256:")


@pytest.mark.parametrize(
    ("program", "state", "reason"),
    [
        (ENV + 'say.check("right", False, "off by one")', "failed", "check right failed: off by"),
        (ENV + "raise SystemExit(3)", "failed", "ended with status 3"),
        ("import os; os._exit(139)", "failed", "ended with status 139 (SIGSEGV)"),
        (ENV + "x = []\nwhile True: x.append(bytes(1 << 20))", "failed", "more than 134217728"),
        (GOOD.replace("12.4.1", "12.2.0"), "inconclusive", "12.4 is under test, but 12.2.0 was"),
        (GOOD.replace(GPU, "L4"), "inconclusive", f"declared with {GPU}, but the workloads saw"),
        (GOOD.replace(DRIVER, "550.54.15"), "inconclusive", "measured 550.54.15"),
        ('print("hello")', "failed", "did not report check right"),
        (ENV, "failed", "did not report check right"),
        (GOOD.replace("gpus=[", "gpus=[] and ["), "inconclusive", "its env line names no GPU"),
    ],
    ids=[
        "failing check", "crash", "crash before env", "out of memory", "lying env", "other GPU",
        "other driver", "nothing", "no check", "no GPU",
    ],
)  # fmt: skip
def test_what_a_program_does_decides(
    staging: Staging, gpu_engine: Engine, program: str, state: str, reason: str
) -> None:
    found, why, run = ended(staging, gpu_engine, program)
    assert found == state, why
    assert reason in why
    assert staging.run(run).attempts == 1, "what a program does is never retried"
    kept = [evidence.outcome for evidence in staging.rooms.runs.evidence().items]
    assert kept == (["failed"] if state == "failed" else [])


def test_a_forged_interpreter_passes_nothing_and_proposes_no_baseline(
    staging: Staging, gpu_engine: Engine
) -> None:
    env = {"type": "env", "driver": DRIVER, "gpus": [f"NVIDIA {GPU}"], "cuda": "12.4.1"}
    metric = {"type": "metric", "name": "speed", "unit": "GB/s", "values": [1.0] * 30}
    lines = "\n".join(
        map(json.dumps, (env, {"type": "check", "name": "right", "ok": True}, metric))
    )
    script = f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(lines)}\n"
    image = import_scripts(gpu_engine.api, "compatgate-test/forger", {"bin/python3": script})
    staging.workload("made", GOOD)
    run = staging.submit("made", image=image)
    staging.work()
    found = staging.run(run)
    assert found.state == "failed"
    assert "another program printed them in place of this one" in found.reason
    assert not staging.rooms.baselines.list().items


def test_a_hang_of_what_never_ended_here_is_repeated_then_inconclusive(
    staging: Staging, gpu_engine: Engine
) -> None:
    state, reason, run = ended(staging, gpu_engine, HANGS, timeout="2s")
    assert state == "inconclusive"
    assert "was stopped after 2 s, 2 times; it never ended in time on this host" in reason
    assert b"began" in staging.log(run)
    assert not staging.rooms.runs.evidence().items


def test_a_flood_of_output_is_bounded_and_proves_nothing(
    staging: Staging, gpu_engine: Engine
) -> None:
    flood = GOOD + "for _ in range(100): sys.stdout.write(('x' * 1023 + '\\n') * 1024)\n"
    state, reason, run = ended(staging, gpu_engine, flood)
    assert state == "inconclusive"
    assert "bytes more than the output limit" in reason
    assert (1 << 20) <= len(staging.log(run)) < (1 << 20) + 200
    assert staging.log(run).endswith(b"more bytes were dropped: output limit reached]\n")


def test_output_that_is_not_utf8_is_kept_as_it_is(staging: Staging, gpu_engine: Engine) -> None:
    noise = GOOD + 'sys.stdout.buffer.write(b"\\xff\\xfe\\x00 not text\\n")\n'
    state, reason, run = ended(staging, gpu_engine, noise)
    assert state == "passed", reason
    assert b"\xff\xfe\x00 not text\n" in staging.log(run)
    json.dumps(staging.show(run).to_json())


def test_an_image_that_is_not_there_ends_the_run_at_once(
    staging: Staging, gpu_engine: Engine, registry: Registry
) -> None:
    staging.workload("made", GOOD)
    run = staging.submit("made", image=f"{registry.host}/team/none:1")
    staging.work()
    found = staging.run(run)
    assert (found.state, found.attempts) == ("error", 1)
    assert f"image {registry.host}/team/none:1 not found" in found.reason
    assert gpu_engine.left_of(run) == []


def test_an_engine_without_gpus_is_named_with_what_it_lacks(
    staging: Staging, plain_engine: Engine
) -> None:
    staging.hosts(host_table("stage", plain_engine))
    staging.workload("made", GOOD)
    run = staging.submit("made")
    staging.work()
    found = staging.run(run)
    assert (found.state, found.attempts) == ("error", 1)
    assert "the engine of stage has no GPUs to give" in found.reason
    assert "the NVIDIA Container Toolkit is missing" in found.reason
    assert plain_engine.left_of(run) == []


def test_a_suite_without_gpus_passes_and_is_no_evidence(
    staging: Staging, plain_engine: Engine
) -> None:
    staging.hosts(host_table("stage", plain_engine, gpu=None, driver=None))
    staging.workload("made", GOOD, gpus=0)
    run = staging.submit("made")
    staging.work()
    found = staging.run(run)
    assert found.state == "passed"
    assert found.reason == "passed; not evidence about a GPU, because none was used"
    assert not staging.rooms.runs.evidence().items


def test_a_bare_process_gives_evidence_for_development_alone(staging: Staging) -> None:
    staging.hosts(
        f'[[host]]\nname = "stage"\nexecutor = "process"\nhealth = "none"\n'
        f'gpu = "{GPU}"\ndriver = "{DRIVER}"\n'
    )
    staging.workload("made", GOOD)
    run = staging.submit("made", image=None)
    staging.work()
    assert staging.run(run).state == "passed", staging.run(run).reason
    (evidence,) = staging.rooms.runs.evidence().items
    assert evidence.development


def test_what_is_under_test_and_nobody_measured_is_named(
    staging: Staging, gpu_engine: Engine
) -> None:
    staging.workload("made", GOOD)
    run = staging.submit("made", stack={**STACK, "cudnn": "9.1.0"})
    staging.work()
    assert staging.run(run).state == "inconclusive"
    assert "cudnn 9.1.0 is under test, and no workload measured cudnn" in staging.run(run).reason
