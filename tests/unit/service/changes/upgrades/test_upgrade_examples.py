"""The six examples of the page on upgrades, as their tools would run them against a served gate."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

import jinja2
import kubernetes_validate
import prepared
import pytest
import yaml
from deploy_examples import definition_of, schema_of, vendor_schema
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from upgrade_fleet import Fleet
from werkzeug.serving import make_server

from compatgate.cli.nodes import EXIT
from compatgate.core.upgrades import Answer
from compatgate.service.app import Rooms
from compatgate.web.app import create_app
from compatgate.web.service import Settings

PAGE = Path(__file__).parents[5] / "docs" / "how-to" / "upgrades.md"
KUBERNETES = "1.37"
STAND_IN = '#!/bin/sh\necho "$@" >> "$CALLS"\n'
Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


def example(tool: str) -> str:
    """The block of code below the heading of a tool."""
    part = PAGE.read_text().partition(f"### {tool}\n")[2]
    found = re.search(r"^```\w+\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    assert found, tool
    return found[1]


@pytest.fixture
def fleet(rooms: Rooms, client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet(rooms, client, monkeypatch)
    assert made.propose("prod-580").status_code == 201
    return made


@pytest.fixture
def served(fleet: Fleet) -> Iterator[str]:
    """The gate of the fleet over HTTP, in a thread of this process."""
    server = make_server("127.0.0.1", 0, create_app(fleet.rooms, Settings(anonymous=frozenset())))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def shell(fleet: Fleet, served: str, tmp_path: Path) -> Shell:
    """Runs commands with a token for a tool, and stand-ins that note how they are called."""
    for name in ("jq", "curl"):
        if shutil.which(name) is None:
            pytest.skip(f"no {name}")
    programs = tmp_path / "bin"
    programs.mkdir()
    shutil.copy2(prepared.program(), programs)
    for name in ("kubectl", "scontrol"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    token = fleet.tool["Authorization"].removeprefix("Bearer ")
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls"),
        "COMPATGATE_SERVER": served, "COMPATGATE_TOKEN": token, "TMPDIR": str(tmp_path),
    }  # fmt: skip

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=60, cwd=tmp_path,
            env={**os.environ, **variables}, check=False,
        )  # fmt: skip

    return run


def complaints(schema: dict[str, Any], found: Any) -> list[str]:
    """What the definition of a tool has against a part of its configuration."""
    return [error.message for error in Draft202012Validator(schema).iter_errors(found)]


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def stop(fleet: Fleet) -> None:
    assert fleet.act("stop", name="prod-580", reason="pager").status_code == 200


def test_gpu_operator_releases_the_nodes_of_a_wave_that_may_start(
    shell: Shell, fleet: Fleet, tmp_path: Path
) -> None:
    released = ["label node n1 nvidia.com/gpu-driver-upgrade.skip-"]
    done = shell(example("GPU Operator"))
    assert (done.returncode, calls(tmp_path)) == (0, released), done.stderr
    stop(fleet)
    waits = shell(example("GPU Operator"))
    assert (waits.returncode, calls(tmp_path)) == (3, released), "nothing more is released"


def test_slurm_reserves_the_nodes_of_a_wave_that_may_start(shell: Shell, tmp_path: Path) -> None:
    text = example("Slurm")
    assert shell(text).returncode == 3, "wave 2 waits for wave 1"
    assert calls(tmp_path) == []
    done = shell(text.replace("--wave 2", "--wave 1"))
    assert done.returncode == 0, done.stderr
    (reserved,) = calls(tmp_path)
    assert reserved.startswith("create reservation ReservationName=prod-580-2 ")
    assert reserved.endswith(" Nodes=n1")


def test_flagger_goes_on_only_where_the_wave_may_start_or_is_done(
    shell: Shell, fleet: Fleet
) -> None:
    (hook,) = yaml.safe_load(example("Flagger"))["webhooks"]
    canary = schema_of(definition_of("flagger")["fields"])["properties"]["spec"]["properties"]
    hooks = canary["analysis"]["properties"]["webhooks"]["items"]
    assert complaints(hooks, hook) == []
    assert complaints(hooks, {**hook, "type": "confirm"}) != []
    assert (hook["type"], hook["metadata"]["type"]) == ("pre-rollout", "bash")
    named = re.search(r"\((.*)\)", hook["metadata"]["cmd"])
    assert named
    assert set(named[1].split("|")) == {name for name, status in EXIT.items() if status == 0}
    assert shell(hook["metadata"]["cmd"]).returncode == 0
    stop(fleet)
    assert shell(hook["metadata"]["cmd"]).returncode == 1
    assert shell(hook["metadata"]["cmd"].replace("prod-580", "none")).returncode != 0


def test_argo_retries_what_waits_and_fails_on_a_rollback(shell: Shell, fleet: Fleet) -> None:
    (template,) = yaml.safe_load(example("Argo Workflows"))
    schema = vendor_schema("Template")
    assert complaints(schema, template) == []
    assert complaints(schema, {**template, "retryStrategy": {"limits": 3}}) != []
    container = {"name": "main", **template["container"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    kubernetes_validate.validate(
        pod | {"spec": {"containers": [container]}}, KUBERNETES, strict=True
    )
    expression = template["retryStrategy"]["expression"]
    assert re.fullmatch(r"asInt\(lastRetry\.exitCode\) == (\d)", expression)
    assert expression.endswith(f"== {EXIT['wait']}")
    words = " ".join([*container["command"], *container["args"]])
    command = words.replace("{{inputs.parameters.wave}}", "1").replace("{{workflow.name}}", "argo")
    assert "{{" not in command
    assert shell(command).returncode == EXIT["start"]
    stop(fleet)
    assert shell(command).returncode == EXIT["wait"]
    fleet.act("roll-back", name="prod-580", reason="no")
    assert shell(command).returncode == EXIT["roll back"]


def ask(fleet: Fleet, url: str) -> Any:
    """The answer to the address of an example."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    answer = fleet.client.get(parts.path, query_string=query, headers=fleet.tool)
    assert answer.status_code == 200, answer.text
    return answer.get_json()


