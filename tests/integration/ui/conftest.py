"""The pages by Flask's own client."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from ui_marks import post
from ui_runs import Runs, fill_runs

from compatgate.core.facts import Facts
from compatgate.documents.sources import read_paths
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.resources import matrix_dir
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.questions.service import make_gate
from compatgate.web.app import create_app
from compatgate.web.service import Settings

Client = Callable[..., FlaskClient]


@pytest.fixture(scope="session")
def stocked_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the example matrix, made once; tests have copies."""
    path = tmp_path_factory.mktemp("stocked") / "gate.db"
    rooms = open_rooms(f"sqlite:///{path}", overlays=[])
    rooms.matrix.import_documents(
        read_paths([matrix_dir() / "examples"]), Authorship("tester", "the first")
    )
    rooms.close()
    return path


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """SQLite alone: what pages ask a database is tested on each, below them."""
    return f"sqlite:///{tmp_path}/gate.db"


@pytest.fixture
def stocked(stocked_file: Path, tmp_path: Path, database_url: str) -> Iterator[Rooms]:
    """A gate with the example matrix, as revision 1."""
    shutil.copy(stocked_file, tmp_path / "gate.db")
    rooms = open_rooms(database_url, overlays=[])
    yield rooms
    rooms.close()


@pytest.fixture(scope="session")
def database_with_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which a worker has run canaries, beside the folder of their workload."""
    folder = tmp_path_factory.mktemp("runs")
    rooms = open_rooms(str(folder / "gate.db"), overlays=[])
    by = Authorship("mara", "for the test")
    rooms.matrix.import_documents(read_paths([matrix_dir() / "examples"]), by)
    fill_runs(rooms, folder / "workloads")
    rooms.close()
    return folder / "gate.db"


@pytest.fixture(scope="session")
def kept(database_with_runs: Path, facts: Facts) -> Iterator[Runs]:
    """Runs of every kind, for tests that change nothing."""
    rooms = Rooms(make_gate(Database.open(str(database_with_runs)), facts))
    yield Runs(rooms, database_with_runs.parent / "workloads")
    rooms.close()


@pytest.fixture(scope="session")
def kept_pages(kept: Runs) -> Client:
    """A browser of these for each set of scopes."""
    return cache(lambda *scopes: _browser(kept.rooms, scopes))


def _browser(rooms: Rooms, scopes: tuple[str, ...]) -> FlaskClient:
    client = create_app(rooms, Settings(anonymous=frozenset(("read",)))).test_client()
    if scopes:
        post(client, "sign-in", token=rooms.tokens.create("-".join(scopes), scopes, by="t").secret)
    return client


@pytest.fixture
def ran(database_with_runs: Path, tmp_path: Path, facts: Facts) -> Iterator[Runs]:
    """Runs of every kind, on a copy of their own."""
    shutil.copy(database_with_runs, tmp_path / "gate.db")
    rooms = Rooms(make_gate(Database.open(str(tmp_path / "gate.db")), facts))
    yield Runs(rooms, tmp_path / "workloads")
    rooms.close()


@pytest.fixture
def run_pages(ran: Runs) -> Client:
    """Makes browsers of the gate with runs; ``scopes`` sign in with a token."""
    return lambda *scopes: _browser(ran.rooms, scopes)


@pytest.fixture
def pages(stocked: Rooms) -> Client:
    """Makes browsers of a gate with the example matrix; ``scopes`` sign in with a new token."""

    numbers = count(1)

    def make(*scopes: str, anonymous: tuple[str, ...] = ("read", "gate", "plan")) -> FlaskClient:
        app = create_app(stocked, Settings(anonymous=frozenset(anonymous)))
        client = app.test_client()
        if scopes:
            name = f"{'-'.join(scopes)}-{next(numbers)}"
            secret = stocked.tokens.create(name, scopes, by="tester").secret
            post(client, "sign-in", token=secret)
        return client

    return make
