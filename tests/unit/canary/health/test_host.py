"""This machine's kernel log: what is kept of it, and what comes from a moment on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from compatgate.canary.health import KernelLog, kernel_log
from compatgate.canary.health.kernel_log import read_kernel_log
from compatgate.core.facts import Facts
from compatgate.errors import Unavailable

OLD = "4,1,1000000,-;NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n"
NEW = "4,2,2000000,-;NVRM: Xid (PCI:0000:03:00): 31, pid=7, name=a, MMU Fault\n"


@pytest.fixture
def kmsg(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_text(OLD)
    return path


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[bytes]:
        said = f"{command[0]}: read kernel buffer failed: Operation not permitted"
        return subprocess.CompletedProcess(command, 1, b"", said.encode())

    monkeypatch.setattr(kernel_log.subprocess, "run", run)


def test_what_the_kernel_keeps_is_read(kmsg: Path, facts: Facts) -> None:
    errors, where = read_kernel_log(facts.xid, kmsg=str(kmsg))
    assert where == str(kmsg)
    assert [event.xid for event in errors.events()] == [79]


def test_only_what_came_after_the_beginning_is_watched(kmsg: Path, facts: Facts) -> None:
    with KernelLog(facts.xid, kmsg=str(kmsg)) as log:
        assert log.events() == ()
        with kmsg.open("a") as file:
            file.write(NEW)
        assert [event.xid for event in log.events()] == [31]
        assert [event.count for event in log.events()] == [1]
        assert log.problem is None


@pytest.mark.usefixtures("no_programs")
def test_a_log_that_may_not_be_read_is_said_with_what_was_tried(
    tmp_path: Path, facts: Facts
) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(Unavailable) as caught:
        read_kernel_log(facts.xid, kmsg=missing)
    assert "Operation not permitted" in caught.value.problem
    assert "sudo dmesg" in caught.value.hint
    with KernelLog(facts.xid, kmsg=missing) as log:
        assert log.events() == ()
        assert "cannot be read" in (log.problem or "")


def test_without_kmsg_the_programs_are_asked(
    tmp_path: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "dmesg").write_text("#!/bin/sh\necho 'dmesg: not permitted' >&2\nexit 1\n")
    (tools / "journalctl").write_text(
        "#!/bin/sh\n"
        'echo \'{"MESSAGE":"NVRM: Xid (PCI:0000:9b:00): 79, gone","_TRANSPORT":"kernel"}\'\n'
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    errors, where = read_kernel_log(facts.xid, kmsg=str(tmp_path / "missing"))
    assert where == "journalctl -k"
    assert [event.xid for event in errors.events()] == [79]
    with KernelLog(facts.xid, kmsg=str(tmp_path / "missing")) as log:
        assert log.problem is None
        assert [event.xid for event in log.events()] == [79]


def lose_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next read of the log finds that records were overwritten."""
    read, losses = os.read, [BrokenPipeError()]

    def lossy(fd: int, size: int) -> bytes:
        if losses:
            raise losses.pop()
        return read(fd, size)

    monkeypatch.setattr(kernel_log.os, "read", lossy)


@pytest.mark.usefixtures("no_programs")
def test_messages_that_were_lost_are_a_problem(
    kmsg: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KernelLog(facts.xid, kmsg=str(kmsg)) as log:
        lose_one(monkeypatch)
        assert log.events() == ()
        assert "overwritten" in (log.problem or "")


def test_messages_that_were_lost_are_looked_for_in_the_journal(
    kmsg: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = b'{"_SOURCE_MONOTONIC_TIMESTAMP":"2000000","MESSAGE":"%s"}\n'
    kept = line % NEW.partition(";")[2].strip().encode()

    def run(command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, 0, kept, b"")

    monkeypatch.setattr(kernel_log.subprocess, "run", run)
    with KernelLog(facts.xid, kmsg=str(kmsg)) as log:
        with kmsg.open("a") as file:
            file.write(NEW)
        lose_one(monkeypatch)
        assert [(event.xid, event.count) for event in log.events()] == [(31, 1)]
        assert log.problem is None
