"""Who may work for a host: every credential by every operation of workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import STACK, evidence, host, suites
from flask.testing import FlaskClient

from compatgate.canary.engine import Lease
from compatgate.kit import clock
from compatgate.kit.http.route import Route
from compatgate.kit.principal import SCOPES
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.schemas import RunRequest
from compatgate.web.routes import ROUTES

WORK = [route for route in ROUTES if route.scope == "work"]
HOST = "a100-1"
API = "/api/v1"


def declaration(**fields: Any) -> dict[str, Any]:
    return {
        "worker": "w1", "at": clock.iso(clock.now()), "executor": "docker",
        "gpu": "A100-SXM4-80GB", "driver": "535.183.01", "slots": 4,
    } | fields  # fmt: skip


def bodies(lease: Lease) -> dict[str, Any]:
    """A right request of each operation."""
    step = {"name": "gemm-0", "workload": "gemm", "seed": 0, "outcome": "passed"}
    offer = {"run": f"{lease.run.id}:gemm-0", "workload": "gemm@0", "sku": "A100-SXM4-80GB"}
    return {
        "declare_host": declaration(),
        "report_host": {"away": ""},
        "lease_run": declaration(),
        "find_ended_runs": {"runs": [lease.run.id]},
        "queue_verifications": {"worker": "w1", "every_s": 86400},
        "offer_baselines": {**offer, "family": "none", "metrics": {}, "found": []},
        "renew_lease": {"doing": "running gemm-0"},
        "write_output": {"step": "gemm-0", "data": "YmVnYW4K"},
        "record_step": {"result": step},
        "store_pairs": {"pairs": [{}]},
        "end_run": {"outcome": "again", "why": "the engine is away"},
    }


@pytest.fixture
def lease(rooms: Rooms) -> Lease:
    """A run that a worker of the host has."""
    rooms.runs.catalogue = suites
    rooms.runs.queue.register("w1", [host(HOST)])
    rooms.runs.submit(RunRequest("smoke", host=HOST, stack=STACK), by="tester")
    found = rooms.runs.queue.lease("w1", [host(HOST)])
    assert found
    return found


@pytest.fixture
def ask(
    make_client: Callable[..., FlaskClient], lease: Lease
) -> Callable[[Route, str | None], tuple[int, Any]]:
    """Ask an operation of the host's run with a secret; status and body."""
    client = make_client(anonymous=frozenset())
    right = bodies(lease)

    def asking(route: Route, secret: str | None) -> tuple[int, Any]:
        path = route.template.replace("{name}", HOST).replace("{run}", lease.run.id)
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        answer = client.open(
            API + path.replace("{attempt}", str(lease.attempt)),
            method=route.method,
            headers=headers,
            json=right.get(route.name),
        )
        return answer.status_code, answer.get_json(silent=True)

    return asking


def test_each_operation_of_workers_is_asked_here(lease: Lease) -> None:
    writes = {route.name for route in WORK if route.method != "GET"}
    assert writes == set(bodies(lease))


@pytest.mark.parametrize("route", WORK, ids=lambda route: route.name)
def test_only_the_host_s_token_works_for_it(
    rooms: Rooms, ask: Callable[[Route, str | None], tuple[int, Any]], route: Route
) -> None:
    others = [scope for scope in SCOPES if scope not in ("work", "admin")]
    made = {
        "all other scopes": rooms.tokens.create(f"{HOST}-2", others, by="test").secret,
        "another host": rooms.tokens.create("a100-2", ["work"], by="test").secret,
        "another case": rooms.tokens.create(HOST.upper(), ["work"], by="test").secret,
    }
    for who, secret in made.items():
        assert ask(route, secret)[0] == 403, who
    assert ask(route, None)[0] == 401
    own = rooms.tokens.create(HOST, ["work"], by="test").secret
    status, body = ask(route, own)
    assert status == 200, body
    rooms.tokens.revoke(HOST, by="test")
    assert ask(route, own)[0] == 401


def test_a_worker_s_token_opens_nothing_else(
    rooms: Rooms, make_client: Callable[..., FlaskClient]
) -> None:
    client = make_client(anonymous=frozenset())
    secret = rooms.tokens.create(HOST, ["work"], by="test").secret
    headers = {"Authorization": f"Bearer {secret}"}
    for route in ROUTES:
        if route.scope not in (None, "work"):
            path = route.template.replace("{name}", HOST)
            for name, largest in route.parameters:
                path = path.replace(f"{{{name}}}", "7" if largest else "x")
            status = client.open(API + path, method=route.method, headers=headers).status_code
            assert status == 403, route.name


def test_an_older_attempt_writes_nothing(
    rooms: Rooms, ask: Callable[[Route, str | None], tuple[int, Any]], lease: Lease
) -> None:
    own = rooms.tokens.create(HOST, ["work"], by="test").secret
    rooms.runs.queue.finish(lease, "inconclusive", "it ended", None)
    for route in WORK:
        if route.template.startswith("/leases"):
            status, body = ask(route, own)
            assert (status, body["type"].rpartition("/")[2]) == (409, "lease-lost"), route.name
    assert rooms.runs.get(lease.run.id).reason == "it ended"


