"""``compatgate health --dmesg`` through the real command."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LOG = """\
[    5.100000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
[  100.000001] NVRM: Xid (PCI:0000:9b:00): 119, pid=2354, name=nvidia-smi, Timeout waiting for RPC from GSP0! Expected function 76
[  100.000001] NVRM: Xid (PCI:0000:9b:00): 119, pid=2354, name=nvidia-smi, Timeout waiting for RPC from GSP0! Expected function 76
[  106.000002] NVRM: Xid (PCI:0000:9b:00): 119, pid=2354, name=nvidia-smi, Timeout waiting for RPC from GSP0! Expected function 76
[  200.000003] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 28 LTSSM Fault Up
[  300.000004] NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python, MMU Fault
[  400.000005] NVRM: Xid (PCI:0000:3b:00): 63, pid=77, name=python, Row Remapper: New row marked for remapping
"""  # noqa: E501 - as the kernel writes them


def health(*arguments: str, stdin: bytes = b"", **environment: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "compatgate", "health", *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "dmesg.txt"
    path.write_text(LOG)
    return str(path)


def test_json_names_device_severity_and_action_of_each_error_once(log: str) -> None:
    answer = health("--dmesg", log, "--format", "json")
    assert answer.returncode == 1, answer.stderr
    document = json.loads(answer.stdout)
    found = [(e["xid"], e["sxid"], e["device"], e["severity"]) for e in document["events"]]
    assert found == [
        (119, None, "0000:9b:00", "fatal"),
        (None, 20034, "0000:c3:00", "fatal"),
        (31, None, "0000:3b:00", "warning"),
        (63, None, "0000:3b:00", "info"),
    ]
    first = document["events"][0]
    assert first["action"].startswith("RESET_GPU: ")
    assert first["count"] == 2
    assert document["driver"] == "535.104.05"


def test_standard_input_says_the_same(log: str) -> None:
    answers = [
        health("--dmesg", "-", "--format", "json", stdin=LOG.encode()),
        health("--dmesg", log, "--format", "json"),
    ]
    assert answers[0].returncode == 1
    assert len({str(json.loads(a.stdout)["events"]) for a in answers}) == 1


def test_text_tells_device_what_and_what_to_do(log: str) -> None:
    answer = health("--dmesg", log)
    assert b"FATAL    0000:9b:00  Xid 119  GSP RPC timeout" in answer.stdout
    out = " ".join(answer.stdout.decode().split())  # where lines are broken is up to the path
    assert "4 errors, 2 fatal" in out
    assert "RESET_GPU: stop every process" in out
    assert "2 times, from 100.000001 s after boot to 106.000002 s after boot" in out
    assert "\x1b" not in out


def test_nothing_fatal_is_0() -> None:
    answer = health("--dmesg", "-", stdin=b"[1.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=7, x\n")
    assert answer.returncode == 0
    assert b"WARNING" in answer.stdout
    assert health("--dmesg", "-", stdin=b"[1.0] Linux version 6.1\n").returncode == 0


@pytest.mark.parametrize("stdin", [b"", b"\n\n", bytes(range(128, 256)) * 40])
def test_a_log_that_says_nothing_is_3_and_still_json(stdin: bytes) -> None:
    answer = health("--dmesg", "-", "--format", "json", stdin=stdin)
    assert answer.returncode == 3
    assert json.loads(answer.stdout)["events"] == []
    assert answer.stderr.startswith(b"error: ")


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("--dmesg", "no/such/file"), b"", "cannot read 'no/such/file'"),
        (("--dmesg", "."), b"", "cannot read '.'"),
        (("--dmesg", "-"), gzip.compress(LOG.encode()), "zcat"),
        (("--dmesg", "-", "--driver", "new"), b"", "--driver: 'new' is not a version"),
        (("--dmesg", "-", "--format", "yaml"), b"", "invalid choice"),
    ],
)
def test_bad_input_is_2_on_one_line(arguments: tuple[str, ...], stdin: bytes, said: str) -> None:
    answer = health(*arguments, stdin=stdin)
    assert answer.returncode == 2
    assert said in answer.stderr.decode()
    assert len(answer.stderr.splitlines()) == 1


def test_an_overlay_changes_what_is_fatal(tmp_path: Path) -> None:
    overlay = tmp_path / "xid.yaml"
    overlay.write_text("schema: facts/xid/v1\nxids: [{xid: 31, severity: fatal}]\n")
    line = b"NVRM: Xid (PCI:0000:3b:00): 31, pid=7, x\n"
    assert health("--dmesg", "-", stdin=line).returncode == 0
    assert health("--dmesg", "-", stdin=line, COMPATGATE_FACTS=str(overlay)).returncode == 1


def test_an_overlay_changes_what_words_of_a_host_mean(tmp_path: Path) -> None:
    overlay = tmp_path / "signatures.yaml"
    overlay.write_text(
        "schema: facts/error_signatures/v1\nsignatures: [{id: probe-not-called, health: info}]\n"
    )
    line = b"NVRM: The NVIDIA probe routine was not called for 1 device(s).\n"
    assert health("--dmesg", "-", stdin=line).returncode == 1
    assert health("--dmesg", "-", stdin=line, COMPATGATE_FACTS=str(overlay)).returncode == 0


def test_terminal_sequences_in_a_log_do_not_reach_the_terminal() -> None:
    line = b"NVRM: Xid (PCI:0000:3b:00): 31, pid=7, \x1b]0;owned\x07 x\n"
    assert b"\x1b" not in health("--dmesg", "-", stdin=line).stdout


def test_help_names_the_exit_statuses() -> None:
    assert b"0  no fatal error" in health("--help").stdout
