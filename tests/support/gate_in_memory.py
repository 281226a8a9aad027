"""The application in memory, on a database of its own; every answer is held to the description."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from canary_runs import host, suites
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from werkzeug.test import TestResponse

from compatgate.core.facts import Facts
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.gate.questions.service import make_gate
from compatgate.service.matrix.documents.schemas import ENTRY, TARGET, WAIVER
from compatgate.web.app import create_app
from compatgate.web.openapi import describe_api
from compatgate.web.routes import HOOKS, ROUTES, TAGS
from compatgate.web.service import Settings

API = "/api/v1"
BY = Authorship("tester", "for the test")


@pytest.fixture(scope="session")
def stocked_file(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Path:
    """A database with the matrix of the examples, made once; tests have copies."""
    path = tmp_path_factory.mktemp("database") / "stocked.db"
    database = Database.open(str(path))
    tables.prepare_schema(database)
    rooms = Rooms(make_gate(database, facts))
    for kind, document in (("Target", TARGET), ("Entry", ENTRY), ("Waiver", WAIVER)):
        body = {key: value for key, value in document.items() if key != "reason"}
        rooms.matrix.create(kind, body, BY)
    rooms.close()
    return path


@contextmanager
def opened(folder: Path, stocked_file: Path, facts: Facts) -> Iterator[Rooms]:
    """Open a gate on a copy of the database, with two hosts that have just reported."""
    path = folder / "gate.db"
    shutil.copy(stocked_file, path)
    rooms = Rooms(make_gate(Database.open(str(path)), facts))
    rooms.runs.catalogue = suites
    rooms.runs.queue.register("w1", [host(), host("cpu", gpu=None, driver=None)])
    yield rooms
    rooms.close()


@pytest.fixture
def rooms(tmp_path: Path, stocked_file: Path, facts: Facts) -> Iterator[Rooms]:
    """A gate with the matrix of the examples."""
    with opened(tmp_path, stocked_file, facts) as rooms:
        yield rooms


@pytest.fixture
def open_gate(stocked_file: Path, facts: Facts) -> Callable[[Path], AbstractContextManager[Rooms]]:
    """Opens gates on copies of the database in other folders, for tests that need several."""
    return lambda folder: opened(folder, stocked_file, facts)


@pytest.fixture
def client_of(description: dict[str, Any]) -> Callable[[Rooms], FlaskClient]:
    """Makes clients of other gates; they may do anything."""
    return lambda rooms: checked_client(rooms, description)


@pytest.fixture(scope="session")
def description() -> dict[str, Any]:
    """The OpenAPI document."""
    return describe_api((*ROUTES, *HOOKS), TAGS)


@pytest.fixture
def make_client(rooms: Rooms, description: dict[str, Any]) -> Callable[..., FlaskClient]:
    """Makes clients of applications with other settings."""

    return lambda **settings: checked_client(rooms, description, **settings)


@pytest.fixture
def client(make_client: Callable[..., FlaskClient]) -> FlaskClient:
    """A client that may do anything."""
    return make_client()


@pytest.fixture(scope="module")
def shared_client(
    tmp_path_factory: pytest.TempPathFactory,
    stocked_file: Path,
    facts: Facts,
    description: dict[str, Any],
) -> Iterator[FlaskClient]:
    """A client for all tests of a file that change nothing."""
    with opened(tmp_path_factory.mktemp("shared"), stocked_file, facts) as rooms:
        yield checked_client(rooms, description)


def checked_client(rooms: Rooms, description: dict[str, Any], **settings: Any) -> FlaskClient:
    """Make a client that holds every answer to the description; it may do anything."""
    settings.setdefault("anonymous", frozenset({"admin"}))
    app = create_app(rooms, Settings(overlays=(), **settings))
    app.testing = False
    return _Checked(app.test_client(), description)  # type: ignore[return-value]


class _Checked:
    """A client whose every answer under the API must be one that the description knows."""

    def __init__(self, client: FlaskClient, description: dict[str, Any]) -> None:
        self._client = client
        self._description = description

    def __getattr__(self, name: str) -> Any:
        if name == "application":
            return self._client.application

        def call(path: str, **options: Any) -> TestResponse:
            response: TestResponse = getattr(self._client, name)(path, **options)
            method = options.get("method", name).lower()
            check(self._description, method, path.partition("?")[0], response)
            return response

        return call


def check(description: dict[str, Any], method: str, path: str, response: TestResponse) -> None:
    """Hold an answer to the description."""
    operation = _operation(description, method, path)
    if operation is None:
        return
    status = str(response.status_code)
    assert status in operation["responses"], f"{method} {path} answers {status}: {response.text}"
    described = operation["responses"][status]
    for name, header in described.get("headers", {}).items():
        assert name in response.headers or not header.get("required"), f"{name} is missing"
    if "content" not in described:
        assert not response.data
        return
    media = described["content"]
    assert response.mimetype in media, response.mimetype
    if response.is_json or response.mimetype.endswith("+json"):
        whole = {
            **media[response.mimetype].get("schema", {}),
            "components": description["components"],
        }
        errors = list(Draft202012Validator(whole).iter_errors(response.get_json(force=True)))
        assert not errors, f"{method} {path}: {errors[0].message} at {errors[0].json_path}"


def _operation(description: dict[str, Any], method: str, path: str) -> dict[str, Any] | None:
    parts = path.split("/")
    for template, item in description["paths"].items():
        wanted = template.split("/")
        if len(wanted) == len(parts) and all(
            w == p or (w.startswith("{") and p) for w, p in zip(wanted, parts, strict=True)
        ):
            found: dict[str, Any] | None = item.get(method)
            if found and _is_best(description, template, path):
                return found
    return None


def _is_best(description: dict[str, Any], template: str, path: str) -> bool:
    """A template without parameters wins, as it does in routing."""
    return template == path or path not in description["paths"]
