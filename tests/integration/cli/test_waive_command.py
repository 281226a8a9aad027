"""``compatgate matrix waive``, and what a dry run says before a waiver or a blessing is made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.resources import matrix_dir
from compatgate.web.local_gate import LocalClient

Run = Callable[..., tuple[int, str, str]]
STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": "sm_80"}
REVOKED = """\
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: torch24-cu124}
spec: {targets: [prod-a100], components: {torch: "~=2.4.0"}, status: revoked, reason: slow}
"""
BLESSED = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: strict}
spec:
  pools: [{name: a100, gpu: A100-SXM4-80GB, driver: 535.183.01, count: 7}]
  policy: {canary: {require: true, suites: [smoke]}}
---
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: torch24}
spec: {targets: [strict], components: {cuda: "12.2.*", torch: "~=2.4.0"}, status: blessed}
"""


@pytest.fixture
def denied(tmp_path: Path) -> tuple[str, str]:
    """A database where two stacks of a revoked entry were denied; and the id of one verdict."""
    path, revoked = tmp_path / "gate.db", tmp_path / "revoked.yaml"
    revoked.write_text(REVOKED)
    place = ("--database", str(path))
    assert main(["matrix", "import", str(matrix_dir() / "examples"), *place]) == 0
    assert main(["matrix", "import", str(revoked), *place]) == 0
    with LocalClient.open(str(path)) as local:
        verdict = local.client.ask(target="prod-a100", stack=STACK)
        local.client.ask(target="prod-a100", stack={**STACK, "torch": "2.4.0+cu124"})
    assert not verdict.allowed
    return str(path), verdict.id


def test_a_waiver_of_a_denial_lets_through_what_its_dry_run_said(
    command: Run, denied: tuple[str, str]
) -> None:
    database, verdict = denied
    words = ("matrix", "waive", verdict, "--name", "hurry", "--database", database)
    status, out, _ = command(*words, "--dry-run")
    assert status == 0
    assert "waiver hurry lets through, of the last 30 days: 1 stack, 1 decision, 512 nodes" in out
    assert "dry run: 1 would change" in out
    status, _, said = command(*words)
    assert (status, "--reason: is missing" in said) == (2, True)
    _, out, _ = command(*words, "--reason", "moves on Friday", "--format", "json")
    assert json.loads(out)["preview"] is None
    with LocalClient.open(database) as local:
        allowed = local.client.ask(target="prod-a100", stack=STACK)
        assert allowed.allowed
        other = {**STACK, "torch": "2.4.0+cu124"}
        assert not local.client.ask(target="prod-a100", stack=other).allowed
    status, _, said = command("matrix", "waive", allowed.id, "--dry-run", "--database", database)
    assert (status, "no finding to waive" in said) == (2, True)


def test_a_waiver_that_is_wider_than_its_denial_says_so_before_it_is_made(
    command: Run, denied: tuple[str, str], tmp_path: Path
) -> None:
    wide = tmp_path / "wide.yaml"
    wide.write_text(
        "apiVersion: compatgate.dev/v1\nkind: Waiver\nmetadata: {name: wide}\n"
        "spec: {rules: [CG802], targets: [prod-a100], owner: me, reason: why, expires: 2026-12-01,"
        " match: {components: {torch: '~=2.4.0'}}}\n"
    )
    _, out, _ = command("matrix", "import", str(wide), "--dry-run", "--database", denied[0])
    assert "waiver wide lets through, of the last 30 days: 2 stacks, 2 decisions" in out


def test_a_dry_run_of_a_blessing_names_the_canary_runs_that_it_lacks(
    command: Run, denied: tuple[str, str], tmp_path: Path
) -> None:
    blessed = tmp_path / "blessed.yaml"
    blessed.write_text(BLESSED)
    place = (str(blessed), "--database", denied[0])
    status, out, _ = command("matrix", "import", *place, "--dry-run")
    assert status == 0
    assert "suite smoke for torch24 on strict, A100-SXM4-80GB, driver 535.183.01" in out
    assert "a policy requires it" in out
    status, _, said = command("matrix", "import", *place)
    assert (status, "suite smoke for torch24 on strict" in said) == (2, True)
