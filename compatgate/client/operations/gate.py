"""Ask the gate, verify signed verdicts, and read decisions, the audit log, facts and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from compatgate.client.request import (
    LONG_S,
    Listing,
    Moment,
    Operation,
    Request,
    get,
    members,
    pages,
    post,
)
from compatgate.core.rule import Outcome
from compatgate.kit.http.schemas import Page
from compatgate.service.attestations.schemas import EnvelopeBody, KeySetBody
from compatgate.service.audit.schemas import AuditBody, ChainBody
from compatgate.service.comparison.schemas import WhatIfBody, WhatIfRequest
from compatgate.service.facts.schemas import FactRecord, FactsBody, RuleBody
from compatgate.service.far.schemas import DeliveryBody, DeliveryRequest
from compatgate.service.gate.schemas import (
    BundleBody,
    DecisionBody,
    GateRequest,
    PoolQuestion,
    StackValue,
    VerdictBody,
)
from compatgate.service.gate.solve_schemas import SolveBody, SolveRequest
from compatgate.service.manifests.schemas import ManifestCheckBody, ManifestCheckRequest
from compatgate.service.triage.schemas import TriageBody, TriageRequest

Pool = PoolQuestion | Mapping[str, Any]
Stack = Mapping[str, StackValue]
Question = GateRequest | Mapping[str, Any]


@Operation
def ask(
    question: Question | None = None,
    *,
    target: str | None = None,
    pools: Sequence[str] | None = None,
    pool: Pool | None = None,
    stack: Stack | None = None,
    image: str | None = None,
    command: Sequence[str] | None = None,
    set: Stack | None = None,  # noqa: A002 - the body's name
) -> Request[VerdictBody]:
    """Decide whether a stack may run on a target or pool; the decision is logged.

    Args:
        question: the whole body, instead of its members.
        target: name of a target.
        pools: names of the target's pools; None: all.
        pool: pool description instead of a target: ``driver``, ``gpu``, ``os``, ``cpu``.
        stack: component to version.
        image: reference of an image.
        command: what runs in place of the image's own command.
        set: changes: component or property of the pool to value.
    """
    body = question or members(
        target=target, pools=pools, pool=pool, stack=stack, image=image, command=command, set=set
    )
    return post("/gate", VerdictBody, body=body, reads=GateRequest, repeatable=True)


@Operation
def preview(
    question: Question | None = None,
    *,
    at: str | int | None = None,
    target: str | None = None,
    pools: Sequence[str] | None = None,
    pool: Pool | None = None,
    stack: Stack | None = None,
    image: str | None = None,
    command: Sequence[str] | None = None,
    set: Stack | None = None,  # noqa: A002 - the body's name
) -> Request[VerdictBody]:
    """Preview a decision, also by an older matrix, without logging it.

    Args:
        question: see `ask`.
        at: older matrix: a revision, or a time (a date means the end of the day, UTC).
        target: see `ask`.
        pools: see `ask`.
        pool: see `ask`.
        stack: see `ask`.
        image: see `ask`.
        command: see `ask`.
        set: see `ask`.
    """
    body = question or members(
        target=target, pools=pools, pool=pool, stack=stack, image=image, command=command, set=set
    )
    return post("/gate/preview", VerdictBody, body=body, reads=GateRequest, repeatable=True, at=at)


@Operation
def what_if(body: WhatIfRequest | Mapping[str, Any]) -> Request[WhatIfBody]:
    """Show what a target would gain and lose with another driver, GPU or CUDA.

    Args:
        body: ``target`` or ``node``, and the changes as ``set``.
    """
    return post("/what-if", WhatIfBody, body=body, reads=WhatIfRequest, repeatable=True)


@Operation
def solve(body: SolveRequest | Mapping[str, Any]) -> Request[SolveBody]:
    """Find stacks that pass on a target, or on every one of several, best first.

    Args:
        body: ``want``, and ``target``, ``targets`` or ``pool``; ``from``: a stack to stay close to.
    """
    return post("/solve", SolveBody, body=body, reads=SolveRequest, repeatable=True)


@Operation
def triage(
    text: str,
    *,
    target: str | None = None,
    pools: Sequence[str] | None = None,
    pool: Pool | None = None,
    stack: Stack | None = None,
    image: str | None = None,
    command: Sequence[str] | None = None,
    set: Stack | None = None,  # noqa: A002 - the body's name
) -> Request[TriageBody]:
    """Name the causes of an error text; with a stack, also say whether they hold there.

    Args:
        text: an error or a log; it is not logged.
        target: see `ask`.
        pools: see `ask`.
        pool: see `ask`.
        stack: see `ask`.
        image: see `ask`.
        command: see `ask`.
        set: see `ask`.
    """
    body = members(
        text=text,
        target=target,
        pools=pools,
        pool=pool,
        stack=stack,
        image=image,
        command=command,
        set=set,
    )
    return post("/triage", TriageBody, body=body, reads=TriageRequest, repeatable=True)


@Operation
def check_manifest(
    object: Mapping[str, Any],  # noqa: A002 - as the body names it
    *,
    namespace: str = "default",
    claims: Sequence[Mapping[str, Any]] | None = None,
    timeout: str | None = None,
) -> Request[ManifestCheckBody]:
    """Check a Kubernetes object before a cluster sees it, as admission would; nothing is logged.

    Args:
        object: with apiVersion and kind.
        namespace: where it goes, if it states no namespace itself.
        claims: claims of devices, and templates of them, that are created with it.
        timeout: time limit of the answer, such as ``10s``.
    """
    body = members(object=object, namespace=namespace, claims=claims)
    return post(
        "/k8s/check",
        ManifestCheckBody,
        body=body,
        reads=ManifestCheckRequest,
        repeatable=True,
        timeout=timeout,
    )


@Operation
def show_verdict(id: str) -> Request[VerdictBody]:  # noqa: A002 - the path's name
    """Show a verdict by its id."""
    return get("/verdicts/{id}", VerdictBody, id=id)


@Operation
def show_bundle() -> Request[BundleBody]:
    """Return the signed bundle: matrix, evidence and overlay facts.

    Send the entity tag of the known bundle as ``if_none_match`` of `exchange`.
    """
    return get("/bundle", BundleBody)


@Operation
def openapi() -> Request[dict[str, Any]]:
    """Describe the API (OpenAPI 3.1)."""
    return get("/openapi.json", dict[str, Any])


@Operation
def show_attestation(
    id: str,  # noqa: A002 - the path's name
    *,
    form: str | None = None,
) -> Request[EnvelopeBody]:
    """Sign a verdict: an in-toto statement in a DSSE envelope.

    Args:
        id: id of the verdict.
        form: ``verdict``, or ``vsa``.
    """
    return get("/verdicts/{id}/attestation", EnvelopeBody, id=id, form=form)


@Operation
def list_keys() -> Request[KeySetBody]:
    """List the public keys of attestations, as a JSON Web Key Set."""
    return get("/keys", KeySetBody)


@Operation
def stack_badge(target: str, stack: str) -> Request[str]:
    """Draw the verdict on a stack on a target, as SVG."""
    return get("/badge/{target}/{stack}.svg", str, target=target, stack=stack)


@Operation
def entry_badge(target: str, entry: str) -> Request[str]:
    """Draw the status of an entry of the matrix on a target, as SVG."""
    return get("/badge/{target}/entry/{entry}.svg", str, target=target, entry=entry)


@Listing
def list_decisions(
    *,
    target: str | None = None,
    verdict: Outcome | None = None,
    verdict_id: str | None = None,
    allowed: bool | None = None,
    asked_by: str | None = None,
    source: str | None = None,
    image: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Request[Page[DecisionBody]]:
    """List decisions, newest first.

    Args:
        target: name of the target.
        verdict: outcome of the verdict.
        verdict_id: id of the verdict.
        allowed: whether the policy's mode allowed it.
        asked_by: name of the token.
        source: source of the question, such as ``rest``.
        image: exact image reference.
        since: decided at or after.
        until: decided at or before.
    """
    return pages(
        "/decisions",
        DecisionBody,
        target=target,
        verdict=verdict,
        verdict_id=verdict_id,
        allowed=allowed,
        asked_by=asked_by,
        source=source,
        image=image,
        since=since,
        until=until,
    )


@Operation
def show_decision(id: int) -> Request[DecisionBody]:  # noqa: A002 - the path's name
    """Show a decision; its `verdict_id` names the verdict."""
    return get("/decisions/{id}", DecisionBody, id=id)


@Operation
def deliver_decisions(
    body: DeliveryRequest | Mapping[str, Any],
) -> Request[DeliveryBody]:
    """Deliver batches of decisions of a far gate; stored batches stay as they are.

    Args:
        body: ``writer``, and its ``batches`` in order.
    """
    return post(
        "/decisions/batches", DeliveryBody, body=body, reads=DeliveryRequest, repeatable=True
    )


@Listing
def list_audit(
    *,
    action: str | None = None,
    actor: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Request[Page[AuditBody]]:
    """List changes and batches of decisions, newest first.

    Args:
        action: action, or a prefix such as ``matrix.``.
        actor: name of the actor.
        since: at or after.
        until: at or before.
    """
    return pages("/audit", AuditBody, action=action, actor=actor, since=since, until=until)


@Operation
def verify_audit(*, head: str | None = None, full: bool | None = None) -> Request[ChainBody]:
    """Verify the hash chain, all or what is new; it must contain a head that was stored earlier."""
    return structs.replace(get("/audit/verify", ChainBody, head=head, full=full), patience=LONG_S)


@Operation
def list_tables() -> Request[FactsBody]:
    """List the tables of facts."""
    return get("/facts", FactsBody)


@Listing
def list_facts(
    table: str, *, part: str | None = None, search: str | None = None
) -> Request[Page[FactRecord]]:
    """List the records of a table (`gpus`, `cudnn`, `torch`), each with its sources.

    Args:
        table: name of the table.
        part: list in the table.
        search: part of the name, in upper or lower case.
    """
    return pages("/facts/{table}", FactRecord, table=table, part=part, search=search)


@Operation
def show_fact(table: str, key: str) -> Request[dict[str, list[dict[str, Any]]]]:
    """Show the records of a key: a version, a series, any spelling of a GPU."""
    return get("/facts/{table}/{key}", dict[str, list[dict[str, Any]]], table=table, key=key)


@Listing
def list_rules() -> Request[Page[RuleBody]]:
    """List the rules, each with its documentation."""
    return pages("/rules", RuleBody)


@Operation
def show_rule(id: str) -> Request[RuleBody]:  # noqa: A002 - the path's name
    """Show what a rule checks, why, and how to fix its findings."""
    return get("/rules/{id}", RuleBody, id=id)
