"""Every credential against every way to weaken a target.

Credentials are the scopes, each with and without a limit to targets. Ways are the changes of each
field that weakens a target, targets whose match overlaps its own, node reports, deliveries of far
gates, and older bundles. What must hold is computed: only ``bless``, within the limit, weakens
``prod``, and no other target takes its pods.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from attest_keys import signer_of
from flask.testing import FlaskClient
from msgspec import UNSET, to_builtins
from msgspec.structs import replace
from sqlalchemy import update
from target_fields import BASE, put, weakening_pairs

from compatgate.documents.convert import to_target
from compatgate.documents.specs import MatchSpec, PolicySpec, TargetDoc, TargetSpec
from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.principal import SCOPES, Authorship
from compatgate.service.app import Rooms
from compatgate.service.audit.attestations import SigningOptions
from compatgate.service.cluster.landing import KnownNodes
from compatgate.service.cluster.matching import match_targets, terms_of
from compatgate.service.cluster.node_index import KnownNode, NodeIndex
from compatgate.service.gate.decisions.batch_store import Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.far.bundles import (
    BundleRefused,
    apply_bundle,
    read_trusted,
    sign_bundle,
)
from compatgate.service.gate.far.gate import make_requests
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.matrix.documents import revisions
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.proposals.agreement import Consent
from compatgate.service.matrix.proposals.repository import Proposal
from compatgate.web.app import create_app
from compatgate.web.service import Settings

BY = Authorship("tester", "for the test")
LIMITS: tuple[tuple[str, ...] | None, ...] = (None, ("prod*",), ("lab*",), ("prod", "lab*"))
PRODUCT, A100, L4 = "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", "NVIDIA-L4"
OS = "kubernetes.io/os"
PROD = put(BASE, "spec.match", MatchSpec(("ml-*",), {PRODUCT: A100}))
STACK = "cuda=12.4,arch=sm_90"  # no code for an A100
SIGNER, OTHER = signer_of("p256"), signer_of("p256")


class Credential(NamedTuple):
    name: str
    scope: str
    limit: tuple[str, ...] | None
    headers: dict[str, str]

    def may_weaken(self, *targets: str) -> bool:
        reaches = self.limit is None or all(self._reaches(name) for name in targets)
        return self.scope in ("bless", "admin") and reaches

    def status(self, targets: str, answer: int) -> int:
        """Return the status of a change that weakens targets, if it is otherwise ``answer``."""
        return answer if self.may_weaken(*targets.split()) else 403 if self.scope else 401

    def _reaches(self, target: str) -> bool:
        globs = self.limit or ()
        return any(target == g or (g[-1] == "*" and target.startswith(g[:-1])) for g in globs)


class World(NamedTuple):
    rooms: Rooms
    client: FlaskClient
    credentials: tuple[Credential, ...]

    def put(self, document: TargetDoc, who: Credential, *, create: bool = False) -> Any:
        body = {**plain(document), "reason": "x"}
        name = document.metadata.name
        path = f"{API_PREFIX}/targets" + ("" if create else f"/{name}")
        method = "POST" if create else "PUT"
        return self.client.open(path, method=method, json=body, headers=who.headers)

    def store(self, document: TargetDoc | None, name: str = "prod") -> None:
        """Make a target what it was, whatever its policy asks for; close what is proposed."""
        before = self.rooms.gate.snapshot().documents.get(name)
        with self.rooms.gate.database.writing() as session:
            session.execute(update(Proposal).values(state="closed"))
        if before == document:
            return
        with self.rooms.gate.database.writing() as session:
            revisions.make_revision(
                session, [Edit(before, document)], author="t", reason="x", action="change",
                at=clock.now(), consent=Consent(),
            )  # fmt: skip
        self.rooms.snapshots.refresh()

    def stored(self, name: str) -> TargetDoc:
        return self.rooms.gate.snapshot().documents[name]


def plain(document: TargetDoc) -> dict[str, Any]:
    body: dict[str, Any] = to_builtins(document)
    return {key: body[key] for key in ("metadata", "spec")}


@pytest.fixture
def world(rooms: Rooms) -> World:
    for kind, names in (("Waiver", ["legacy-ocr"]), ("Entry", ["torch24-cu124"])):
        for name in names:
            rooms.matrix.delete(kind, name, BY)  # type: ignore[arg-type]
    rooms.matrix.delete("Target", "prod-a100", BY)
    made = []
    for number, (scope, limit) in enumerate(product(SCOPES, LIMITS)):
        if scope in ("deliver", "admin") and limit is not None:
            continue
        name = f"{scope}-{number}"
        token = rooms.tokens.create(name, [scope], by="t", targets=limit)
        made.append(Credential(name, scope, limit, {"Authorization": f"Bearer {token.secret}"}))
    nobody = Credential("anonymous", "", None, {})
    signing = SigningOptions(lambda: SIGNER, (SIGNER.public_key,))
    client = create_app(rooms, Settings(anonymous=frozenset(), signing=signing)).test_client()
    return World(rooms, client, (*made, nobody))


def test_only_bless_within_its_limit_changes_a_field_that_weakens(world: World) -> None:
    asked: set[str] = set()
    for path, before, after in weakening_pairs():
        world.store(before)
        changing = [one for one in world.credentials if one.scope in ("operate", "bless")]
        for who in changing if path in asked else world.credentials:
            answer = world.put(after, who)
            expected = who.status("prod", 409 if asks_for_others(before) else 200)
            assert answer.status_code == expected, (path, who, answer.text)
            assert world.stored("prod") == (after if expected == 200 else before), (path, who)
            if expected in (200, 409):
                world.store(before)
        asked.add(path)


def asks_for_others(target: TargetDoc) -> bool:
    policy = target.spec.policy
    return policy.approvals not in (UNSET, 1) or policy.changes == "proposals"


def test_nobody_weakens_alone_what_asks_for_two(world: World) -> None:
    for path, before, after in weakening_pairs():
        two = put(before, "spec.policy.approvals", 2) if "approvals" not in path else before
        world.store(two)
        for who in (one for one in world.credentials if one.may_weaken("prod")):
            answer = world.put(after, who)
            assert answer.status_code == 409, (path, who, answer.text)
            assert world.stored("prod") == two, (path, who)
            world.store(two)


def shadows() -> Iterator[TargetDoc]:
    """Yield targets of every match in reach of prod's, strict and lax."""
    labels: tuple[dict[str, str], ...] = (
        {},
        {PRODUCT: A100},
        {PRODUCT: A100, OS: "linux"},
        {OS: "linux"},
        {PRODUCT: L4},
    )
    namespaces = ((), ("ml-*",), ("ml-train",), ("*",), ("m?-[a-z]*",), ("lab", "x*"))
    for globs, chosen, policy in product(namespaces, labels, (PROD.spec.policy, AUDIT)):
        named = put(PROD, "metadata.name", "lab-shadow")
        yield put(put(named, "spec.match", MatchSpec(globs, chosen)), "spec.policy", policy)


