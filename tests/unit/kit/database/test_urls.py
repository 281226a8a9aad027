"""Which database is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.errors import BadInput
from compatgate.kit.database.database import ENVIRONMENT, default_path, display_url, resolve_url


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)


def test_a_path_is_an_sqlite_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_url("gate.db").database == str(tmp_path / "gate.db")
    assert resolve_url(f"sqlite:///{tmp_path}/x.db").database == f"{tmp_path}/x.db"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_uses_the_third_psycopg(scheme: str) -> None:
    url = resolve_url(f"{scheme}://me:pw@db.example:5433/gate?sslmode=require")
    assert url.drivername == "postgresql+psycopg"
    assert display_url(url) == "postgresql://me:***@db.example:5433/gate?sslmode=require"


def test_the_option_wins_over_the_environment_and_that_over_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert resolve_url().database == str(default_path())
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "env.db"))
    assert resolve_url().database == str(tmp_path / "env.db")
    assert resolve_url(str(tmp_path / "option.db")).database == str(tmp_path / "option.db")


def test_the_default_is_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_path() == Path("/data/compatgate/compatgate.db")


@pytest.mark.parametrize(
    "text",
    ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "postgresql://x:port/y", "://", "http://x"],
)
def test_what_is_not_supported_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        resolve_url(text)
    assert caught.value.field == "database"
