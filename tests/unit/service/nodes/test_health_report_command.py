"""``compatgate health --report``: periods and Xid errors that reach the gate."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.kit import clock
from compatgate.service.app import Rooms
from compatgate.service.nodes.health import load_health

XID = "NVRM: Xid (PCI:0000:9b:00): %d, pid=7, name=python"


def log(folder: Path, *errors: tuple[float, int]) -> str:
    """A kernel log with errors so many minutes ago."""
    lines = [
        f"{(clock.now() - timedelta(minutes=minutes)).isoformat()} {XID % xid}"
        for minutes, xid in errors
    ]
    path = folder / "kern.log"
    path.write_text("".join(f"{line}\n" for line in ["boot NVRM: here", *lines]))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], rooms: Rooms, *words: str) -> tuple[int, str]:
    where = ("--database", str(rooms.gate.database.url.database))
    status = main(["health", "--report", "--name", "n1", "--cluster", "eu", *words, *where])
    output = capsys.readouterr()
    return status, output.out + output.err


def stored(rooms: Rooms) -> tuple[list[str], list[int]]:
    """Drivers of the watched periods of n1, and its errors."""
    with rooms.gate.database.reading() as session:
        periods, errors = load_health(session, [("eu", "n1")], clock.now() - timedelta(days=1))
    return [one.driver for one in periods], sorted(one.xid for one in errors)


@pytest.fixture(autouse=True)
def booted(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has been up for long enough."""
    long_ago = clock.now() - timedelta(days=9)
    monkeypatch.setattr("compatgate.canary.health.kernel_log.read_boot_time", lambda: long_ago)


def test_errors_of_the_period_are_stored_once(rooms: Rooms, capsys, tmp_path: Path) -> None:
    path = log(tmp_path, (50, 13), (4, 79), (2, 48))
    status, text = run(capsys, rooms, "--dmesg", path, "--driver", "580.95.05")
    assert (status, text) == (0, "eu/n1: 600 s on driver 580.95.05, 2 new Xid errors\n")
    again = run(capsys, rooms, "--dmesg", path, "--driver", "580.95.05", "--since", "1h")
    assert again[0] == 0
    assert "1 new Xid error" in again[1]
    assert stored(rooms) == (["580.95.05"], [13, 48, 79])


def test_a_quiet_log_is_worth_a_report(rooms: Rooms, capsys, tmp_path: Path) -> None:
    given = ("--dmesg", log(tmp_path), "--driver", "580.95.05", "--format", "json")
    status, text = run(capsys, rooms, *given)
    assert (status, json.loads(text)["xids"]) == (0, 0)
    assert stored(rooms) == (["580.95.05"], [])


def test_more_errors_than_a_report_takes_are_sent_in_parts(rooms, capsys, tmp_path: Path) -> None:
    path = log(tmp_path, *((9 - place / 100, 13) for place in range(600)))
    status, text = run(capsys, rooms, "--dmesg", path, "--driver", "580.95.05")
    assert (status, "600 new Xid errors" in text, " 600 s " in text) == (0, True, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "2d"), "at most 1d"),
        (("--every", "10m", "--dmesg", "-"), "omit --every"),
    ],
)
def test_options_that_do_not_fit_are_refused(rooms, capsys, tmp_path, words, said) -> None:
    status, text = run(capsys, rooms, *words)
    assert (status, said in text) == (2, True)


def test_nothing_is_reported_of_a_log_without_zones_or_without_lines(rooms, capsys, tmp_path):
    path = tmp_path / "kern.log"
    path.write_text(f"Nov  3 09:31:07 n1 kernel: {XID % 79}\n")
    status, text = run(capsys, rooms, "--dmesg", str(path), "--driver", "580.95.05")
    assert (status, "nothing was reported" in text) == (2, True)
    path.write_text("")
    assert run(capsys, rooms, "--dmesg", str(path), "--driver", "580.95.05")[0] == 3
    assert stored(rooms) == ([], [])


def test_the_options_of_a_report_need_it(capsys) -> None:
    assert main(["health", "--since", "1h"]) == 2
    assert "add --report" in capsys.readouterr().err