AUDIT = PolicySpec("audit")
NODES = [
    KnownNode("c", f"n{number}", labels, gpus=("A100-SXM4-80GB",), driver="535.183.01")
    for number, labels in enumerate(({PRODUCT: A100}, {PRODUCT: A100, OS: "linux"}, {OS: "linux"}))
]


def targets_of_pods(
    rooms: Rooms, targets: dict[str, TargetSpec]
) -> dict[tuple[str, ...], set[str]]:
    """Return the targets of every pod that is worth asking about, by what it states.

    A shadow counts where prod matches in full as well: there an annotation could choose it.
    """
    gpus = rooms.gate.facts.gpus
    resolved = {
        name: to_target(TargetDoc(PROD.api_version, PROD.metadata, spec), gpus)
        for name, spec in targets.items()
    }
    nodes = KnownNodes(NodeIndex(NODES), resolved, targets, gpus)
    found = {}
    for namespace in ("ml-train", "ml-other", "mx-a", "lab", "elsewhere"):
        for product_, system in product(("", A100, L4), ("", "linux")):
            labels = {PRODUCT: product_, OS: system}
            spec = {"nodeSelector": {key: value for key, value in labels.items() if value}}
            bound = match_targets(namespace, list(terms_of(spec)), targets)
            reached = nodes.landing(namespace, spec, ["nvidia.com/gpu"], bound.targets).reached
            full = bound.how == "match" and "prod" in bound.targets
            for known in ((), reached):
                names = {*bound.targets, *known} - (set() if full else {"lab-shadow"})
                found[namespace, product_, system, str(bool(known))] = names
    return found


