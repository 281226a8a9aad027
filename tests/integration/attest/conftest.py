"""Commands on a database of their own, a key, and images that pass and fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attest_keys import new_key, private_pem, public_pem
from catalogue import own_cache
from image_blobs import distribution, layer_of

from compatgate.cli.main import main
from compatgate.kit.database.database import ENVIRONMENT
from compatgate.resources import matrix_dir

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line: exit status, output, errors; the user's own files are out of the way."""
    (tmp_path / "docker").mkdir()
    for name, value in {
        ENVIRONMENT: str(tmp_path / "gate.db"),
        "XDG_CACHE_HOME": own_cache(tmp_path / "cache"),
        "DOCKER_CONFIG": str(tmp_path / "docker"),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("COMPATGATE_FACTS", "COMPATGATE_SERVER", "COMPATGATE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return command


@pytest.fixture(scope="session")
def stocked_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the example matrix."""
    path = tmp_path_factory.mktemp("stocked") / "gate.db"
    assert main(["matrix", "import", "--database", str(path), str(matrix_dir() / "examples")]) == 0
    return path


@pytest.fixture
def stocked(run: Run, stocked_database: Path, tmp_path: Path) -> Run:
    """With the example matrix."""
    shutil.copy(stocked_database, tmp_path / "gate.db")
    return run


@pytest.fixture
def key(tmp_path: Path) -> tuple[str, str]:
    """Files of a private key and of its public one."""
    return write_key(tmp_path, "gate")


def write_key(folder: Path, name: str, kind: str = "ed25519") -> tuple[str, str]:
    """A new pair of keys as files."""
    made, private, public = new_key(kind), folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(private_pem(made))
    private.chmod(0o600)
    public.write_bytes(public_pem(made))
    return str(private), str(public)


@pytest.fixture
def good(registry: Any) -> Any:
    """An image that prod-a100 is blessed for."""
    return registry.push(layer_of(stack("2.4.1+cu124", "9.1.0.70")))


@pytest.fixture
def bad(registry: Any) -> Any:
    """An image that is blessed nowhere."""
    return registry.push(layer_of(stack("2.3.1+cu121", "8.9.2.26")))


def stack(torch: str, cudnn: str) -> dict[str, bytes]:
    """Files of an image with a framework."""
    return {**distribution("torch", torch), **distribution("nvidia-cudnn-cu12", cudnn)}
