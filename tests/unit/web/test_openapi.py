"""The description is valid, complete and true."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from canary_runs import STACK, host, suites
from flask.testing import FlaskClient
from msgspec import Struct
from msgspec.structs import replace
from openapi_spec_validator import validate

from compatgate.kit import clock
from compatgate.kit.http.route import OPEN_SCOPES, Returns, Route
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.changes.upgrades.schemas import UpgradeRequest
from compatgate.service.matrix.proposals.schemas import ProposalRequest, ProposedDeletion
from compatgate.service.runs.queue.schemas import RunRequest
from compatgate.web.app import create_app
from compatgate.web.openapi import describe_api
from compatgate.web.routes import HOOKS, ROUTES, TAGS
from compatgate.web.service import Settings

WITH_EXAMPLES = [
    pytest.param(route, name, id=f"{route.name}-{name}")
    for route in (*ROUTES, *HOOKS)
    if route.body
    for name in route.body.examples
]


def test_the_description_is_valid_openapi(description: dict[str, Any]) -> None:
    validate(description)  # type: ignore[arg-type]


def test_it_is_served(client: FlaskClient, description: dict[str, Any]) -> None:
    assert client.get("/api/v1/openapi.json").get_json() == description


def test_every_route_is_described_and_nothing_else(
    rooms: Rooms, description: dict[str, Any]
) -> None:
    app = create_app(rooms, Settings())
    served = {
        (method, re.sub(r"<(?:[^:<>]+:)?(\w+)>", r"{\1}", rule.rule))
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith(("/api/", "/hooks/"))
        for method in (rule.methods or set()) - {"HEAD"}
    }
    described = {
        (method.upper(), path) for path, item in description["paths"].items() for method in item
    }
    assert served == described


def test_two_structs_of_one_name_are_refused() -> None:
    class KnownGood(Struct):
        other: int

    another = replace(ROUTES[0], returns=Returns(KnownGood, "Not that of KnownGoodBody"))
    with pytest.raises(ValueError, match="two structs have the name KnownGood"):
        describe_api([*ROUTES, another], TAGS)


def test_operation_ids_are_unique() -> None:
    names = [route.name for route in (*ROUTES, *HOOKS)]
    assert len(names) == len(set(names))


def test_every_operation_says_what_it_does_and_what_it_needs(description: dict[str, Any]) -> None:
    for item in description["paths"].values():
        for operation in item.values():
            assert operation["summary"]
            assert operation["description"].endswith((".", "`."))
            assert all(p.get("description") or p["name"] for p in operation["parameters"])
            assert set(operation["tags"]) <= set(TAGS)


def test_every_change_takes_a_reason(description: dict[str, Any]) -> None:
    for route in ROUTES:
        if route.changes and route.tag in ("targets", "entries", "waivers", "matrix"):
            operation = description["paths"][f"/api/v1{route.template}"][route.method.lower()]
            names = [p["name"] for p in operation["parameters"]]
            assert "X-Compatgate-Reason" in names


def test_nothing_refers_to_a_component_that_does_not_exist(description: dict[str, Any]) -> None:
    refs = set(re.findall(r"'#/components/schemas/(\w+)'", repr(description)))
    assert refs == set(description["components"]["schemas"])


def _named_target(name: str) -> dict[str, Any]:
    target = next(r for r in ROUTES if r.name == "create_target")
    assert target.body
    example = target.body.examples["target"]
    return {**example, "metadata": {**example["metadata"], "name": name}}


def _proposal(client: FlaskClient, rooms: Rooms, operation: str) -> str:
    """The id of a proposal with which an operation can be asked: ours, or somebody else's."""
    edits = {"delete": [{"kind": "Waiver", "name": "legacy-ocr"}], "reason": "for the test"}
    if operation == "change_proposal":
        return str(client.post("/api/v1/proposals", json=edits).get_json()["id"])
    request = ProposalRequest(delete=[ProposedDeletion("Waiver", "legacy-ocr")])
    made = rooms.proposals.propose(request, Authorship("somebody else", "for the test"))
    if operation == "retract_approval":
        client.post(f"/api/v1/proposals/{made.row.id}/approve", json={"digest": made.row.digest})
    return made.row.id


