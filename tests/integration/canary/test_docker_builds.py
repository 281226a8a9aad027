"""What is built for a workload: on images that it names, confined, not on the image under test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from engines import PYTHON, Engine, load_python

from compatgate.canary.executors import Job
from compatgate.canary.executors.docker import DockerExecutor, images
from compatgate.canary.workload import ImageSpec
from compatgate.errors import BadInput

Make = Callable[..., Job]
TOOL = ImageSpec(context=".", tool="/opt/made")
TRIGGER = "RUN touch /opt/ran-unseen"


def _quiet(doing: str, share: float | None) -> None:
    pass


@pytest.fixture
def build(job: Make) -> Make:
    """A job of a workload with a Dockerfile."""

    def make(dockerfile: str, program: str = "", image: ImageSpec = TOOL, **fields: Any) -> Job:
        made = job(program, **fields)
        assert made.workload.folder
        (made.workload.folder / "Dockerfile").write_text(dockerfile)
        workload = msgspec.structs.replace(made.workload, image=image)
        return msgspec.structs.replace(made, workload=workload)

    return make


@pytest.fixture
def hostile(gpu_engine: Engine) -> Iterator[str]:
    """An image under test that would have commands run in whatever is built on it."""
    repository = "compatgate-test/hostile"
    load_python(gpu_engine.api, repository=repository, changes=[f"ONBUILD {TRIGGER}"])
    yield f"{repository}:1"
    gpu_engine.api.remove_image(f"{repository}:1", force=True)


def test_a_tool_is_built_without_the_image_under_test_and_mounted_into_it(
    docker: DockerExecutor,
    build: Make,
    run: Callable[..., Any],
    gpu_engine: Engine,
    hostile: str,
) -> None:
    program = """
import os, pathlib
print(pathlib.Path("/opt/made/result").read_text().strip(), os.listdir("/opt"))
try:
    open("/opt/made/result", "a")
except OSError as error:
    print(error.strerror)
