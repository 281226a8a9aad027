"""The sessions of ``compatgate login``: private files, one for each gate."""

from __future__ import annotations

import stat
from datetime import timedelta
from pathlib import Path

import pytest

from compatgate.client.settings import (
    Credential,
    credential_path,
    load_credential,
    remove_credential,
    store_credential,
)
from compatgate.errors import BadInput
from compatgate.gate_client import make_client
from compatgate.kit.clock import now

GATE = "https://gate.example"


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("COMPATGATE_TOKEN", raising=False)
    return tmp_path


def credential(server: str = GATE, secret: str = "cgs_x", hours: int = 1) -> Credential:
    return Credential(server, secret, "is_1", "ada", now() + timedelta(hours=hours))


def test_a_credential_is_kept_for_its_gate_alone(config: Path) -> None:
    path = store_credential(credential())
    assert path.is_relative_to(config)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    found = load_credential(GATE)
    assert found
    assert found.secret == "cgs_x"
    assert "cgs_x" not in repr(found)
    assert load_credential("https://other.example") is None
    assert load_credential(f"{GATE}/prefix") is None
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    remove_credential(GATE)
    remove_credential(GATE)
    assert load_credential(GATE) is None


def test_a_credential_that_has_expired_is_not_used() -> None:
    store_credential(credential(hours=-1))
    assert load_credential(GATE) is None


def test_a_damaged_file_counts_as_none() -> None:
    store_credential(credential())
    credential_path(GATE).write_bytes(b"{")
    assert load_credential(GATE) is None
    store_credential(credential(server="https://other.example"))
    credential_path("https://other.example").replace(credential_path(GATE))
    assert load_credential(GATE) is None


def test_a_folder_that_cannot_be_written_is_named(config: Path) -> None:
    (config / "compatgate").write_text("a file")
    with pytest.raises(BadInput, match="cannot write"):
        store_credential(credential())


def _sent(token: str | None = None, url: str = GATE) -> str | None:
    with make_client(url, token) as client:
        return client._settings.token


def test_commands_use_it_when_no_token_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _sent() is None
    store_credential(credential())
    assert _sent() == "cgs_x"
    assert _sent(url=f"{GATE}/api/v1/") == "cgs_x"
    assert _sent("cg_option") == "cg_option"
    monkeypatch.setenv("COMPATGATE_TOKEN", "cg_variable")
    assert _sent() == "cg_variable"
