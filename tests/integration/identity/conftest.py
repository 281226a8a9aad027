"""A real issuer, and a gate whose people sign in there."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import oidc_issuer
import pytest
from database_template import new_database
from jwt_issuer import JobIssuer, serving_jobs
from oidc_issuer import PEOPLE, SETTINGS, Browser, Issuer
from serving import Server, start, wait_for_url, with_examples

from compatgate.kit.database.database import Database
from compatgate.service.access import issuers
from compatgate.service.access.identity import Identity
from compatgate.service.access.people import Attempt, People, Response
from compatgate.service.access.settings import IdentitySettings
from compatgate.service.access.settings_file import read_settings


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """SQLite alone: sessions are tested on each database in ``tests/integration/store``."""
    return new_database(tmp_path / "gate.db")


@pytest.fixture(scope="session")
def gate_port() -> int:
    return free_port()


@pytest.fixture(scope="session")
def gate_url(gate_port: int) -> str:
    return f"http://127.0.0.1:{gate_port}"


@pytest.fixture(scope="session")
def running_issuer(gate_url: str) -> Iterator[Issuer]:
    """The issuer of all tests."""
    with oidc_issuer.running(PEOPLE, gate_url) as issuer:
        yield issuer


@pytest.fixture
def issuer(running_issuer: Issuer) -> Iterator[Issuer]:
    """The issuer; its accounts are as they were afterwards."""
    yield running_issuer
    running_issuer.set_people(PEOPLE)


@pytest.fixture(scope="session")
def served(
    running_issuer: Issuer, gate_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A running service that knows the issuer."""
    folder = tmp_path_factory.mktemp("served")
    file = folder / "oidc.json"
    file.write_text(json.dumps({"people": {"issuer": running_issuer.url, **SETTINGS}}))
    options = ["--oidc", str(file), "--port", str(gate_port), "--anonymous", "none"]
    secret = {"OIDC_SECRET": oidc_issuer.SECRET}
    server = start(folder, with_examples(folder, options), False, secret)
    wait_for_url(server)
    yield server
    server.kill()


@pytest.fixture
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.http.close()


@pytest.fixture
def settings_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, Any]], IdentitySettings]:
    """Reads settings as ``serve --oidc`` does."""
    monkeypatch.setenv("OIDC_SECRET", oidc_issuer.SECRET)

    def read(document: dict[str, Any]) -> IdentitySettings:
        file = tmp_path / "oidc.json"
        file.write_text(json.dumps(document))
        return read_settings(str(file))

    return read


Visit = Callable[..., tuple[Attempt, Response, str]]


@pytest.fixture
def visit(gate_url: str) -> Visit:
    """Begins a sign-in and has a person sign in; what the browser comes back with."""

    def visiting(people: People, name: str = "ada") -> tuple[Attempt, Response, str]:
        back = f"{gate_url}/ui/sign-in/done"
        attempt, url = people.begin(back, "/ui/")
        browser = Browser()
        answer = browser.sign_in(browser.get(url), name, until=back)
        place = answer.headers["Location"]
        given = dict(parse_qsl(place.partition("?")[2]))
        names = Response.__struct_fields__
        return attempt, Response(**{k: v for k, v in given.items() if k in names}), back

    return visiting


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issuers are asked again at once."""
    monkeypatch.setattr(issuers, "UNKNOWN_KEY_PAUSE_S", 0.0)
    monkeypatch.setattr(issuers, "FAILURE_PAUSE_S", 0.0)


@pytest.fixture
def people(
    issuer: Issuer,
    database: Database,
    settings_of: Callable[[dict[str, Any]], IdentitySettings],
    impatient: None,
) -> People:
    """Sign-in at the real issuer, in this process."""
    settings = settings_of({"people": {"issuer": issuer.url, **SETTINGS}})
    return Identity(database, settings).require_people()


@pytest.fixture
def job_issuer() -> Iterator[JobIssuer]:
    with serving_jobs() as issuer:
        yield issuer