"""
    before = gpu_engine.everything()
    made = build(
        f"FROM {PYTHON}\nRUN mkdir -p /opt/made && echo compiled > /opt/made/result\n",
        program,
        user="image",
    )
    ran = run(docker, msgspec.structs.replace(made, image=hostile))
    assert ran.output == b"compiled ['made']\nRead-only file system\n"
    assert ran.handle.image == gpu_engine.api.inspect_image(hostile)["Id"]
    assert docker.clean(made.run) == 3, "container and two volumes; the tool's image stays"
    (built,) = gpu_engine.api.images(filters={"label": images.BUILT}, quiet=True)
    gpu_engine.api.remove_image(built, force=True)
    assert gpu_engine.everything() == before


def test_a_tool_is_built_once_for_all_runs_and_anew_when_its_files_change(
    docker: DockerExecutor, build: Make, gpu_engine: Engine
) -> None:
    text = f"FROM {PYTHON}\nRUN mkdir -p /opt/made && date +%N > /opt/made/result\n"
    first = docker.prepare(build(text), _quiet).tool
    told: list[str] = []
    again = docker.prepare(build(text), lambda doing, _: told.append(doing)).tool
    assert again == first
    assert not any(doing.startswith("building") for doing in told)
    changed = docker.prepare(build(f"{text}RUN true\n"), _quiet).tool
    assert changed != first
    here = gpu_engine.api.images(filters={"label": images.BUILT}, quiet=True)
    assert here == [changed], "the earlier one is removed"
    gpu_engine.api.remove_image(changed, force=True)


def test_an_image_of_a_registry_cannot_pass_for_a_built_tool(
    docker: DockerExecutor, build: Make, gpu_engine: Engine
) -> None:
    """Whoever pushes an image may give it any label."""
    made = build(f"FROM {PYTHON}\nRUN mkdir -p /opt/made\n")
    real = docker.prepare(made, _quiet).tool
    assert real
    labels = gpu_engine.api.inspect_image(real)["Config"]["Labels"]
    gpu_engine.api.remove_image(real, force=True)
    claims = [f"LABEL {name}={value}" for name, value in labels.items()]
    load_python(gpu_engine.api, repository="compatgate-test/claims", changes=claims)
    false = gpu_engine.api.inspect_image("compatgate-test/claims:1")["Id"]
    found = docker.prepare(made, _quiet).tool
    assert found
    assert found != false
    for image in (found, "compatgate-test/claims:1"):
        gpu_engine.api.remove_image(image, force=True)


def test_a_build_that_adds_too_much_is_refused_and_removed(
    docker: DockerExecutor, build: Make, gpu_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_BUILT_BYTES", 1 << 20)
    step = "RUN mkdir -p /opt/made && dd if=/dev/zero of=/opt/made/big bs=1M count=3"
    with pytest.raises(BadInput, match=r"adds \d+ bytes to its base image"):
        docker.prepare(build(f"FROM {PYTHON}\n{step}\n"), _quiet)
    assert not gpu_engine.api.images(filters={"label": images.BUILT}, quiet=True)


def test_nothing_is_built_on_the_image_under_test(
    docker: DockerExecutor, build: Make, gpu_engine: Engine, hostile: str
) -> None:
    before = gpu_engine.everything()
    told: list[str] = []
    for step in ("RUN touch /opt/ran", "COPY program.py /opt/program.py"):
        text = f"ARG BASE={PYTHON}\nFROM ${{BASE}}\n{step}\n"
        made = build(text, image=ImageSpec(context="."))
        with pytest.raises(BadInput, match="ARG BASE") as error:
            docker.prepare(
                msgspec.structs.replace(made, image=hostile), lambda doing, _: told.append(doing)
            )
        assert "inside = true" in error.value.hint
    assert told == []
    assert gpu_engine.everything() == before


def test_triggers_of_a_base_are_refused_by_name(
    docker: DockerExecutor, build: Make, gpu_engine: Engine, hostile: str
) -> None:
    before = gpu_engine.everything()
    made = build(f"FROM {hostile}\nRUN mkdir -p /opt/made\n")
    with pytest.raises(BadInput, match=f"{hostile} has ONBUILD triggers") as error:
        docker.prepare(made, _quiet)
    assert TRIGGER in error.value.problem
    assert gpu_engine.everything() == before


def test_a_build_has_no_network_and_its_failure_is_told(
    docker: DockerExecutor, build: Make
) -> None:
    step = "RUN python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 80))'"
    with pytest.raises(BadInput, match="does not build") as error:
        docker.prepare(build(f"FROM {PYTHON}\n{step}\n"), _quiet)
    assert "network = true" in error.value.hint


def test_a_build_has_a_network_only_where_the_host_allows_it(
    gpu_engine: Engine, on: Callable[..., DockerExecutor], build: Make
) -> None:
    wants = ImageSpec(context=".", tool="/opt/made", network=True)
    made = build(f"FROM {PYTHON}\nRUN mkdir -p /opt/made\n", image=wants)
    with pytest.raises(BadInput, match="stage does not allow that") as error:
        on(gpu_engine).prepare(made, _quiet)
    assert error.value.field == "image.network"
    assert "build_network = true" in error.value.hint
    assert on(gpu_engine, build_network=True).prepare(made, _quiet).tool


def test_a_build_without_a_network_downloads_nothing_through_the_engine(
    docker: DockerExecutor, build: Make
) -> None:
    text = f"FROM {PYTHON}\nADD \\\n  https://example.org/source.tar.gz /tmp/\n"
    with pytest.raises(BadInput, match=r"downloads https://example\.org/source\.tar\.gz"):
        docker.prepare(build(text), _quiet)


def test_a_step_has_the_workloads_memory(
    docker: DockerExecutor, build: Make, run: Callable[..., Any]
) -> None:
    places = "/sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes"
    made = build(
        f"FROM {PYTHON}\nRUN mkdir -p /opt/made && cat {places} > /opt/made/limit; true\n",
        "print(open('/opt/made/limit').read().strip())",
    )
    assert int(run(docker, made).output) == made.workload.limits.memory


def test_a_build_that_takes_too_long_is_ended(
    docker: DockerExecutor, build: Make, gpu_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_BUILD_S", 3.0)
    with pytest.raises(BadInput, match="does not build within 3 s"):
        docker.prepare(build(f"FROM {PYTHON}\nRUN sleep 600\n"), _quiet)
    until = time.monotonic() + 30
    while any("sleep 600" in c["Command"] for c in gpu_engine.api.containers()):
        assert time.monotonic() < until, "the step goes on"
        time.sleep(0.2)


def test_a_tool_that_the_build_does_not_make_is_named(
    docker: DockerExecutor, build: Make, run: Callable[..., Any]
) -> None:
    with pytest.raises(BadInput, match="does not create the folder /opt/made"):
        run(docker, build(f"FROM {PYTHON}\nRUN true\n"))


def test_without_an_image_under_test_the_job_runs_in_what_was_built(
    docker: DockerExecutor, build: Make, run: Callable[..., Any]
) -> None:
    text = f"FROM {PYTHON}\nRUN mkdir -p /opt/made && echo compiled > /opt/made/result\n"
    made = build(text, "print(open('/opt/made/result').read().strip())", image=TOOL)
    ran = run(docker, msgspec.structs.replace(made, image=None))
    assert ran.output == b"compiled\n"
