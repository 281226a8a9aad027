"""The examples of deploy/ say what the program understands."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tables import read_table

from compatgate import RELEASE
from compatgate.canary.hosts_file import read_hosts
from compatgate.cli.main import parser_of

DEPLOY = Path(__file__).parents[3] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAM = "/opt/compatgate/bin/compatgate"


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = read_table(DEPLOY / "compose" / "compose.yaml")
    return loaded


def unit(path: Path) -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(path)
    return parsed


def understood(arguments: list[str]) -> dict[str, Any]:
    name, *rest = arguments
    return vars(parser_of(name).parse_args(rest))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_units(path: Path, tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed")
    here = tmp_path / path.name
    here.write_text(path.read_text().replace(PROGRAM, "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", "--man=no", here], capture_output=True, text=True, check=False
    )
    about = [line for line in done.stderr.splitlines() if path.stem in line]
    assert not about, done.stderr


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_the_program_understands_what_units_call(path: Path) -> None:
    program, *arguments = shlex.split(unit(path)["Service"]["ExecStart"])
    assert program == PROGRAM
    assert understood(arguments)


def test_systemd_waits_longer_than_the_workers_grace() -> None:
    service = unit(DEPLOY / "systemd" / "compatgate-worker.service")["Service"]
    grace = understood(shlex.split(service["ExecStart"])[1:])["grace"]
    assert int(service["TimeoutStopSec"]) > grace
    assert service["KillMode"] == "mixed", (
        "programs of the process executor are the worker's to end"
    )


@pytest.mark.parametrize("name", ["schema", "gate", "worker"])
def test_the_program_understands_what_containers_call(name: str) -> None:
    assert understood(compose()["services"][name]["command"])


@pytest.mark.parametrize("name", ["database", "schema", "gate", "worker"])
def test_containers_write_and_take_no_more_than_they_need(name: str) -> None:
    service = compose()["services"][name]
    assert service["read_only"]
    assert "/tmp" in service["tmpfs"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit", "cpus"} <= service.keys()


def test_the_image_installs_what_the_lock_names() -> None:
    text = (DEPLOY / "compose" / "Dockerfile").read_text()
    steps = re.findall(r"/build/bin/(pip install|uv \w+)((?:[^&\n]|\\\n)*)", text)
    assert [(name, checked) for name, rest in steps for checked in rest.split()
            if checked in ("--require-hashes", "--frozen", "--no-deps")] == [
        ("pip install", "--require-hashes"),
        ("uv sync", "--frozen"),
        ("uv build", "--require-hashes"),
        ("uv pip", "--no-deps"),
    ]  # fmt: skip
    assert len(re.findall(r"\b(?:pip|uv) (?:install|sync|build|pip)\b", text)) == len(steps)


def test_images_that_others_made_are_named_by_digest() -> None:
    base = re.findall(r"^ARG PYTHON=(.+)$", (DEPLOY / "compose" / "Dockerfile").read_text(), re.M)
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    defaults = re.findall(r"(\w+_IMAGE):-([^}]*)}", text)
    assert [("PYTHON_IMAGE", *base)] == [one for one in defaults if one[0] == "PYTHON_IMAGE"]
    assert len(defaults) == 2
    assert all(re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image) for _, image in defaults)


def test_containers_of_the_composition_start_in_order_and_stop_in_time() -> None:
    services = compose()["services"]
    assert services["gate"]["depends_on"]["schema"] == {
        "condition": "service_completed_successfully"
    }
    assert services["worker"]["depends_on"] == {"gate": {"condition": "service_started"}}
    assert "COMPATGATE_DATABASE" not in services["worker"]["environment"]
    assert services["schema"]["depends_on"]["database"] == {"condition": "service_healthy"}
    grace = understood(services["worker"]["command"])["grace"]
    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) > grace


def test_what_the_composition_names_is_there() -> None:
    made = compose()
    folder = DEPLOY / "compose"
    for service in made["services"].values():
        if build := service.get("build"):
            root = folder / build["context"]
            assert (root / build["dockerfile"]).is_file()
            assert (root / "pyproject.toml").is_file()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            known = source in made["volumes"] or source.startswith("/")
            assert known or (folder / source).is_file(), source


def test_no_password_is_written_down() -> None:
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    assert set(re.findall(r"PASSWORD[^\n]*?(\$\{POSTGRES_PASSWORD:\?)", text)) == {
        "${POSTGRES_PASSWORD:?"
    }
    assert not re.search(r"PASSWORD: *\"?[A-Za-z0-9]+\"?$", text, re.MULTILINE)


def test_the_example_of_hosts_can_be_read() -> None:
    (host,) = read_hosts(DEPLOY / "hosts.toml")
    assert (host.slots, len(host.quiet)) == (8, 1)


def test_the_examples_name_the_image_of_this_version() -> None:
    found = {
        (path.relative_to(DEPLOY).as_posix(), version)
        for path in DEPLOY.glob("**/*")
        if path.is_file()
        for version in re.findall(r"\bcompatgate:(\d[\w.]*)", path.read_text())
    }
    assert {file for file, _ in found} >= {
        "argo-rollouts/analysis-template-files.yaml",
        "ci/tekton/compatgate-check.yaml",
        "helm-hook/values.yaml",
    }
    assert {version for _, version in found} == {RELEASE}
