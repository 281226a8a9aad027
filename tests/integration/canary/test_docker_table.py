"""The tables of docs/how-to/staging-hosts.md say what a real engine shows of a container."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from engines import Engine

from compatgate.canary.executors import Job
from compatgate.canary.executors.docker import DockerExecutor
from compatgate.canary.workload import FOLDER, Limits
from compatgate.resources import package_dir

PAGE = package_dir().parent / "docs" / "how-to" / "staging-hosts.md"
_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| `([\w.]+)` \| ([^|]+) \|$", re.M)
ROWS = [tuple(map(str.strip, row.groups())) for row in _ROW.finditer(PAGE.read_text())]


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """What the engine shows, once for all rows."""
    return {}


@pytest.fixture
def inspected(
    shown: dict[str, Any],
    docker: DockerExecutor,
    job: Callable[..., Job],
    run: Callable[..., Any],
    gpu_engine: Engine,
) -> tuple[dict[str, Any], Limits]:
    if not shown:
        made = job("print(1)")
        handle = run(docker, made).handle
        shown["container"] = gpu_engine.api.inspect_container(handle.id)
        shown["limits"] = made.workload.limits
    return shown["container"], shown["limits"]


def _at(container: dict[str, Any], path: str) -> Any:
    for part in path.split("."):
        container = container[part]
    return container


def test_the_table_names_what_matters() -> None:
    paths = {path.rpartition(".")[2] for _, path, _ in ROWS}
    needed = {"NetworkMode", "ReadonlyRootfs", "CapDrop", "SecurityOpt", "Memory", "PidsLimit"}
    assert needed <= paths
    assert len(ROWS) >= 20


@pytest.mark.parametrize(("subject", "path", "value"), ROWS, ids=[path for _, path, _ in ROWS])
def test_the_engine_shows_what_the_table_says(
    inspected: tuple[dict[str, Any], Limits], subject: str, path: str, value: str
) -> None:
    container, limits = inspected
    found = _at(container, path)
    if path == "Mounts":
        places = {mount["Destination"] for mount in found}
        assert places == {FOLDER}
        assert all(mount["Type"] == "volume" and not mount["RW"] for mount in found)
    elif path == "HostConfig.Tmpfs":
        assert found
        assert all(f"size={limits.tmp}" in options for options in found.values())
    elif path == "HostConfig.Ulimits":
        assert found == [{"Name": "core", "Hard": 0, "Soft": 0}]
    elif limit := re.fullmatch(r"\*limits\.(\w+)\*", value):
        assert found == getattr(limits, limit[1]), subject
    else:
        assert (found or None) == (_read(value) or None), subject


def _read(value: str) -> Any:
    """The value of a cell: JSON, or text as it is."""
    text = value.strip("`")
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_no_namespace_of_the_host_is_joined(inspected: tuple[dict[str, Any], Limits]) -> None:
    host = inspected[0]["HostConfig"]
    modes = [host[name] for name in ("PidMode", "UTSMode", "UsernsMode", "IpcMode")]
    assert modes == ["", "", "", "private"]
    assert not host["VolumesFrom"]
    assert not inspected[0]["NetworkSettings"]["Ports"]
