"""The examples of the pages on deploy webhooks and driver roll-outs, and the files of deploy/."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import prepared
import pytest
import yaml
from page_examples import HOST, matches, read_examples
from tables import read_table

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "docs" / "how-to" / "deploy-webhooks.md",
    ROOT / "docs" / "how-to" / "driver-rollouts.md",
]
DEPLOY = ROOT / "deploy"
SIGNED = "http://127.0.0.1:8081"
KUBERNETES = "1.37"
Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs commands where ``compatgate`` is this one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    shutil.copy2(prepared.program(), programs)

    def run(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{programs}:{os.environ['PATH']}"
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "TMPDIR": str(tmp_path)}
        return subprocess.run(
            ["sh", "-c", command],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env={**variables, **environment},
            check=False,
        )

    return run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_print_what_the_page_says(
    page: Path, shared: Any, run_serve: Any, shell: Shell, tmp_path: Path
) -> None:
    if not (shutil.which("curl") and shutil.which("openssl")):
        pytest.skip("no curl or no openssl")
    places = {HOST: f"http://127.0.0.1:{shared.port}"}
    for command, expected in read_examples(page):
        if SIGNED in command and SIGNED not in places:
            options = ("--database", str(tmp_path / "signed.db"), "--matrix", "matrix/examples")
            keyed = run_serve(*options, "--hook-secret", f"ci={tmp_path}/ci.key")
            places[SIGNED] = f"http://127.0.0.1:{keyed.port}"
        text, wanted = command, expected
        for stated, place in places.items():
            text, wanted = text.replace(stated, place), wanted.replace(stated, place)
        done = shell(text)
        assert matches(wanted, done.stdout), f"{command}\n{done.stdout}{done.stderr}"


def test_there_are_examples() -> None:
    assert [len(read_examples(page)) for page in PAGES] == [9, 5]


def test_flagger_gets_an_answer_to_each_webhook_of_the_canary(shared: Any) -> None:
    canary = read_table(DEPLOY / "flagger" / "canary.yaml")
    for webhook in canary["spec"]["analysis"]["webhooks"]:
        assert webhook["metadata"]["type"] == webhook["type"]
        payload = {
            "name": canary["metadata"]["name"],
            "namespace": canary["metadata"]["namespace"],
            "phase": "Progressing",
            "checksum": "85d557f47b",
            "metadata": webhook["metadata"],
        }
        path = webhook["url"].partition(".svc")[2]
        answer = shared.ask("POST", path, payload)
        assert answer.status == (409 if webhook["type"] == "rollback" else 200), answer.body


def test_a_client_that_states_only_a_url_is_let_in_by_its_password(
    run_serve: Any, shell: Shell, tmp_path: Path
) -> None:
    database = str(tmp_path / "gate.db")
    closed = run_serve("--database", database, "--matrix", "matrix/examples", "--anonymous", "none")
    question = '{"target": "prod-a100", "stack": "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"}'
    sent = f"-H 'Content-Type: application/json' -d '{question}'"
    asked = f"curl -s -o /dev/null -w '%{{http_code}}' {sent}"
    for who, status in (("", 401), ("flagger:cg_wrong@", 401), (f"flagger:{closed.token}@", 200)):
        done = shell(f"{asked} http://{who}127.0.0.1:{closed.port}/hooks/generic")
        assert done.stdout == str(status)


def test_ansible_asks_with_a_command_that_the_program_understands(
    shared: Any, shell: Shell
) -> None:
    (play,) = read_table(DEPLOY / "ansible" / "driver.yaml")
    argv = play["tasks"][0]["ansible.builtin.command"]["argv"]
    server = f"http://127.0.0.1:{shared.port}"
    for target, pool, driver, status in (
        ("prod-a100", "a100-80", "535.216.01", 0),
        ("prod-a100", "a100-80", "470.256.02", 1),
        ("inference-l4", "l4", "999.10", 3),
    ):
        values = {"target": target, "pool": pool, "driver": driver}
        filled = [re.sub(r"\{\{ (\w+) \}\}", lambda m, v=values: v[m[1]], part) for part in argv]
        done = shell(" ".join(filled), COMPATGATE_SERVER=server)
        assert done.returncode == status, done.stdout + done.stderr


KUBECTL = """\
#!/bin/sh
case "$*" in
*"-o name") echo node/gpu-1; echo node/gpu-2;;
*"-o json") cat "$NODES/${2#node/}.json";;
*) echo "$@" >> "$NODES/calls";;
esac
"""
"""What the script asks of kubectl, answered from files."""


HELD = ["label --overwrite node/gpu-1 S=true", "label --overwrite node/gpu-2 S=true"]
RELEASED = ["label node/gpu-1 S-", "label node/gpu-2 S-"]


@pytest.mark.parametrize(
    ("product", "driver", "status", "calls"),
    [
        ("NVIDIA-A100-SXM4-80GB", "535.216.01", 0, RELEASED),
        ("NVIDIA-A100-SXM4-80GB", "470.256.02", 1, HELD),
        ("NVIDIA-L4", "999.10", 3, HELD),
    ],
)
def test_nodes_are_released_or_held_by_the_label_of_the_gpu_operator(
    shared: Any,
    shell: Shell,
    tmp_path: Path,
    product: str,
    driver: str,
    status: int,
    calls: list[str],
) -> None:
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    for name in ("gpu-1", "gpu-2"):
        labels = {"nvidia.com/gpu.product": product}
        node = {"kind": "Node", "metadata": {"name": name, "labels": labels}}
        (tmp_path / f"{name}.json").write_text(json.dumps(node))
    script = DEPLOY / "gpu-operator" / "roll-driver.sh"
    known = {"NODES": str(tmp_path), "COMPATGATE_SERVER": f"http://127.0.0.1:{shared.port}"}
    assert shell(f"{script} hold", **known).returncode == 0
    done = shell(f"{script} release {driver}", **known)
    assert done.returncode == status, done.stdout + done.stderr
    skip = "nvidia.com/gpu-driver-upgrade.skip"
    made = (tmp_path / "calls").read_text().replace(skip, "S").splitlines()
    assert made == [*HELD, *calls]


@pytest.mark.parametrize("arguments", ["hold", "release 535.216.01"])
@pytest.mark.parametrize("nodes", ["exit 1", "exit 0"])
def test_a_cluster_that_shows_no_node_is_no_permission(
    shell: Shell, tmp_path: Path, arguments: str, nodes: str
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n{nodes}\n")
    kubectl.chmod(0o755)
    script = DEPLOY / "gpu-operator" / "roll-driver.sh"
    done = shell(f"PATH={tmp_path}:$PATH {script} {arguments}")
    assert done.returncode in (1, 3), done.stdout + done.stderr


def test_kubernetes_takes_what_the_script_is_allowed() -> None:
    text = (DEPLOY / "gpu-operator" / "rbac.yaml").read_text()
    for made in yaml.load_all(text, yaml.CSafeLoader):
        kubernetes_validate.validate(made, KUBERNETES, strict=True)


def test_the_script_explains_itself(shell: Shell) -> None:
    done = shell(f"{DEPLOY / 'gpu-operator' / 'roll-driver.sh'}")
    assert done.returncode == 2
    assert "hold back every GPU node" in done.stderr
