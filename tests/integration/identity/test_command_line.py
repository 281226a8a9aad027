"""The device flow with the real command, at a real issuer: login, use, whoami, logout."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from oidc_issuer import Browser, Issuer
from serving import Server

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def env(tmp_path: Path, gate_url: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
    own = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    return {**kept, **own, "COMPATGATE_SERVER": gate_url}


@pytest.fixture
def run(env: dict[str, str]) -> Run:
    def running(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "compatgate", *args]
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    return running


@pytest.fixture
def login(env: dict[str, str], browser: Browser) -> Callable[..., tuple[int, str, str]]:
    """Runs ``compatgate login`` while a person signs in with their browser, or refuses."""

    def signing_in(name: str, *, refuse: bool = False) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "compatgate", "login"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True) as process:
            guard = threading.Timer(60, process.kill)
            guard.start()
            assert process.stdout
            assert process.stderr
            told = ""
            for line in process.stdout:
                told += line
                if line.startswith("waiting"):
                    _visit(browser, told, name, refuse)
            errors = process.stderr.read()
            guard.cancel()
        return process.returncode, told, errors

    return signing_in


def _visit(browser: Browser, told: str, name: str, refuse: bool) -> None:
    place = re.search(r"open +(\S+)", told)
    code = re.search(r"enter +(\S+)", told)
    assert place
    assert code
    page = browser.send(browser.get(place[1]), user_code=code[1])
    assert code[1] in page.text
    if refuse:
        page = browser.send(page, abort="yes")
        return
    page = browser.sign_in(browser.send(page, confirm="yes"), name)
    assert "success" in page.text.lower()


def test_a_person_signs_in_asks_and_signs_out(
    served: Server, issuer: Issuer, login: Callable[..., tuple[int, str, str]], run: Run,
    tmp_path: Path, gate_url: str,
) -> None:  # fmt: skip
    status, told, errors = login("bo")
    assert status == 0, errors
    assert f"signed in to {gate_url} as bo@example.org until " in told
    (file,) = (tmp_path / "config" / "compatgate" / "credentials").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = json.loads(file.read_text())
    assert kept["secret"] not in told + errors
    assert run("whoami").stdout == "bo@example.org (bo) (person), scopes: gate, read\n"
    caller = json.loads(run("whoami", "--format", "json").stdout)
    assert (caller["kind"], caller["targets"], caller["id"]) == (
        "person",
        ["prod-*"],
        kept["session"],
    )
    stack = "cuda=12.4,arch=sm_80+compute_80"
    asked = run("check", "--target", "prod-a100", "--stack", stack, "--format", "json")
    assert json.loads(asked.stdout)["target"] == "prod-a100", asked.stderr
    outside = run("check", "--target", "lab-a100", "--stack", stack)
    assert outside.returncode == 2
    assert "limited to prod-*" in outside.stderr
    decisions = served.ask("GET", "/api/v1/decisions", headers=served.bearer).json()["items"]
    assert decisions[0]["asked_by"] == "bo@example.org (bo)"
    named = run("whoami", "--token", "cg_of_nobody")
    assert named.returncode == 2
    assert "the token is unknown" in named.stderr
    assert run("logout").stdout == f"signed out of {gate_url}\n"
    assert not file.exists()
    bearer = {"Authorization": f"Bearer {kept['secret']}"}
    assert served.ask("GET", "/api/v1/caller", headers=bearer).status == 401
    assert run("whoami").stdout == "anonymous (anonymous), scopes: none\n"
    assert run("logout").returncode == 2


def test_who_refuses_is_not_signed_in(
    served: Server, issuer: Issuer, login: Callable[..., tuple[int, str, str]], run: Run
) -> None:
    status, _, errors = login("bo", refuse=True)
    assert status == 2
    assert "the sign-in was refused" in errors
    assert "not signed in" in run("logout").stderr


def test_a_person_without_a_group_gets_no_session(
    served: Server, issuer: Issuer, login: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    status, _, errors = login("cy")
    assert status == 2
    assert "no group of this account may use this gate" in errors
    assert not (tmp_path / "config").exists()


def test_a_file_that_others_may_read_is_refused(
    served: Server, issuer: Issuer, login: Callable[..., tuple[int, str, str]], run: Run,
    tmp_path: Path,
) -> None:  # fmt: skip
    login("bo")
    (file,) = (tmp_path / "config" / "compatgate" / "credentials").iterdir()
    file.chmod(0o644)
    refused = run("whoami")
    assert refused.returncode == 2
    assert f"{file} is readable by other users (chmod 600 {file})" in refused.stderr
