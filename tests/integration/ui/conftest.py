"""The pages by Flask's own client."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from ui_forms import post

from compatgate.documents.sources import read_paths
from compatgate.gate.matrix import By
from compatgate.gate.service import Gate
from compatgate.resources import matrix_dir
from compatgate.web.app import create_app
from compatgate.web.settings import Settings

Client = Callable[..., FlaskClient]


@pytest.fixture(scope="session")
def stocked_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the example matrix, made once; tests have copies."""
    path = tmp_path_factory.mktemp("stocked") / "gate.db"
    gate = Gate.open(f"sqlite:///{path}", overlays=[])
    gate.matrix.import_documents(read_paths([matrix_dir() / "examples"]), By("tester", "the first"))
    gate.close()
    return path


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """SQLite alone: what pages ask a database is tested on each, below them."""
    return f"sqlite:///{tmp_path}/gate.db"


@pytest.fixture
def stocked(stocked_file: Path, tmp_path: Path, database_url: str) -> Iterator[Gate]:
    """A gate with the example matrix, as revision 1."""
    shutil.copy(stocked_file, tmp_path / "gate.db")
    gate = Gate.open(database_url, overlays=[])
    yield gate
    gate.close()


@pytest.fixture
def pages(stocked: Gate) -> Client:
    """Makes browsers of a gate with the example matrix; ``scopes`` sign in with a new token."""

    numbers = count(1)

    def make(*scopes: str, anonymous: tuple[str, ...] = ("read", "gate")) -> FlaskClient:
        app = create_app(stocked, Settings(frozenset(anonymous)))
        client = app.test_client()
        if scopes:
            name = f"{'-'.join(scopes)}-{next(numbers)}"
            secret = stocked.tokens.create(name, scopes, by="tester").secret
            post(client, "sign-in", token=secret)
        return client

    return make
