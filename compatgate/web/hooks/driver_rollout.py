"""``POST /hooks/driver-rollout``: may this node, pool or target take a driver now?"""

from __future__ import annotations

from typing import Any

from compatgate.errors import BadInput
from compatgate.gate.hooks import rollout
from compatgate.gate.whatif import answer as what_if
from compatgate.store import clock
from compatgate.web.call import Call, Reply
from compatgate.web.hooks.deploying import Asked, Hook, hook_route
from compatgate.web.hooks.generic import refused, status_for
from compatgate.web.route import Body, Returns
from compatgate.wire.deploying import DRIVER, DriverAnswer, DriverQuery, DriverQuestion


@hook_route(
    "POST",
    "/driver-rollout",
    name="ask_driver_rollout",
    query=DriverQuery,
    body=Body(DriverQuestion, examples=DRIVER),
    returns=Returns(DriverAnswer, "It may take the driver; with `status=200` any decision"),
)
def ask(call: Call[DriverQuery]) -> Reply:
    """Say whether a node, a pool or a target may take a driver.

    Everything blessed or deprecated there is evaluated under it, as `POST /what-if` does. The body
    may be a Kubernetes Node as it is, with `driver` in the query. Statuses are those of
    `/hooks/generic`. Nothing is logged.
    """
    raise NotImplementedError  # `HOOK` answers


def _answer(asked: Asked) -> Reply:
    question = rollout.question(asked.document, _of_query(asked.query, asked.document))
    found = what_if(question, asked.service.gate.snapshot(), clock.now())
    answered = rollout.answer(found)
    return Reply(answered, status=status_for(answered["decision"], asked))


def _of_query(query: DriverQuery, document: dict[str, Any]) -> dict[str, Any]:
    named = {"driver": query.driver, "target": query.target, "pool": query.pool}
    stated = {key: value for key, value in named.items() if value is not None}
    for key in stated:
        if key in document:
            raise BadInput("is stated twice", field=key, hint="in the query or in the body")
    return stated


HOOK = Hook(ask, _answer, refused)
