"""Ask webhooks as other systems ask them, to try them out; manage the tokens that systems use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import structs

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import HOOKS, Request, delete, get, members, pages, post
from compatgate.kit.http.schemas import Page
from compatgate.service.admission.schemas import AdmissionReview, AdmissionReviewAnswer
from compatgate.service.tokens.schemas import NewTokenBody, ScopeName, TokenBody, TokenRequest
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
    """Decide about a Kubernetes object, as a validating admission webhook.

    Args:
        review: an AdmissionReview with its request.
        timeout: how long the answer is waited for, such as ``10s``.
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
    """Decide about a deployment, as any tool asks; a denial is an answer and no error.

    Args:
        question: ``target`` or ``pool``, ``stack``, ``image``, ``set``; as text or as objects.
        status: ``200`` for an answer that always has it.
        timeout: how long the answer is waited for, such as ``10s``.
    """
    query = {"status": status, "timeout": timeout}
    return _asked("generic", DeployAnswer, question, DeployQuestion, query)


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
    """Decide about a deployment, as a tool asks that polls; arguments are those of `ask_generic`.

    Args:
        target: name of a target.
        pool: a place described instead, ``driver=550.54.15,gpu=L4``.
        stack: ``cuda=12.4,torch=2.4.1+cu124``.
        image: reference of an image.
        set: what if, ``driver=580.95.05``.
        status: as `ask_generic`.
        timeout: as `ask_generic`.
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
    """Decide about a rollout, as a web metric of Argo Rollouts; arguments as `ask_generic`."""
    query = {"timeout": timeout}
    return _asked("argo-rollouts", DeployAnswer, question, DeployQuestion, query)


@Operation
def ask_flagger(
    payload: FlaggerPayload | Mapping[str, Any],
    *,
    type: str | None = None,  # noqa: A002 - the query's name
    timeout: str | None = None,
) -> Request[str]:
    """Decide about a canary, as a webhook of Flagger; the answer's first line is the reason.

    Args:
        payload: what Flagger sends; its ``metadata`` has the question.
        type: of the hook, where ``metadata.type`` does not say.
        timeout: as `ask_generic`.
    """
    query = {"type": type, "timeout": timeout}
    return _asked("flagger", str, payload, FlaggerPayload, query)


@Operation
def ask_driver_rollout(
    question: DriverQuestion | Mapping[str, Any],
    *,
    driver: str | None = None,
    target: str | None = None,
    pool: str | None = None,
    status: str | None = None,
) -> Request[DriverAnswer]:
    """Say whether a node, a pool or a target may take a driver.

    Args:
        question: ``driver``, and ``target`` or ``node``; or a Kubernetes Node as it is.
        driver: where the question does not say; so are ``target`` and ``pool``.
        target: name of a target.
        pool: of the target.
        status: as `ask_generic`.
    """
    query = {"driver": driver, "target": target, "pool": pool, "status": status}
    return _asked("driver-rollout", DriverAnswer, question, DriverQuestion, query)


def _asked(
    name: str, answer: type[A], question: Any, reads: Any, query: dict[str, Any]
) -> Request[A]:
    """Return a hook's question; refusals are in the form of its answers."""
    path = f"{HOOKS}/{name}"
    request = post(path, answer, body=question, reads=reads, repeatable=True, **query)
    return structs.replace(request, refusal=True)


@Listing
def list_tokens(*, active: bool | None = None) -> Request[Page[TokenBody]]:
    """List tokens, by name; secrets are not kept."""
    return pages("/tokens", TokenBody, active=active)


@Operation
def create_token(
    name: str, scopes: Sequence[ScopeName], *, expires: str | None = None
) -> Request[NewTokenBody]:
    """Create a token; its secret is in the answer, and nowhere else.

    Args:
        name: unique; what logs show.
        scopes: of read, gate, operate, bless, admin; `SCOPES` says what
            each allows.
        expires: how long it is valid, such as ``90d``; for ever if left out.
    """
    body = members(name=name, scopes=list(scopes), expires=expires)
    return post("/tokens", NewTokenBody, body=body, reads=TokenRequest)


@Operation
def revoke_token(name: str) -> Request[TokenBody]:
    """Revoke a token, by its name or id; it opens nothing from now on."""
    return delete("/tokens/{name}", TokenBody, name=name)
