"""Ask the webhooks of other systems, report nodes, and manage access tokens and sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from compatgate.client.request import (
    HOOKS,
    Listing,
    Operation,
    Request,
    delete,
    get,
    members,
    pages,
    post,
)
from compatgate.core.request import DriftKind, DriverState
from compatgate.kit.http.schemas import Page
from compatgate.service.admission.schemas import AdmissionReview, AdmissionReviewAnswer
from compatgate.service.identity.schemas import (
    CallerBody,
    NewSessionBody,
    SessionBody,
    SessionRequest,
    SignInBody,
)
from compatgate.service.nodes.schemas import (
    CLUSTER,
    DriftBody,
    NodeBody,
    NodeReport,
    NodesReported,
    Report,
)
from compatgate.service.tokens.schemas import (
    NewTokenBody,
    RotationRequest,
    ScopeName,
    TokenBody,
    TokenRequest,
)
from compatgate.service.webhooks.schemas import (
    DeployAnswer,
    DeployQuestion,
    DriverAnswer,
    DriverQuestion,
    FlaggerPayload,
)

A = TypeVar("A")


@Operation
def validate_kubernetes(
    review: AdmissionReview | Mapping[str, Any], *, timeout: str | None = None
) -> Request[AdmissionReviewAnswer]:
    """Decide on a Kubernetes object, as a validating admission webhook.

    Args:
        review: AdmissionReview with a request.
        timeout: time limit of the answer, such as ``10s``.
    """
    request = post(
        f"{HOOKS}/kubernetes/validate",
        AdmissionReviewAnswer,
        body=review,
        reads=AdmissionReview,
        repeatable=True,
        timeout=timeout,
    )
    return structs.replace(request, refusal=True)


@Operation
def ask_generic(
    question: DeployQuestion | Mapping[str, Any],
    *,
    status: str | None = None,
    timeout: str | None = None,
) -> Request[DeployAnswer]:
    """Decide on a deployment for any tool; a denial is an answer, not an error.

    Args:
        question: ``target`` or ``pool``, ``stack``, ``image``, ``set``; as text or as objects.
        status: ``200``: answer every decision with this status.
        timeout: time limit of the answer, such as ``10s``.
    """
    query = {"status": status, "timeout": timeout}
    return _hook_request("generic", DeployAnswer, question, DeployQuestion, query)


@Operation
def poll_generic(
    *,
    target: str | None = None,
    pool: str | None = None,
    stack: str | None = None,
    image: str | None = None,
    set: str | None = None,  # noqa: A002 - the query's name
    status: str | None = None,
    timeout: str | None = None,
) -> Request[DeployAnswer]:
    """Decide on a deployment for tools that poll; arguments as `ask_generic`.

    Args:
        target: name of a target.
        pool: pool description instead of a target, ``driver=550.54.15,gpu=L4``.
        stack: ``cuda=12.4,torch=2.4.1+cu124``.
        image: reference of an image.
        set: changes, ``driver=580.95.05``.
        status: see `ask_generic`.
        timeout: see `ask_generic`.
    """
    request = get(
        f"{HOOKS}/generic",
        DeployAnswer,
        target=target,
        pool=pool,
        stack=stack,
        image=image,
        set=set,
        status=status,
        timeout=timeout,
    )
    return structs.replace(request, refusal=True)


@Operation
def ask_argo_rollouts(
    question: DeployQuestion | Mapping[str, Any], *, timeout: str | None = None
) -> Request[DeployAnswer]:
    """Decide on a rollout, as a web metric of Argo Rollouts; arguments as `ask_generic`."""
    query = {"timeout": timeout}
    return _hook_request("argo-rollouts", DeployAnswer, question, DeployQuestion, query)


@Operation
def ask_flagger(
    payload: FlaggerPayload | Mapping[str, Any],
    *,
    type: str | None = None,  # noqa: A002 - the query's name
    timeout: str | None = None,
) -> Request[str]:
    """Decide on a canary, as a webhook of Flagger; the answer's first line is the reason.

    Args:
        payload: payload of Flagger; ``metadata`` has the question.
        type: type of the hook, if ``metadata.type`` is missing.
        timeout: see `ask_generic`.
    """
    query = {"type": type, "timeout": timeout}
    return _hook_request("flagger", str, payload, FlaggerPayload, query)


@Operation
def ask_driver_rollout(
    question: DriverQuestion | Mapping[str, Any],
    *,
    driver: str | None = None,
    target: str | None = None,
    pool: str | None = None,
    status: str | None = None,
) -> Request[DriverAnswer]:
    """Decide whether a node, a pool or a target may take a driver.

    Args:
        question: ``driver``, and ``target`` or ``node``; or a Kubernetes Node.
        driver: driver, if the question has none.
        target: target, if the question has none.
        pool: pool of the target, if the question has none.
        status: see `ask_generic`.
    """
    query = {"driver": driver, "target": target, "pool": pool, "status": status}
    return _hook_request("driver-rollout", DriverAnswer, question, DriverQuestion, query)


def _hook_request(
    name: str, answer: type[A], question: Any, reads: Any, query: dict[str, Any]
) -> Request[A]:
    """Return the request of a hook; its errors have the form of its answers."""
    path = f"{HOOKS}/{name}"
    request = post(path, answer, body=question, reads=reads, repeatable=True, **query)
    return structs.replace(request, refusal=True)


@Listing
def list_tokens(*, active: bool | None = None) -> Request[Page[TokenBody]]:
    """List tokens by name; secrets are not stored."""
    return pages("/tokens", TokenBody, active=active)


@Operation
def create_token(
    name: str,
    scopes: Sequence[ScopeName],
    *,
    expires: str | None = None,
    targets: Sequence[str] | None = None,
) -> Request[NewTokenBody]:
    """Create a token; only the answer contains its secret.

    Args:
        name: unique name, shown in logs.
        scopes: of read, gate, deliver, operate, bless, admin; see `SCOPES`.
        expires: validity, such as ``90d``; None: unlimited.
        targets: patterns of the only targets, such as ``prod-*``; None: every target.
    """
    limit = None if targets is None else list(targets)
    body = members(name=name, scopes=list(scopes), expires=expires, targets=limit)
    return post("/tokens", NewTokenBody, body=body, reads=TokenRequest)


@Operation
def rotate_token(
    name: str, *, overlap: str | None = None, expires: str | None = None
) -> Request[NewTokenBody]:
    """Give a token a new secret; only the answer contains it.

    Args:
        name: name or id.
        overlap: time for which the present secret stays valid, such as ``24h``; None: it ends.
        expires: new validity, such as ``90d``; None: the end stays.
    """
    body = members(overlap=overlap, expires=expires)
    return post("/tokens/{name}/rotate", NewTokenBody, name=name, body=body, reads=RotationRequest)


@Operation
def revoke_token(name: str) -> Request[TokenBody]:
    """Revoke a token by name or id."""
    return delete("/tokens/{name}", TokenBody, name=name)


@Listing
def list_nodes(
    *,
    search: str | None = None,
    cluster: str | None = None,
    target: str | None = None,
    gpu: str | None = None,
    driver: str | None = None,
    driver_state: DriverState | None = None,
    disagrees: bool | None = None,
    stale: bool | None = None,
) -> Request[Page[NodeBody]]:
    """List nodes by cluster and name, compared with the present matrix.

    Args:
        search: part of the name, in upper or lower case.
        cluster: cluster of the node.
        target: target of the node.
        gpu: GPU of the node, in any spelling.
        driver: effective driver of the node.
        driver_state: whether an entry admits the driver.
        disagrees: whether sources of the node report disagree.
        stale: whether the last report is older than a day.
    """
    return pages(
        "/nodes",
        NodeBody,
        search=search,
        cluster=cluster,
        target=target,
        gpu=gpu,
        driver=driver,
        driver_state=driver_state,
        disagrees=disagrees,
        stale=stale,
    )


@Operation
def report_nodes(
    nodes: Sequence[NodeReport | Mapping[str, Any]],
    *,
    cluster: str = CLUSTER,
    dry_run: bool = False,
) -> Request[NodesReported]:
    """Report nodes of one cluster; return their new state.

    Args:
        nodes: node reports, at most 500.
        cluster: cluster of the nodes.
        dry_run: store nothing.
    """
    body = {"cluster": cluster, "nodes": [_report_body(node) for node in nodes]}
    return post(
        "/nodes",
        NodesReported,
        body=body,
        reads=Report,
        repeatable=True,
        dry_run=dry_run or None,
    )


@Operation
def show_node(name: str, *, cluster: str | None = None) -> Request[NodeBody]:
    """Show a node with the report of each source.

    Args:
        name: name of the node.
        cluster: cluster, if several clusters have a node of this name.
    """
    return get("/nodes/{name}", NodeBody, name=name, cluster=cluster)


@Operation
def remove_node(name: str, *, reason: str, cluster: str | None = None) -> Request[NodeBody]:
    """Remove a node, with a reason. Arguments as `show_node`."""
    return delete("/nodes/{name}", NodeBody, name=name, cluster=cluster, reason=reason)


@Listing
def list_drift(
    *,
    cluster: str | None = None,
    target: str | None = None,
    what: DriftKind | None = None,
    gpu: str | None = None,
    stale: bool | None = None,
) -> Request[Page[DriftBody]]:
    """List nodes whose driver or GPUs differ from every pool of their target.

    Args:
        cluster: cluster of the node.
        target: target of the node.
        what: kind of drift.
        gpu: GPU of the node, in any spelling.
        stale: whether the last report is older than a day.
    """
    return pages(
        "/drift", DriftBody, cluster=cluster, target=target, what=what, gpu=gpu, stale=stale
    )


def _report_body(node: NodeReport | Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = dict(node) if isinstance(node, Mapping) else msgspec.to_builtins(node)
    return {key: value for key, value in plain.items() if value is not None}


@Operation
def describe_sign_in() -> Request[SignInBody]:
    """Describe how people sign in on the command line."""
    return get("/sign-in", SignInBody)


@Operation
def open_session(id_token: str, access_token: str | None = None) -> Request[NewSessionBody]:
    """Exchange a fresh ID token for a session; only the answer contains its secret.

    Args:
        id_token: of the client that `describe_sign_in` names.
        access_token: if `describe_sign_in` asks for it.
    """
    body = members(id_token=id_token, access_token=access_token)
    return post("/sessions", NewSessionBody, body=body, reads=SessionRequest)


@Listing
def list_sessions() -> Request[Page[SessionBody]]:
    """List the sessions of people that have not ended."""
    return pages("/sessions", SessionBody)


@Operation
def end_session(id: str) -> Request[SessionBody]:  # noqa: A002 - the name in the path
    """End a session by its id."""
    return delete("/sessions/{id}", SessionBody, id=id)


@Operation
def end_own_session() -> Request[SessionBody]:
    """End the session that the request is sent with."""
    return delete("/session", SessionBody)


@Operation
def show_caller() -> Request[CallerBody]:
    """Show who the caller is: name, kind and scopes."""
    return get("/caller", CallerBody)