def _upgrade(client: FlaskClient, rooms: Rooms, operation: str) -> str:
    """The name of an upgrade with which an operation can be asked."""
    nodes = [
        {"name": f"gpu-{number}", "target": "prod-a100", "labels": A100_LABELS}
        for number in (17, 18)
    ]
    client.post("/api/v1/nodes", json={"nodes": nodes})
    if operation == "create_upgrade":
        return ""
    asked = UpgradeRequest("roll", "prod-a100", "580.95.05")
    rooms.upgrades.propose(asked, Authorship("somebody else", "for the test"))
    if operation == "retract_upgrade":
        client.post("/api/v1/upgrades/roll/approve", json={})
    return "roll"


A100_LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/cuda.driver-version.full": "535.183.01",
}


def _incident(rooms: Rooms, operation: str) -> str:
    """The number of an incident with which an operation can be asked."""
    number = rooms.incidents.survey()[0]
    if operation == "reopen_incident":
        until = clock.now() + timedelta(days=1)
        rooms.incidents.snooze(number, until, Authorship("somebody else", "for the test"))
    return str(number)


def _lease(rooms: Rooms) -> dict[str, Any]:
    """The parts of the paths of workers, of a run that a host has."""
    rooms.runs.catalogue = suites
    rooms.runs.queue.register("w1", [host("stage")])
    rooms.runs.submit(RunRequest("smoke", host="stage", stack=STACK), by="tester")
    lease = rooms.runs.queue.lease("w1", [host("stage")])
    assert lease
    return {"name": "stage", "run": lease.run.id, "attempt": lease.attempt}


@pytest.mark.parametrize(("route", "name"), WITH_EXAMPLES)
def test_every_example_is_accepted(
    client: FlaskClient, rooms: Rooms, route: Route, name: str
) -> None:
    assert route.body
    path = f"{route.prefix}{route.template}"
    body = route.body.examples[name]
    made = route.method == "POST" and route.scope not in OPEN_SCOPES
    if made and route.tag in ("targets", "entries", "waivers"):
        for kind in ("waivers/legacy-ocr", "entries/torch24-cu124", "targets/prod-a100"):
            client.delete(f"/api/v1/{kind}?reason=room")
        if route.tag != "targets":
            target = next(r for r in ROUTES if r.name == "create_target")
            assert target.body
            client.post("/api/v1/targets", json=target.body.examples["target"])
    elif route.name == "rotate_token":
        client.post("/api/v1/tokens", json={"name": "ci", "scopes": ["read"]})
        path = path.format(name="ci")
    elif route.tag == "proposals" and "{id}" in path:
        path = path.format(id=_proposal(client, rooms, route.name))
        if "digest" in body:
            body = {**body, "digest": client.get(path.rpartition("/")[0]).get_json()["digest"]}
    elif route.tag == "upgrades":
        path = path.format(name=_upgrade(client, rooms, route.name))
    elif route.tag == "notices":
        path = path.format(id=_incident(rooms, route.name))
    elif route.tag == "work":
        path = path.format(**_lease(rooms))
        body = {**body, **({"at": clock.iso(clock.now())} if "at" in body else {})}
    elif "{number}" in path:
        path = path.format(number=rooms.gate.snapshot().revision)
    elif "{name}" in path:
        path = path.format(name=body.get("metadata", {"name": "prod-a100"})["name"])
    asked = {"solve": ("prod-a100", "inference-l4"), "plan": ("prod-a100",)}
    for name in asked.get(route.name, ()):
        client.post("/api/v1/targets", json=_named_target(name))
    headers = {"X-Compatgate-Reason": "an example"} if route.reason else {}
    if route.name == "import_report":
        secret = rooms.tokens.create(body["source"], ["operate"], by="test").secret
        headers["Authorization"] = f"Bearer {secret}"
    answer = client.open(path, method=route.method, json=body, headers=headers)
    assert answer.status_code == route.returns.status, answer.text