def test_a_second_state_of_pairs_is_refused(
    rooms: Rooms, make_client: Callable[..., FlaskClient], lease: Lease
) -> None:
    secret = rooms.tokens.create(HOST, ["work"], by="test").secret
    client = make_client(anonymous=frozenset())
    answer = client.put(
        f"{API}/leases/{lease.run.id}/{lease.attempt}/pairs",
        headers={"Authorization": f"Bearer {secret}"},
        json={"pairs": [{}, {}]},
    )
    assert answer.status_code == 400
    assert answer.get_json()["field"] == "pairs"


def claim(lease: Lease, **changed: Any) -> dict[str, Any]:
    """The end of a run with evidence, as a worker sends it."""
    assert lease.definition
    found = evidence(lease)
    body = {
        "sku": found.sku, "driver": found.driver.text, "development": False,
        "bound": {"suite": lease.definition.digest, "host": "another", "workloads": {"x": "y"}},
        "components": {name: one.text for name, one in found.components.items()},
    }  # fmt: skip
    return {"outcome": "passed", "why": "all passed", "evidence": {**body, **changed}}


@pytest.fixture
def end(
    rooms: Rooms, make_client: Callable[..., FlaskClient], lease: Lease
) -> Callable[[dict[str, Any]], Any]:
    client = make_client(anonymous=frozenset())
    own = rooms.tokens.create(HOST, ["work"], by="test").secret
    path = f"{API}/leases/{lease.run.id}/{lease.attempt}/end"
    return lambda body: client.post(path, headers={"Authorization": f"Bearer {own}"}, json=body)


def test_evidence_is_about_the_leased_run_at_the_gate_s_time(
    rooms: Rooms, lease: Lease, end: Callable[[dict[str, Any]], Any]
) -> None:
    before = clock.now().timestamp()
    assert end(claim(lease)).status_code == 200
    (row,) = rooms.runs.evidence(run=lease.run.id).items
    assert (row.suite, row.outcome) == (lease.run.suite, "passed")
    assert row.bound
    assert (row.bound["host"], row.bound["suite"]) == (HOST, lease.definition.digest)
    assert row.bound["workloads"] == lease.definition.workloads
    assert int(before) <= row.finished <= clock.now().timestamp()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"finished": 1}, "finished"),
        ({"sku": "H100-SXM5-80GB"}, "evidence.sku: the run is for A100-SXM4-80GB"),
        ({"driver": "new"}, "driver"),
        ({"bound": None}, "evidence.bound: says nothing of the suite"),
        ({"bound": {"assurance": "witnessed"}}, "evidence.bound: says nothing of the suite"),
        ({"bound": {"suite": "sha256:0"}}, "the worker's suite smoke is sha256:0, the gate's is"),
    ],
)
def test_a_claim_that_is_not_about_the_run_is_refused(
    rooms: Rooms,
    lease: Lease,
    end: Callable[[dict[str, Any]], Any],
    changed: dict[str, Any],
    said: str,
) -> None:
    answer = end(claim(lease, **changed))
    assert answer.status_code == 400
    assert said in answer.get_json()["detail"]
    assert not rooms.runs.evidence(run=lease.run.id).items


@pytest.mark.parametrize(("off", "said"), [(-120, "120 s behind"), (120, "120 s ahead of")])
def test_a_worker_with_a_wrong_clock_is_refused(
    rooms: Rooms, make_client: Callable[..., FlaskClient], lease: Lease, off: float, said: str
) -> None:
    client = make_client(anonymous=frozenset())
    own = rooms.tokens.create(HOST, ["work"], by="test").secret
    at = clock.iso(clock.now() + clock.timedelta(seconds=off))
    for method, path in (("PUT", ""), ("POST", "/lease")):
        answer = client.open(
            f"{API}/hosts/{HOST}{path}",
            method=method,
            headers={"Authorization": f"Bearer {own}"},
            json=declaration(at=at),
        )
        assert answer.status_code == 400
        assert f"the worker's clock is {said} the gate's" in answer.get_json()["detail"]


@pytest.mark.parametrize(
    ("name", "gpu", "field"),
    [("two words", "A100-SXM4-80GB", "name"), (HOST, "A100\nB200", "gpu")],
)
def test_a_host_that_cannot_be_is_refused_with_its_field(
    rooms: Rooms, make_client: Callable[..., FlaskClient], name: str, gpu: str, field: str
) -> None:
    secret = rooms.tokens.create("root", ["admin"], by="test").secret
    answer = make_client(anonymous=frozenset()).post(
        f"{API}/hosts/{name}/lease",
        headers={"Authorization": f"Bearer {secret}"},
        json=declaration(gpu=gpu),
    )
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)
