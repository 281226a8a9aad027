"""Every route for every kind of credential that is not simply a scope (`test_auth` has those).

Tokens that are limited to targets, inside and outside of their limit; tokens that ended. The routes
come from the registry: a new one is refused for limited tokens, or is asked here both ways.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
from flask.testing import FlaskClient

from compatgate.kit import clock
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.route import Route
from compatgate.kit.principal import Authorship, Principal
from compatgate.service.app import Rooms
from compatgate.service.matrix.documents.schemas import ENTRY, TARGET, WAIVER
from compatgate.service.matrix.proposals.agreement import ApprovalNeeded
from compatgate.service.matrix.proposals.schemas import ProposalRequest
from compatgate.service.runs.queue.schemas import IMPORT, RunRequest
from compatgate.web.routes import HOOKS, ROUTES

EVERY = (*ROUTES, *HOOKS)
IN, OUT = "prod-a100", "lab-a100"
BY = Authorship("tester", "for the test")
STACK = {"cuda": "12.4", "arch": ["sm_80", "compute_80"]}


class Ask(NamedTuple):
    """A request, in which ``{target}`` and the names of a place are filled."""

    path: str
    body: Any = None


class Place(NamedTuple):
    """What belongs to one target."""

    target: str
    entry: str
    waiver: str
    verdict: str
    decision: int
    run: str
    ended: str
    approval: str
    proposal: str
    mine: str
    revision: int


def plain(document: dict[str, Any], name: str, **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(document))
    body["metadata"]["name"] = name
    body["spec"] |= spec
    return {key: value for key, value in body.items() if key != "reason"}


def change(place: Place, kind: str) -> Any:
    made = {
        "Target": lambda: plain(TARGET, place.target),
        "Entry": lambda: plain(ENTRY, place.entry, targets=[place.target], reason="new"),
        "Waiver": lambda: plain(WAIVER, place.waiver, targets=[place.target], reason="new"),
    }[kind]()
    return {**made, "reason": "x"}


def new(place: Place, kind: str) -> Any:
    body = change(place, kind)
    body["metadata"]["name"] = f"{place.target}-new"
    return body


def imported(place: Place) -> Any:
    body = plain(TARGET, place.target)
    body["metadata"]["labels"] = {"tier": "gold"}
    return [{"apiVersion": "compatgate.dev/v1", "kind": "Target", **body}]


def question(place: Place) -> Any:
    return {"target": place.target, "stack": STACK}


def proposed(place: Place) -> Any:
    pools = [{"target": place.target, "set": {"driver": "580.95.05"}}]
    return {"pools": pools, "reason": "x"}


def review(place: Place) -> Any:
    pod = {
        "metadata": {"name": "p", "annotations": {"compatgate.dev/target": place.target}},
        "spec": {
            "containers": [
                {"name": "c", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            ]
        },
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "ml-x",
            "object": {"apiVersion": "v1", "kind": "Pod", **pod},
        },
    }


def report(place: Place) -> Any:
    content = IMPORT["content"].replace("n1", f"{place.target}-node")
    return {**IMPORT, "source": "team", "target": place.target, "content": content}


def driver(place: Place) -> Any:
    return {"target": place.target, "driver": "580.95.05"}


Make = Callable[[Place], Ask]
CHECKED: dict[str, Make] = {
    "ask": lambda at: Ask("/gate", question(at)),
    "preview": lambda at: Ask("/gate/preview", question(at)),
    "check_manifest": lambda at: Ask(
        "/k8s/check", {"object": review(at)["request"]["object"], "namespace": "ml-x"}
    ),
    "what_if": lambda at: Ask("/what-if", {"target": at.target, "set": {"driver": "580.95.05"}}),
    "solve": lambda at: Ask("/solve", {"targets": [at.target], "want": ["cuda"]}),
    "backtest": lambda at: Ask("/backtests", {"delete": [{"kind": "Entry", "name": at.entry}]}),
    "plan": lambda at: Ask(f"/targets/{at.target}/plan", {"set": {"driver": "580.95.05"}}),
    "report": lambda at: Ask(f"/targets/{at.target}/report"),
    "show_verdict": lambda at: Ask(f"/verdicts/{at.verdict}"),
    "show_resolution": lambda at: Ask(f"/verdicts/{at.verdict}/resolution"),
    "show_attestation": lambda at: Ask(f"/verdicts/{at.verdict}/attestation"),
    "stack_badge": lambda at: Ask(f"/badge/{at.target}/cuda=12.4.svg"),
    "entry_badge": lambda at: Ask(f"/badge/{at.target}/entry/{at.entry}.svg"),
    "create_target": lambda at: Ask("/targets", new(at, "Target")),
    "show_target": lambda at: Ask(f"/targets/{at.target}"),
    "change_target": lambda at: Ask(f"/targets/{at.target}", change(at, "Target")),
    "delete_target": lambda at: Ask(f"/targets/{at.target}?reason=x"),
    "list_target_pools": lambda at: Ask(f"/targets/{at.target}/pools"),
    "create_entry": lambda at: Ask("/entries", new(at, "Entry")),
    "list_dependents": lambda at: Ask(f"/entries/{at.entry}/dependents"),
    "show_entry": lambda at: Ask(f"/entries/{at.entry}"),
    "change_entry": lambda at: Ask(f"/entries/{at.entry}", change(at, "Entry")),
    "delete_entry": lambda at: Ask(f"/entries/{at.entry}?reason=x"),
    "create_waiver": lambda at: Ask("/waivers", new(at, "Waiver")),
    "show_waiver": lambda at: Ask(f"/waivers/{at.waiver}"),
    "change_waiver": lambda at: Ask(f"/waivers/{at.waiver}", change(at, "Waiver")),
    "delete_waiver": lambda at: Ask(f"/waivers/{at.waiver}?reason=x"),
    "import_matrix": lambda at: Ask("/matrix/import?reason=x", imported(at)),
    "create_proposal": lambda at: Ask("/proposals", proposed(at)),
    "show_proposal": lambda at: Ask(f"/proposals/{at.approval}"),
    "change_proposal": lambda at: Ask(f"/proposals/{at.mine}", proposed(at)),
    "approve_proposal": lambda at: Ask(f"/proposals/{at.proposal}/approve", {}),
    "retract_approval": lambda at: Ask(f"/proposals/{at.proposal}/retract", {}),
    "backtest_proposal": lambda at: Ask(f"/proposals/{at.proposal}/backtest", {}),
    "merge_proposal": lambda at: Ask(f"/proposals/{at.proposal}/merge", {}),
    "close_proposal": lambda at: Ask(f"/proposals/{at.proposal}/close", {}),
    "revert_revision": lambda at: Ask(f"/revisions/{at.revision}/revert", {"reason": "x"}),
    "sync_matrix": lambda at: Ask("/matrix/sync?reason=x", imported(at)),
    "submit_runs": lambda at: Ask("/runs", {"suite": "smoke", "target": at.target}),
    "import_report": lambda at: Ask("/runs/imports", report(at)),
    "show_run": lambda at: Ask(f"/runs/{at.run}"),
    "show_logs": lambda at: Ask(f"/runs/{at.run}/logs"),
    "take_samples": lambda at: Ask(f"/runs/{at.run}/samples"),
    "cancel_run": lambda at: Ask(f"/runs/{at.run}/cancel"),
    "discard_run": lambda at: Ask(f"/runs/{at.ended}/discard?reason=x"),
    "rerun": lambda at: Ask(f"/runs/{at.ended}/rerun"),
    "show_decision": lambda at: Ask(f"/decisions/{at.decision}"),
    "ask_generic": lambda at: Ask("/hooks/generic", question(at)),
    "poll_generic": lambda at: Ask(f"/hooks/generic?target={at.target}&stack=cuda%3D12.4"),
    "ask_argo_rollouts": lambda at: Ask("/hooks/argo-rollouts", question(at)),
    "ask_flagger": lambda at: Ask(
        "/hooks/flagger",
        {
            "name": "x",
            "namespace": "y",
            "phase": "Progressing",
            "metadata": {"target": at.target, "stack": "cuda=12.4", "type": "pre-rollout"},
        },
    ),
    "ask_driver_rollout": lambda at: Ask("/hooks/driver-rollout", driver(at)),
}
"""A request of every route that checks the limit itself and speaks of one target."""
LISTS = {
    "list_targets": ("name", IN, OUT),
    "list_pools": ("target", IN, OUT),
    "list_entries": ("name", "torch24-cu124", "lab-entry"),
    "list_waivers": ("name", "legacy-ocr", "lab-waiver"),
    "list_runs": ("target", IN, OUT),
    "list_decisions": ("target", IN, OUT),
}
"""The member of an item that tells its place, and its value inside and outside of the limit."""
OWN_TESTS = {
    "validate_kubernetes",
    "deliver_decisions",
    "list_metric_histories",
    "list_proposals",
    "list_upgrades",
    "create_upgrade",
    "show_upgrade",
    "may_start",
    "approve_upgrade",
    "retract_upgrade",
    "stop_upgrade",
    "resume_upgrade",
    "roll_back_upgrade",
    "leave_out_nodes",
}


class World(NamedTuple):
    rooms: Rooms
    client: FlaskClient
    inside: Place
    outside: Place

    def bearer(self, name: str, **options: Any) -> dict[str, str]:
        scopes = options.pop("scopes", ["read", "gate", "operate", "bless"])
        made = self.rooms.tokens.create(name, scopes, by="test", **options)
        return {"Authorization": f"Bearer {made.secret}"}

    def send(self, route: Route, ask: Ask, headers: dict[str, str]) -> Any:
        path = ask.path if route.prefix != API_PREFIX else API_PREFIX + ask.path
        body = ask.body
        if "/pr_" in path and path.endswith(("/approve", "/merge")):
            body = {"digest": self.rooms.proposals.show(path.split("/")[-2]).row.digest}
        options: dict[str, Any] = {} if body is None else {"json": body}
        return self.client.open(path, method=route.method, headers=headers, **options)


@pytest.fixture
def world(rooms: Rooms, make_client: Callable[..., FlaskClient]) -> World:
    two = {**TARGET["spec"]["policy"], "approvals": 2}
    rooms.matrix.create("Target", plain(TARGET, OUT), BY)
    rooms.matrix.create("Target", plain(TARGET, "lab-two", policy=two), BY)
    rooms.matrix.create("Target", plain(TARGET, "prod-two", policy=two), BY)
    rooms.matrix.create("Entry", plain(ENTRY, "lab-entry", targets=[OUT]), BY)
    rooms.matrix.create("Waiver", plain(WAIVER, "lab-waiver", targets=[OUT]), BY)
    inside = stock(rooms, IN, "torch24-cu124", "legacy-ocr")
    outside = stock(rooms, OUT, "lab-entry", "lab-waiver")
    return World(rooms, make_client(anonymous=frozenset()), inside, outside)


def stock(rooms: Rooms, target: str, entry: str, waiver: str) -> Place:
    verdict = rooms.gate.decide({"target": target, "stack": STACK}, asked_by="t", source="rest")
    decision = rooms.decisions.list_decisions(limit=1).items[0]
    (ended, *_) = rooms.runs.submit(RunRequest("smoke", target=target), by="t")
    rooms.runs.cancel(ended.id, by="t")
    (run, *_) = rooms.runs.submit(RunRequest("smoke", target=target), by="t")
    with pytest.raises(ApprovalNeeded) as needed:
        rooms.matrix.delete("Target", f"{target.partition('-')[0]}-two", BY)
    asked = str(needed.value.value)
    edits = msgspec.convert(proposed(Place(target, *[""] * 10)), ProposalRequest)  # type: ignore[arg-type]
    mine = Authorship("team", "x", Principal("team", frozenset({"propose"})))
    made = [rooms.proposals.propose(edits, by).row.id for by in (BY, mine)]
    revision = rooms.matrix.list_changes("Target", target).items[0].number
    about = (verdict.id, decision.id, run.id, ended.id, asked, *made, revision)
    return Place(target, entry, waiver, *about)


def by_name(name: str) -> Route:
    (found,) = (route for route in EVERY if route.name == name)
    return found


def test_every_route_says_what_it_makes_of_a_limit() -> None:
    """A new route refuses limited tokens until it says otherwise, and is then asked here."""
    asked = CHECKED.keys() | LISTS.keys() | OWN_TESTS
    assert {route.name for route in EVERY if route.targets == "checked"} == asked
    free = {route.name for route in EVERY if route.targets == "free"}
    assert free == {
        "list_keys",
        "list_tables",
        "list_facts",
        "show_fact",
        "list_rules",
        "show_rule",
        "list_suites",
        "list_workloads",
        "describe_sign_in",
        "open_session",
        "end_own_session",
        "show_caller",
        "openapi",
    }


def test_a_limited_token_reaches_no_target_outside_of_its_limit(world: World) -> None:
    headers = world.bearer("team", targets=["prod-*"])
    last = world.rooms.matrix.list_revisions(limit=1).items[0].number
    for name, make in CHECKED.items():
        refused = world.send(by_name(name), make(world.outside), headers)
        assert refused.status_code == 403, f"{name}: {refused.text}"
        assert "team is limited to prod-*" in refused.text, name
    assert world.rooms.matrix.list_revisions(limit=1).items[0].number == last


@pytest.mark.parametrize("limit", [["prod-*"], ["lab-*", "nowhere"], None])
def test_a_token_reaches_the_targets_of_its_limit(world: World, limit: list[str] | None) -> None:
    headers = world.bearer("team", targets=limit)
    place = world.inside if limit == ["prod-*"] else world.outside
    for name in sorted(CHECKED, key=lambda one: (one.startswith(("cancel", "delete")), one)):
        answer = world.send(by_name(name), CHECKED[name](place), headers)
        assert answer.status_code not in (400, 401, 403), f"{name}: {answer.text}"


def test_a_limited_token_sees_only_its_targets_in_lists(world: World) -> None:
    limits = {"prod": ["prod-*"], "lab": ["lab-*"], "all": None, "nothing": ["nothing-*"]}
    callers = {name: world.bearer(name, targets=limit) for name, limit in limits.items()}
    for name, (member, inside, outside) in LISTS.items():
        route = by_name(name)
        seen = {}
        for caller, headers in callers.items():
            items = world.send(route, Ask(route.path), headers).get_json()["items"]
            found = {item.get("metadata", item)[member] for item in items}
            seen[caller] = {one for one in found if "two" not in one}
        expected = {"prod": {inside}, "lab": {outside}, "all": {inside, outside}, "nothing": set()}
        assert seen == expected, name


def test_the_kubernetes_hook_denies_a_pod_outside_of_the_limit(world: World) -> None:
    route = by_name("validate_kubernetes")
    headers = world.bearer("cluster", targets=["prod-*"])
    path = "/hooks/kubernetes/validate"
    inside = world.send(route, Ask(path, review(world.inside)), headers).get_json()["response"]
    outside = world.send(route, Ask(path, review(world.outside)), headers).get_json()["response"]
    assert "limited" not in json.dumps(inside)
    assert outside["allowed"] is False
    assert "cluster is limited to prod-*: lab-a100 is outside" in outside["status"]["message"]


def test_what_concerns_all_targets_refuses_a_limited_token(world: World) -> None:
    headers = world.bearer("team", targets=["*-a100"])
    for route in EVERY:
        path = route.template
        for name, largest in route.parameters:
            path = path.replace(f"{{{name}}}", "7" if largest else "x")
        status = world.send(route, Ask(path), headers).status_code
        if route.targets == "refused":
            assert status == 403, route.name
        elif route.targets == "free":
            assert status not in (401, 403), route.name
    assert world.client.get("/metrics", headers=headers).status_code == 403
    assert world.client.get("/ui/targets", headers=headers).status_code == 403


def test_an_edit_reaches_the_targets_before_and_after(world: World) -> None:
    """A limited token neither takes an entry to its targets nor gives one away, nor to all."""
    headers = world.bearer("team", targets=["prod-*"])
    for name, targets in (
        ("lab-entry", [IN]),
        ("torch24-cu124", [IN, OUT]),
        ("torch24-cu124", ["*"]),
    ):
        body = {**plain(ENTRY, name, targets=targets), "reason": "x"}
        answer = world.client.put(f"{API_PREFIX}/entries/{name}", json=body, headers=headers)
        assert answer.status_code == 403, targets


def test_a_question_about_a_pool_needs_no_target(world: World) -> None:
    headers = world.bearer("team", targets=["prod-*"])
    pool = {"driver": "535.104.05", "gpu": "A100-SXM4-80GB"}
    body = {"pool": pool, "stack": STACK}
    answer = world.client.post(f"{API_PREFIX}/gate", json=body, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("ended", ["expired", "revoked", "rotated", "overlap over"])
def test_a_token_that_ended_opens_no_route(
    world: World, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = clock.now() + timedelta(hours=1) if ended == "expired" else None
    headers = world.bearer("old", scopes=["read"], expires_at=end)
    tokens = world.rooms.tokens
    if ended == "revoked":
        tokens.revoke("old", by="test")
    elif ended == "rotated":
        tokens.rotate("old", by="test")
    elif ended == "overlap over":
        tokens.rotate("old", by="test", overlap=timedelta(minutes=30))
        assert world.client.get(f"{API_PREFIX}/targets", headers=headers).status_code == 200
    later = clock.now() + timedelta(hours=2)
    monkeypatch.setattr(clock, "now", lambda: later)
    monkeypatch.setattr("compatgate.service.access.token_table.now", lambda: later)
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 5)
    for route in ROUTES:
        path = route.template
        for name, largest in route.parameters:
            path = path.replace(f"{{{name}}}", "7" if largest else "x")
        answer = world.send(route, Ask(path), headers)
        assert answer.status_code == 401, route.name


def test_a_refused_attempt_is_in_the_audit_log(world: World) -> None:
    outside = plain(TARGET, OUT) | {"reason": "x"}
    world.client.put(
        f"{API_PREFIX}/targets/{OUT}", json=outside, headers=world.bearer("t", targets=["prod-*"])
    )
    weaker = plain(TARGET, IN)
    weaker["spec"]["policy"]["mode"] = "audit"
    for _ in range(3):
        world.client.put(
            f"{API_PREFIX}/targets/{IN}",
            json={**weaker, "reason": "x"},
            headers=world.bearer(f"op-{_}", scopes=["operate"]),
        )
    world.client.get(f"{API_PREFIX}/targets", headers={"Authorization": "Bearer cg_unknown"})
    world.rooms.refusals.close()
    found = world.rooms.audit.list_audit(action="access.refused").items
    assert {(one.actor, one.subject) for one in found} == {
        ("t", f"PUT {API_PREFIX}/targets/{OUT}"),
        *((f"op-{number}", f"PUT {API_PREFIX}/targets/{IN}") for number in range(3)),
    }
    assert "spec.policy.mode" in found[0].detail["reason"]
