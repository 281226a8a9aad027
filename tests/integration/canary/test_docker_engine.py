"""Engines without GPUs, away or restarted; images that are not there; and what is left: nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engines import Engine

from compatgate.canary.executors import Handle, Job
from compatgate.canary.executors.docker import DockerExecutor
from compatgate.canary.workload import ImageSpec
from compatgate.errors import BadInput, CompatgateError, InfrastructureError, NotFound

Make = Callable[..., Job]
SLEEP = "import time; print('began', flush=True); time.sleep(600)"


def _quiet(doing: str, share: float | None) -> None:
    pass


def _started(executor: DockerExecutor, job: Job) -> Handle:
    handle = executor.start(executor.prepare(job, _quiet))
    for piece in executor.output(handle, lambda: False):
        assert piece == b"began\n"
        break
    return handle


def test_gpus_are_asked_for_by_their_slots(
    docker: DockerExecutor, job: Make, run: Callable[..., Any], gpu_engine: Engine
) -> None:
    program = "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'])"
    ran = run(docker, job(program, gpu_slots=(1, 3)))
    assert ran.output == b"1,3\n"
    (asked,) = gpu_engine.api.inspect_container(ran.handle.id)["HostConfig"]["DeviceRequests"]
    assert (asked["Driver"], asked["DeviceIDs"]) == ("nvidia", ["1", "3"])


def test_gpus_on_an_engine_without_them_are_one_clear_error(
    plain_engine: Engine, on: Callable[..., DockerExecutor], job: Make
) -> None:
    executor = on(plain_engine)
    made = job("", gpu_slots=(0,))
    before = plain_engine.everything()
    with pytest.raises(CompatgateError, match="NVIDIA Container Toolkit is missing") as error:
        executor.start(executor.prepare(made, _quiet))
    assert not isinstance(error.value, InfrastructureError)
    assert "nvidia-ctk runtime configure" in error.value.hint
    assert executor.clean(made.run) == 2
    assert plain_engine.everything() == before


def test_cdi_on_an_engine_that_does_not_know_it_is_refused(
    gpu_engine: Engine, on: Callable[..., DockerExecutor], job: Make
) -> None:
    version = int(gpu_engine.api.version()["Version"].split(".")[0])
    if version >= 25:
        pytest.skip(f"this engine is {version} and knows CDI")
    executor = on(gpu_engine, devices="cdi")
    with pytest.raises(CompatgateError, match="does not support CDI"):
        executor.start(executor.prepare(job("", gpu_slots=(0,)), _quiet))


def test_an_image_that_is_not_there_is_not_tried_again(docker: DockerExecutor, job: Make) -> None:
    missing = "sha256:" + "0" * 64
    with pytest.raises(NotFound, match=r"image .* does not exist on the engine"):
        docker.prepare(job("", image=missing), _quiet)


def test_a_registry_that_is_away_may_come_back(docker: DockerExecutor, job: Make) -> None:
    with pytest.raises(InfrastructureError, match=r"cannot pull 127\.0\.0\.1:1/some/image:1"):
        docker.prepare(job("", image="127.0.0.1:1/some/image:1"), _quiet)


def test_without_an_image_under_test_a_workload_that_needs_one_says_so(
    docker: DockerExecutor, job: Make
) -> None:
    with pytest.raises(BadInput, match="needs an image under test"):
        docker.prepare(job("", image=None), _quiet)


def test_a_build_without_the_base_it_needs_says_so(docker: DockerExecutor, job: Make) -> None:
    made = job("", image=None)
    assert made.workload.folder
    (made.workload.folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    with pytest.raises(BadInput, match="needs an image under test, but none is given"):
        docker.prepare(_with_image(made, ImageSpec(context=".")), _quiet)


def _with_image(job: Job, image: ImageSpec) -> Job:
    import msgspec

    workload = msgspec.structs.replace(job.workload, image=image)
    return msgspec.structs.replace(job, workload=workload)


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_job_that_ended_with_its_engine_is_lost(
    plain_engine: Engine, on: Callable[..., DockerExecutor], job: Make, how: str
) -> None:
    executor = on(plain_engine)
    made = job(SLEEP)
    handle = _started(executor, made)
    if how == "restart":
        plain_engine.restart()
    else:
        plain_engine.kill()
        with pytest.raises(InfrastructureError, match="does not answer"):
            executor.status(handle)
        plain_engine.start()
    status = executor.status(handle)
    assert (status.state, status.exit_code) == ("lost", None)
    assert "engine was restarted" in status.reason
    executor.clean(made.run)
    assert plain_engine.left_of(made.run) == []


def test_output_ends_with_an_infrastructure_error_when_the_engine_goes(
    plain_engine: Engine, on: Callable[..., DockerExecutor], job: Make
) -> None:
    executor = on(plain_engine)
    made = job(SLEEP)
    handle = executor.start(executor.prepare(made, _quiet))
    pieces = executor.output(handle, lambda: False)
    assert next(pieces) == b"began\n"
    plain_engine.kill()
    with pytest.raises(InfrastructureError):
        next(pieces)
    plain_engine.start()


def test_a_container_that_somebody_stops_is_lost_not_failed(
    docker: DockerExecutor, job: Make, gpu_engine: Engine
) -> None:
    made = job(SLEEP)
    handle = _started(docker, made)
    gpu_engine.api.stop(handle.id, timeout=1)
    status = docker.status(handle)
    assert status.state == "lost"
    assert "stopped on its host" in status.reason
    gpu_engine.api.remove_container(handle.id, force=True)
    assert docker.status(handle).reason == "the engine does not know the container"
    docker.clean(made.run)


def test_an_engine_that_is_not_there_is_infrastructure(
    on: Callable[..., DockerExecutor], tmp_path: Path, job: Make
) -> None:
    executor = on(Engine(tmp_path))
    with pytest.raises(InfrastructureError, match=r"the engine of stage .* does not answer"):
        executor.prepare(job(""), _quiet)
    with pytest.raises(InfrastructureError):
        executor.clean("run_x")


def test_clean_removes_every_attempt_of_its_run_and_nothing_else(
    docker: DockerExecutor, job: Make, gpu_engine: Engine
) -> None:
    other, first = job(SLEEP), job(SLEEP)
    kept = _started(docker, other)
    before = gpu_engine.everything()
    _started(docker, first)
    second = Job(first.run, 2, "made-1", first.workload, image=first.image)
    docker.start(docker.prepare(second, _quiet))
    assert docker.clean(first.run) == 4
    assert docker.clean(first.run) == 0
    assert gpu_engine.everything() == before
    assert docker.status(kept).state == "running"
    docker.clean(other.run)
    assert gpu_engine.left_of(other.run) == []


def test_output_asks_every_second_whether_to_stop(docker: DockerExecutor, job: Make) -> None:
    made = job(SLEEP)
    handle = _started(docker, made)
    asked: list[float] = []

    def stop() -> bool:
        asked.append(time.monotonic())
        return len(asked) > 4

    list(docker.output(handle, stop))
    assert max(b - a for a, b in pairwise(asked)) < 1
    docker.clean(made.run)