def test_kargo_succeeds_waits_or_fails_by_the_answer(fleet: Fleet) -> None:
    (step,) = yaml.safe_load(example("Kargo"))
    config = step["config"]
    schema = schema_of(definition_of("kargo")["fields"])
    assert complaints(schema, step) == []
    assert complaints(schema, {**step, "config": {**config, "body": {}}}) != []
    assert (step["uses"], config["headers"][0]["name"]) == ("http", "Authorization")
    good = re.findall(r"'([^']*)'", config["successExpression"])
    bad = re.findall(r"'([^']*)'", config["failureExpression"])
    assert {*good, *bad} == set(get_args(Answer)) - {"wait"}
    assert ask(fleet, config["url"])["answer"] in good
    final = re.search(r"response\.status in \[([\d, ]+)\]", config["failureExpression"])
    assert final, "a wrong name or token would wait for two days"
    unknown = urlsplit(config["url"]).path.replace("prod-580", "none")
    for headers in ({}, fleet.tool):
        status = fleet.client.get(unknown, headers=headers).status_code
        assert str(status) in final[1].split(", ")
    fleet.act("roll-back", name="prod-580", reason="no")
    assert ask(fleet, config["url"])["answer"] in bad


def test_ansible_asks_until_it_no_longer_waits_and_stops_unless_it_may_start(
    fleet: Fleet,
) -> None:
    wait, require = yaml.safe_load(example("Ansible"))
    module = wait["ansible.builtin.uri"]
    until = jinja2.Environment().compile_expression(wait["until"])
    holds = jinja2.Environment().compile_expression(require["ansible.builtin.assert"]["that"])
    values = {"gate": "http://gate", "wave": 1, "token": "cg_x"}
    url = jinja2.Template(module["url"]).render(values)
    found = {"asked": {"status": 200, "json": ask(fleet, url)}}
    assert (until(**found), holds(**found)) == (True, True)
    stop(fleet)
    assert until(asked={"status": 200, "json": ask(fleet, url)}) is False
    for status in (-1, 502, 503, 504):
        assert until(asked={"status": status}) is False, "a gate that is away is asked again"
    assert holds(asked={"json": {"answer": "done"}}), "as for the exit status of the command"
    assert until(asked={"status": 403, "json": {"title": "Forbidden"}}) is True
    fleet.act("roll-back", name="prod-580", reason="NCCL times out")
    found = {"asked": {"status": 200, "json": ask(fleet, url)}}
    assert (until(**found), holds(**found)) == (True, False)
    said = jinja2.Template(require["ansible.builtin.assert"]["fail_msg"]).render(found)
    assert "NCCL times out" in said
