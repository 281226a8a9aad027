"""The file of the last-known-good snapshot: whole, private, without secrets, checked."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from compatgate.core.facts import Facts
from compatgate.documents.specs import EntryDoc, Kind, TargetDoc, WaiverDoc
from compatgate.documents.validation import read_body
from compatgate.service.access.token_table import KnownToken, TokenRow
from compatgate.service.gate.decisions.last_known import FORMAT, LastKnown, SnapshotFile
from compatgate.service.gate.questions.decider import decide
from compatgate.service.matrix.snapshots.snapshot import BundledDocument, Payload

NOW = datetime(2026, 11, 3, 9, tzinfo=UTC)
URL = "postgresql://gate@db.example/gate"
TARGET = {
    "apiVersion": "compatgate.dev/v1",
    "kind": "Target",
    "metadata": {"name": "prod"},
    "spec": {"pools": [{"name": "p", "gpu": "A100-SXM4-80GB", "driver": "535.104.05"}]},
}
QUESTION = {"target": "prod", "stack": {"cuda": "12.1", "arch": ["sm_80"]}}
TOKEN = TokenRow("tk_1", "ci", ("gate",), NOW, "admin", None, None, None)


@pytest.fixture
def content(facts: Facts) -> LastKnown:
    kind: Kind = "Target"
    document = read_body(TARGET, kind, facts.gpus, ())
    assert isinstance(document, TargetDoc | EntryDoc | WaiverDoc)
    payload = Payload(1, 7, None, facts.digest, (), (BundledDocument(document, 7),))
    return LastKnown(FORMAT, URL, NOW, 3, (KnownToken("d" * 64, TOKEN),), payload)


def open_file(folder: Path, url: str = URL) -> SnapshotFile:
    return SnapshotFile(folder, url)


def test_what_is_read_decides_like_what_was_written(
    tmp_path: Path, content: LastKnown, facts: Facts
) -> None:
    assert open_file(tmp_path).write(content, "7.3.x")
    read = open_file(tmp_path).read()
    assert read is not None
    assert read.tokens == content.tokens
    again, before = read.snapshot(facts), content.snapshot(facts)
    assert (again.revision, again.evidence) == (7, 3)
    assert decide(QUESTION, again, NOW).id == decide(QUESTION, before, NOW).id


def test_only_its_owner_reads_it_and_no_draft_stays(tmp_path: Path, content: LastKnown) -> None:
    open_file(tmp_path).write(content, "7.3.x")
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "confirmed.json",
        "snapshot.json",
        "snapshot.lock",
    ]


@pytest.mark.parametrize("at", [0, 70, 500, -1])
@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_file_is_ignored_with_a_warning(
    tmp_path: Path, content: LastKnown, caplog: pytest.LogCaptureFixture, at: int, damage: str
) -> None:
    file = open_file(tmp_path)
    file.write(content, "7.3.x")
    raw = bytearray(file.path.read_bytes())
    if damage == "cut":
        del raw[at:]
    else:
        raw[at] ^= 1
    file.path.write_bytes(raw)
    with caplog.at_level(logging.WARNING):
        assert open_file(tmp_path).read() is None
    assert "is damaged" in caplog.text
    assert str(file.path) in caplog.text


def test_a_file_of_another_database_is_ignored(
    tmp_path: Path, content: LastKnown, caplog: pytest.LogCaptureFixture
) -> None:
    open_file(tmp_path).write(content, "7.3.x")
    assert open_file(tmp_path, "postgresql://gate@other/gate").read() is None
    assert "belongs to" in caplog.text


def test_a_confirmation_counts_only_for_what_the_file_has(
    tmp_path: Path, content: LastKnown
) -> None:
    file, later = open_file(tmp_path), NOW + timedelta(hours=1)
    file.write(content, "7.3.x")
    assert not file.adopt("8.3.x", later)
    assert file.adopt("7.3.x", later)
    assert not file.adopt("6.3.x", later + timedelta(hours=1))
    read = file.read()
    assert read is not None
    assert read.confirmed_at == later


def test_a_process_that_is_behind_does_not_undo_a_later_state(
    tmp_path: Path, content: LastKnown
) -> None:
    ahead, behind = open_file(tmp_path), open_file(tmp_path)
    ahead.write(content, "7.3.x")
    ahead.adopt("7.3.x", NOW + timedelta(seconds=5))
    assert not behind.write(content, "6.3.x")
    read = behind.read()
    assert read is not None
    assert read.confirmed_at == NOW + timedelta(seconds=5)


def test_a_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, content: LastKnown, caplog: pytest.LogCaptureFixture
) -> None:
    file = open_file(tmp_path / "missing")
    assert not file.write(content, "7.3.x")
    assert not file.write(content, "7.3.x")
    assert caplog.text.count("cannot write the last-known-good snapshot") == 1
