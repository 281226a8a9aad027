"""``POST /hooks/driver-rollout``: may this node, pool or target take a driver now?"""

from __future__ import annotations

from typing import Any

from compatgate.errors import BadInput
from compatgate.gate.hooks import rollout
from compatgate.gate.whatif import answer as what_if
from compatgate.store import clock
from compatgate.web.call import Call, Reply
from compatgate.web.hooks.deploying import hook
from compatgate.web.hooks.generic import refused, status_for
from compatgate.web.route import Body, Returns
from compatgate.wire.deploying import DRIVER, DriverAnswer, DriverQuery, DriverQuestion


@hook(
    "POST",
    "/driver-rollout",
    name="ask_driver_rollout",
    query=DriverQuery,
    body=Body(DriverQuestion, examples=DRIVER),
    returns=Returns(DriverAnswer, "It may take the driver; with `status=200` any decision"),
    refused=refused,
)
def ask(call: Call[DriverQuery]) -> Reply:
    """Say whether a node, a pool or a target may take a driver.

    Everything blessed or deprecated there is evaluated under it, as `POST /what-if` does. The body
    may be a Kubernetes Node as it is, with `driver` in the query. Statuses are those of
    `/hooks/generic`. Nothing is logged.
    """
    document = call.document()
    question = rollout.question(document, _of_query(call.query, document))
    answered = rollout.answer(what_if(question, call.gate.snapshot(), clock.now()))
    return Reply(answered, status=status_for(answered["decision"], call.query.status))


def _of_query(query: DriverQuery, document: dict[str, Any]) -> dict[str, Any]:
    named = {"driver": query.driver, "target": query.target, "pool": query.pool}
    stated = {key: value for key, value in named.items() if value is not None}
    for key in stated:
        if key in document:
            raise BadInput("is stated twice", field=key, hint="in the query or in the body")
    return stated