def test_no_target_takes_pods_from_another_without_its_consent(world: World) -> None:
    """A shadow that could take a pod is refused to whoever may not weaken prod; others are not."""
    world.store(PROD)
    before = targets_of_pods(world.rooms, {"prod": PROD.spec})
    taking = 0
    for shadow in shadows():
        strict = replace(shadow.spec, policy=PROD.spec.policy)
        after = targets_of_pods(world.rooms, {"prod": PROD.spec, "lab-shadow": strict})
        takes = any("prod" in names and after[pod] != names for pod, names in before.items())
        taking += takes
        own = targets_of_pods(world.rooms, {"prod": PROD.spec, "lab-shadow": shadow.spec})
        if shadow.spec.policy == AUDIT:  # no pod of prod's namespaces, whoever agreed to the shadow
            lost = [pod for pod, names in before.items() if "prod" in names - own[pod]]
            assert not any(namespace.startswith("ml-") for namespace, *_ in lost), shadow
        for who in world.credentials:
            answer = world.put(shadow, who, create=True)
            asked = "prod lab-shadow" if takes else "lab-shadow"
            state = (shadow.spec.match, takes, who.name, answer.text)
            assert answer.status_code == who.status(asked, 201), state
            if answer.status_code == 201:
                world.store(None, "lab-shadow")
    assert taking >= 20


def test_a_target_that_asks_for_two_keeps_its_pods_from_one(world: World) -> None:
    two = put(PROD, "spec.policy.approvals", 2)
    world.store(two)
    elsewhere = put(put(PROD, "metadata.name", "lab-a"), "spec.match", MatchSpec(("lab",), {}))
    shadow = put(elsewhere, "spec.match", MatchSpec((), {PRODUCT: A100, OS: "linux"}))
    weak = put(shadow, "spec.policy", AUDIT)
    stricter = put(weak, "spec.policy", two.spec.policy)
    for stored, changed in ((None, shadow), (elsewhere, shadow), (weak, stricter)):
        world.store(stored, "lab-a")
        for who in world.credentials:
            answer = world.put(changed, who, create=stored is None)
            expected = who.status("prod lab-a", 409)
            assert answer.status_code == expected, (stored, who, answer.text)
            assert world.rooms.gate.snapshot().documents.get("lab-a") == stored
            world.store(stored, "lab-a")


def test_one_person_does_not_make_himself_the_only_approver(world: World) -> None:
    for former in (UNSET, ("sre-*",), ("kim", "lee")):
        before = put(put(PROD, "spec.policy.approvers", former), "spec.policy.approvals", 2)
        for who in world.credentials:
            if not who.may_weaken("prod"):
                continue
            for mine in ((who.name,), (f"{who.name[:-1]}*",), (who.name, "nobody")):
                world.store(before)
                answer = world.put(put(before, "spec.policy.approvers", mine), who)
                assert (answer.status_code, "approval-needed" in answer.text) == (409, True), mine
                assert world.stored("prod") == before
            world.store(PROD)
            seized = put(put(PROD, "spec.policy.approvals", 2), "spec.policy.approvers", mine)
            assert world.put(seized, who).status_code == 409
            others = put(seized, "spec.policy.approvers", ("kim",))
            assert world.put(others, who).status_code == 200
            named = put(put(PROD, "metadata.name", "prod-new"), "spec.match", MatchSpec())
            alone = put(put(named, "spec.policy.approvals", 2), "spec.policy.approvers", mine[:1])
            assert world.put(alone, who, create=True).status_code == who.status("prod-new", 409)


def test_a_proposal_of_another_makes_nobody_an_approver_who_merges_it_alone(world: World) -> None:
    (admin,) = (who for who in world.credentials if who.scope == "admin")
    world.store(PROD)
    seized = put(put(PROD, "spec.policy.approvals", 2), "spec.policy.approvers", (admin.name,))
    body = {"documents": [{"apiVersion": PROD.api_version, "kind": "Target", **plain(seized)}]}
    bot = next(who for who in world.credentials if who.scope == "propose" and who.limit is None)
    made = world.client.post(
        f"{API_PREFIX}/proposals", json={**body, "reason": "x"}, headers=bot.headers
    ).get_json()
    path = f"{API_PREFIX}/proposals/{made['id']}"
    for action, status in (("approve", 200), ("merge", 403)):
        read = {"digest": made["digest"]}
        answer = world.client.post(f"{path}/{action}", json=read, headers=admin.headers)
        assert answer.status_code == status, answer.text
    assert world.stored("prod") == PROD


