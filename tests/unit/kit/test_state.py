"""The folder of a replica's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.errors import Unavailable
from compatgate.kit.database.database import resolve_url
from compatgate.kit.database.opening import STATE_VARIABLE, open_state_folder, state_folder

POSTGRESQL = resolve_url("postgresql://gate:secret@db.example/gate")


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(STATE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))


def test_it_is_next_to_an_sqlite_file(tmp_path: Path) -> None:
    file = tmp_path / "gate.db"
    assert state_folder(resolve_url(str(file))) == tmp_path / "gate.db-state"


def test_each_postgresql_database_has_its_own_whatever_the_password(tmp_path: Path) -> None:
    folder = state_folder(POSTGRESQL)
    assert folder.is_relative_to(tmp_path / "home")
    assert folder == state_folder(POSTGRESQL.set(password="other"))
    assert folder != state_folder(POSTGRESQL.set(database="other"))
    assert folder != state_folder(POSTGRESQL.set(port=5433))


def test_the_option_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "one"))
    assert state_folder(POSTGRESQL) == tmp_path / "one"
    assert state_folder(POSTGRESQL, str(tmp_path / "two")) == tmp_path / "two"


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = open_state_folder(POSTGRESQL, str(tmp_path / "a" / "b"))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_named_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot use the state folder"):
        open_state_folder(POSTGRESQL, str(tmp_path / "file" / "state"))


def test_a_default_folder_that_cannot_be_made_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    open_state_folder(POSTGRESQL)
    assert "nothing is decided while the database is unavailable" in caplog.text
