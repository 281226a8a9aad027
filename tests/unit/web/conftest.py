"""The application in memory, on a database of its own; every answer is held to the description."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from canary_runs import host, suites
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from werkzeug.test import TestResponse

from compatgate.core.facts import Facts
from compatgate.gate.matrix import By
from compatgate.gate.service import Gate
from compatgate.store import schema
from compatgate.store.database import Database
from compatgate.web.api import ROUTES, TAGS
from compatgate.web.app import create_app
from compatgate.web.hooks import HOOKS
from compatgate.web.openapi.document import describe
from compatgate.web.settings import Settings
from compatgate.wire.examples import ENTRY, TARGET, WAIVER

API = "/api/v1"
BY = By("tester", "for the test")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without anything in it."""
    path = tmp_path_factory.mktemp("database") / "empty.db"
    database = Database.open(str(path))
    schema.prepare(database)
    database.close()
    return path


@pytest.fixture
def gate(tmp_path: Path, empty_database: Path, facts: Facts) -> Iterator[Gate]:
    """A gate with the matrix of the examples."""
    path = tmp_path / "gate.db"
    shutil.copy(empty_database, path)
    gate = Gate(Database.open(str(path)), facts)
    for kind, document in (("Target", TARGET), ("Entry", ENTRY), ("Waiver", WAIVER)):
        body = {key: value for key, value in document.items() if key != "reason"}
        gate.matrix.create(kind, body, BY)
    gate.runs.catalogue = suites
    gate.runs.queue.register("w1", [host(), host("cpu", gpu=None, driver=None)])
    yield gate
    gate.close()


@pytest.fixture(scope="session")
def description() -> dict[str, Any]:
    """The OpenAPI document."""
    return describe((*ROUTES, *HOOKS), TAGS)


@pytest.fixture
def make_client(gate: Gate, description: dict[str, Any]) -> Callable[..., FlaskClient]:
    """Makes clients of applications with other settings."""

    def make(**settings: Any) -> FlaskClient:
        settings.setdefault("anonymous", frozenset({"admin"}))
        app = create_app(gate, Settings(overlays=(), **settings))
        app.testing = False
        client = app.test_client()
        return _Checked(client, description)  # type: ignore[return-value]

    return make


@pytest.fixture
def client(make_client: Callable[..., FlaskClient]) -> FlaskClient:
    """A client that may do anything."""
    return make_client()


class _Checked:
    """A client whose every answer under the API must be one that the description knows."""

    def __init__(self, client: FlaskClient, description: dict[str, Any]) -> None:
        self._client = client
        self._description = description

    def __getattr__(self, name: str) -> Any:
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
