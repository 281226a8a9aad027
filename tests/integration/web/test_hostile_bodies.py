"""No request costs much, whatever is in it; what does not fit the gate's limits is refused.

The bound is generous, as the machine is shared; `bench/hostile.py` sends every request and prints
what each costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import hostile_bodies
import pytest
from flask.testing import FlaskClient
from hostile_bodies import FORM, Attack
from ui_marks import form_token

from compatgate.core.facts import Facts
from compatgate.documents.sources import read_paths
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.resources import matrix_dir
from compatgate.service.app import Rooms
from compatgate.service.gate.questions.service import make_gate
from compatgate.web.app import create_app
from compatgate.web.routes import HOOKS, PAGES, ROUTES
from compatgate.web.service import Settings

CPU_S = 2.0
Send = Callable[[Attack], int]


@pytest.fixture(scope="module")
def send(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Iterator[Send]:
    """Send a request with every scope, hold its cost to the bound, return its status."""
    database = Database.open(str(tmp_path_factory.mktemp("hostile") / "gate.db"))
    tables.prepare_schema(database)
    rooms = Rooms(make_gate(database, facts))
    by = Authorship("tester", "hostile")
    rooms.matrix.import_documents(read_paths([matrix_dir() / "examples"]), by)
    scopes = frozenset({"read", "gate", "plan", "deliver", "operate", "bless", "admin"})
    client = create_app(rooms, Settings(anonymous=scopes, overlays=())).test_client()
    token = form_token(client)
    costs: list[tuple[float, str]] = []

    def one(attack: Attack) -> int:
        began = time.process_time()
        status = _status(client, attack, token)
        costs.append((time.process_time() - began, attack.name))
        assert costs[-1][0] < CPU_S, attack.name
        assert status < 500, attack.name
        return status

    yield one
    rooms.close()
    print("\n".join(f"{seconds * 1000:.0f} ms {name}" for seconds, name in sorted(costs)[-5:]))


def _status(client: FlaskClient, attack: Attack, token: str) -> int:
    answer: Any = client.open(
        attack.path,
        method=attack.method,
        data=attack.body + token.encode() if attack.media == FORM else attack.body,
        content_type=attack.media if attack.body else None,
        headers={"X-Compatgate-Reason": "hostile", **attack.headers},
    )
    return int(answer.status_code)


@pytest.mark.parametrize("kind", ["of_questions", "of_hooks", "of_documents"])
def test_bodies_made_for_one_reader_cost_little(send: Send, kind: str) -> None:
    for attack in getattr(hostile_bodies, kind)():
        send(attack)


@pytest.mark.parametrize("kind", ["of_bodies", "of_fields", "of_forms", "of_queries"])
def test_hostile_values_in_any_field_cost_little(send: Send, kind: str) -> None:
    step = {"of_bodies": 4, "of_fields": 101, "of_forms": 19, "of_queries": 101}[kind]
    for attack in getattr(hostile_bodies, kind)(step):
        send(attack)


def test_every_route_that_takes_a_body_is_attacked() -> None:
    attacked = {(a.method, a.path.partition("?")[0]) for a in hostile_bodies.of_bodies()}
    for route in (*ROUTES, *HOOKS):
        if route.body is not None:
            place = (route.method, hostile_bodies.path_of(route))
            assert place in attacked, route.name
    forms = list(hostile_bodies.FORMS)
    for page in PAGES:
        if page.method == "POST":
            parts = page.path.split("/")
            assert any(_is_at(form.split("/"), parts) for form in forms), page.path


def _is_at(path: list[str], parts: list[str]) -> bool:
    pairs = zip(path, parts, strict=False)
    return len(path) == len(parts) and all(b.startswith("<") or a == b for a, b in pairs)


def _question(count: int, key: str) -> bytes:
    unknown = ",".join(f'"n{n}":"1.{n}"' for n in range(count))
    pool = '"pool":{"driver":"535.104.05","gpu":"A100-SXM4-80GB"}'
    other = '"stack":{"cuda":"12.4"},' if key == "set" else ""
    return f'{{{pool},{other}"{key}":{{{unknown}}}}}'.encode()


@pytest.mark.parametrize("key", ["stack", "set"])
def test_keys_up_to_the_limit_are_answered_and_more_are_refused(send: Send, key: str) -> None:
    place = "/api/v1/gate"
    assert send(Attack("at the limit", "POST", place, _question(256, key))) == 200
    assert send(Attack("beyond", "POST", place, _question(257, key))) == 400


def test_a_key_twice_among_many_is_found_at_once(send: Send) -> None:
    names = [f"key{n}" for n in range(60_000)]
    pairs = ",".join(f'"{name}": 1' for name in [*names, names[-1]])
    assert send(Attack("twice", "POST", "/api/v1/gate", f"{{{pairs}}}".encode())) == 400