def review(node: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    pod = {
        "metadata": {"name": "p", "annotations": {"compatgate.dev/stack": STACK}},
        "spec": {**spec, "containers": [{"name": "c", "image": "i:1", "resources": limits}]},
    }
    request = {
        "uid": "u1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": namespace,
        "dryRun": True,
        "object": {"apiVersion": "v1", "kind": "Pod", **pod},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def pods_on(node: str) -> Iterator[dict[str, Any]]:
    for selector in ({}, {PRODUCT: A100}):
        yield {"nodeSelector": selector}
        yield {"nodeSelector": selector, "nodeName": node}
        yield {"nodeSelector": {**selector, "kubernetes.io/hostname": node}}


def test_what_a_report_says_only_narrows(world: World) -> None:
    """Whatever is reported without bless, a pod that was denied stays denied."""
    world.store(PROD)
    lab = put(put(PROD, "metadata.name", "lab"), "spec.policy", PolicySpec("audit"))
    world.store(put(lab, "spec.match", MatchSpec((), {"team": "lab"})), "lab")
    (admin,) = (who for who in world.credentials if who.scope == "admin")

    def report(who: Credential, name: str, cluster: str, **node: Any) -> int:
        labels = {"kubernetes.io/hostname": name, **node.pop("labels", {})}
        body = {"cluster": cluster, "nodes": [{"name": name, "labels": labels, **node}]}
        answer = world.client.post(f"{API_PREFIX}/nodes", json=body, headers=who.headers)
        return answer.status_code

    def is_denied(namespace: str, spec: dict[str, Any]) -> bool:
        path = "/hooks/kubernetes/validate"
        body = review("", namespace, spec)
        answer = world.client.post(path, json=body, headers=admin.headers).get_json()
        return not answer["response"]["allowed"]

    offered = {"allocatable": {"nvidia.com/gpu": 8}}
    for who in world.credentials:
        may = who.scope in ("operate", "admin") and who.limit is None
        assert (report(who, "gpu-1", "one", labels={PRODUCT: A100}) == 200) is may, who
    reporting = [who for who in world.credentials if who.scope == "operate" and who.limit is None]
    for who, cluster, name, target, labels in product(
        reporting, ("one", "two"), ("gpu-1", "ghost"), (None, "lab"),
        ({PRODUCT: A100}, {PRODUCT: A100, "team": "lab"}, {"team": "lab"}),
    ):  # fmt: skip
        assert report(admin, "gpu-1", "one", labels={PRODUCT: A100}, **offered) == 200
        hidden = name == "gpu-1" and PRODUCT not in labels
        # Labels of a known node are believed, so only a pod's own match is certain then.
        spaces = ("ml-a",) if hidden else ("ml-a", "other")
        asked = list(product(spaces, pods_on(name)))
        before = [is_denied(*one) for one in asked]
        node = {"labels": labels, **offered, **({"target": target} if target else {})}
        assert (report(who, name, cluster, **node) == 200) is (cluster == "one"), cluster
        for one, was in zip(asked, before, strict=True):
            assert is_denied(*one) or not was, (cluster, name, target, labels, one)
        assert any(before)
        for gone, where in product(("gpu-1", "ghost"), ("one", "two")):
            path = f"{API_PREFIX}/nodes/{gone}?cluster={where}&reason=x"
            world.client.delete(path, headers=admin.headers)


def deliveries(who: Credential, world: World, verdict: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield batches that would turn a denial into "allowed", or renew what was answered."""
    (row,) = world.rooms.decisions.list_decisions(verdict_id=verdict["id"], limit=1).items
    true = {name: getattr(row, name) for name in NewDecision.__struct_fields__}
    true["asked_by"] = f"ci@{who.name}"
    better = {**verdict, "verdict": "pass", "allowed": True, "findings": []}
    lies: tuple[dict[str, Any], ...] = ({}, {"allowed": True}, {"outcome": "pass"})
    for bodies, lie in product(({}, {verdict["id"]: json.dumps(better)}), lies):
        if bodies or lie:
            yield from sent_by(who, {**true, **lie}, bodies)
    later: datetime = true["decided_at"] + timedelta(days=7)
    yield from sent_by(who, {**true, "decided_at": later}, {})


def sent_by(
    who: Credential, decision: dict[str, Any], bodies: dict[str, str]
) -> Iterator[dict[str, Any]]:
    made = WriterChain(who.name).make([NewDecision(**decision)], bodies)
    for request in make_requests([Delivery(made, bodies, late=True)]):
        yield json.loads(msgspec.json.encode(request))


def test_no_delivery_plants_a_verdict_or_renews_one(world: World) -> None:
    world.store(PROD)
    question = {"target": "prod", "stack": {"cuda": "12.4", "arch": ["sm_90"]}}
    (admin,) = (who for who in world.credentials if who.scope == "admin")
    asked = world.client.post(f"{API_PREFIX}/gate", json=question, headers=admin.headers)
    verdict = asked.get_json()
    assert verdict["allowed"] is False
    stored = f"{API_PREFIX}/verdicts/{verdict['id']}"

    def shown() -> Any:
        found = world.client.get(stored, headers=admin.headers)
        return found.get_json(), len(world.rooms.decisions.list_decisions(limit=100).items)

    before = shown()
    for who in world.credentials:
        for batch in deliveries(who, world, verdict):
            answer = world.client.post(
                f"{API_PREFIX}/decisions/batches", json=batch, headers=who.headers
            )
            may = who.scope in ("deliver", "admin")
            refused = (400, 409, 503) if may else (403,) if who.scope else (401,)
            assert answer.status_code in refused, (who.name, answer.text)
            assert shown() == before, (who.name, batch)
    assert world.rooms.chain.verify(full=True).ok


def replays(content: bytes, newer: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield a bundle as it was served, and with each field of a newer one that dates it."""
    yield "as served", content
    sealed = json.loads(content)
    served = json.loads(base64.b64decode(sealed["payload"]))
    dating = ("revision", "evidence_number", "discards", "issue", "issued_at", "valid_until")
    for field, value in ((name, newer[name]) for name in dating):
        later = value + 9 if isinstance(value, int) else value.replace("20", "21", 1)
        payload = json.dumps({**served, field: later}).encode()
        digest = hashlib.sha256(payload).hexdigest()
        changed = {**sealed, "payload": base64.b64encode(payload).decode(), "sha256": digest}
        yield f"{field} signed for another", json.dumps(changed).encode()
        yield f"{field} unsigned", json.dumps({**changed, "signatures": []}).encode()
        yield f"{field} signed by another", sign_bundle(json.dumps(changed).encode(), OTHER)


def test_no_bundle_takes_a_far_gate_back(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads a bundle may replay it: a far gate has what came later, or an empty folder."""

    def served(who: Credential) -> bytes | None:
        answer = world.client.get(f"{API_PREFIX}/bundle", headers=who.headers)
        may = who.scope in ("read", "admin") and who.limit is None
        assert answer.status_code == (200 if may else 403 if who.scope else 401), who
        return answer.data if may else None

    keys = [SIGNER.public_key]
    world.store(put(PROD, "spec.policy", AUDIT))
    weak = [content for who in world.credentials if (content := served(who))]
    world.store(PROD)
    strict = next(filter(None, map(served, world.credentials)))
    newer = json.loads(base64.b64decode(json.loads(strict)["payload"]))
    present = read_trusted(strict, "the present one", keys)
    real = clock.now
    assert len(weak) == 2
    for content, (hours, known) in product(weak, product((0, 23, 25), (present, None))):
        monkeypatch.setattr(clock, "now", lambda late=hours: real() + timedelta(hours=late))
        for way, replayed in replays(content, newer):
            path = tmp_path / "bundle.json"
            path.unlink(missing_ok=True)
            if known:
                path.write_bytes(strict)
            try:
                trusted = read_trusted(replayed, "the replayed one", keys)
                apply_bundle(path, known, trusted, allow_older=False)
            except (BundleRefused, Unavailable):
                assert (path.read_bytes() if path.exists() else None) == (known and strict)
            else:  # within its validity, to a gate that never had a newer one
                assert (way, known, hours < 24) == ("as served", None, True)
