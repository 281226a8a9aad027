"""Whatever the description allows, and much that it does not, is answered as it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from canary_runs import STACK, evidence, host, suites
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from compatgate.canary.run import StepResult
from compatgate.core.facts import Facts
from compatgate.documents.sources import read_paths
from compatgate.kit.database import tables as database_schema
from compatgate.kit.database.database import Database
from compatgate.kit.http.route import NoQuery, Route
from compatgate.kit.principal import INCLUDED, Authorship
from compatgate.resources import matrix_dir
from compatgate.service.app import Rooms
from compatgate.service.gate.questions.service import make_gate
from compatgate.service.runs.queue.schemas import RunRequest
from compatgate.web.app import create_app
from compatgate.web.routes import HOOKS, ROUTES
from compatgate.web.service import Settings

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
positive_data_acceptance = checks.positive_data_acceptance
"""Left out: a schema cannot say which GPUs, versions and names there are."""

DEPLOYING = [route.name for route in HOOKS if route.signed]


def _takes_anything(route: Route) -> bool:
    """Say whether all that a route reads is text of any form: a wrong request cannot be made."""
    numbers = any(largest for _, largest in route.parameters)
    return not (route.body or route.query is not NoQuery or route.changes or numbers)


_GENERATED = schemathesis.GenerationMode
_NEVER_WRONG = [route.name for route in ROUTES if _takes_anything(route)]
"""One of them is sent wrong requests nevertheless: the search for one takes seconds."""
SENT = [
    (name, mode)
    for name in (*(route.name for route in ROUTES), *DEPLOYING)
    for mode in _GENERATED
    if mode is _GENERATED.POSITIVE or name not in _NEVER_WRONG[1:]
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Iterator[Any]:
    """The API on a database with the example matrix."""
    database = Database.open(str(tmp_path_factory.mktemp("fuzz") / "gate.db"))
    database_schema.prepare_schema(database)
    rooms = Rooms(make_gate(database, facts))
    rooms.matrix.import_documents(
        read_paths([matrix_dir() / "examples"]), Authorship("tester", "fuzz")
    )
    _finish_a_run(rooms)
    app = create_app(rooms, Settings(anonymous=frozenset({"read", "gate", "plan"}), overlays=()))
    found = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", app)
    secret = rooms.tokens.create("fuzz", ["admin"], by="tester").secret

    @found.auth()
    class _Token:
        def get(self, case: Any, context: Any) -> str:
            return secret

        def set(self, case: Any, data: str, context: Any) -> None:
            case.headers = {**(case.headers or {}), "Authorization": f"Bearer {data}"}

    yield found
    rooms.close()


def _finish_a_run(rooms: Rooms) -> None:
    """So that lists of runs, hosts and evidence have something in them."""
    rooms.runs.catalogue = suites
    queue = rooms.runs.queue
    queue.register("w1", [host(), host("cpu", gpu=None, driver=None)])
    rooms.runs.submit(RunRequest("smoke", host="a100-1", stack=STACK), by="tester")
    lease = queue.lease("w1", [host()])
    assert lease
    queue.write(lease, "gemm-0", b"\xff\n")
    queue.record(lease, StepResult("gemm-0", "gemm", 0, "passed"))
    queue.finish(lease, "passed", "", evidence(lease))


@pytest.mark.parametrize(
    ("name", "mode"), SENT, ids=[f"{name}-{mode.value}" for name, mode in SENT]
)
def test_every_operation_answers_as_described(api: Any, name: str, mode: Any) -> None:
    operation = api.find_operation_by_id(name)
    excluded = [positive_data_acceptance]
    if name == "export_matrix":  # it reads one YAML document of an answer, and this has several
        excluded.append(checks.response_schema_conformance)
    if name in DEPLOYING:  # what is wrong is answered 200 where a tool wants that
        excluded.append(checks.negative_data_rejection)

    @settings(
        max_examples=settings.default.max_examples // 8,
        derandomize=True,  # every machine sends the same
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def fuzz(case: Any) -> None:
        case.call_and_validate(excluded_checks=excluded)

    try:
        fuzz()
    except Unsatisfiable:
        assert mode is _GENERATED.NEGATIVE
        assert name in _NEVER_WRONG
    else:
        assert mode is _GENERATED.POSITIVE or name not in _NEVER_WRONG


_SCOPES = ("none", "read", "gate", "plan", "deliver", "operate", "bless", "admin")


_Caller = Callable[[str], dict[str, str]]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Iterator[Any]:
    """The API as callers of one scope meet it, and how one gets a token of nothing else."""
    database = Database.open(str(tmp_path_factory.mktemp("scopes") / "gate.db"))
    database_schema.prepare_schema(database)
    rooms = Rooms(make_gate(database, facts))
    rooms.matrix.import_documents(
        read_paths([matrix_dir() / "examples"]), Authorship("tester", "fuzz")
    )
    _finish_a_run(rooms)
    app = create_app(rooms, Settings(overlays=()))

    def caller(scope: str) -> dict[str, str]:
        if scope == "none":
            return {}
        secret = rooms.tokens.create(f"fuzz-{scope}", [scope], by="tester").secret
        return {"Authorization": f"Bearer {secret}"}

    yield schemathesis.openapi.from_wsgi("/api/v1/openapi.json", app), caller
    rooms.close()


@pytest.fixture(scope="module")
def of_scope(described: tuple[Any, _Caller]) -> _Caller:
    return described[1]


@pytest.fixture(scope="module")
def cases(described: tuple[Any, _Caller]) -> dict[str, list[Any]]:
    """A few cases of each operation: making them costs more than to send them, once a scope."""
    return {
        route.name: _make_a_few(described[0].find_operation_by_id(route.name)) for route in _SIGNED
    }


_SIGNED = (*ROUTES, *(hook for hook in HOOKS if hook.signed))


@pytest.mark.parametrize("scope", _SCOPES)
def test_every_operation_answers_every_scope_as_described(
    of_scope: _Caller, cases: dict[str, list[Any]], scope: str
) -> None:
    """No 5xx and no undocumented answer, and without the scope nothing but a refusal."""
    headers = of_scope(scope)
    held = {scope, *INCLUDED.get(scope, ())}
    for route in _SIGNED:
        refused = bool(route.scopes) and scope != "admin" and held.isdisjoint(route.scopes)
        assert cases[route.name]
        for case in cases[route.name]:
            answer = case.call(headers=headers)
            one_document = route.name != "export_matrix"
            case.validate_response(answer, checks=_ANSWERS if one_document else _ANSWERS[:-1])
            assert not refused or answer.status_code in (401, 403), route.name


def _make_a_few(operation: Any) -> list[Any]:
    made = []

    @settings(
        max_examples=3,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def fuzz(case: Any) -> None:
        made.append(case)

    fuzz()
    return made


_ANSWERS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
