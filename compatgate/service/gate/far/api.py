"""Serve ``POST /decisions/batches``: the decisions of far gates."""

from __future__ import annotations

from compatgate.kit.http.replies import Reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.service.gate.far.receiving import DeliveryDesk
from compatgate.service.gate.far.schemas import DeliveryBody, DeliveryRequest

routes = Routes("decisions", targets="checked", scope="deliver")


@routes.post(
    "/decisions/batches",
    Returns(DeliveryBody, "The batches are on disk"),
    body=Body(DeliveryRequest, argument="body"),
    repeatable=True,
    errors=(409,),
)
def deliver_decisions(call: Call[NoQuery]) -> Reply:
    """Deliver batches of decisions that a far gate has recorded.

    `compatgate serve --bundle` does that. Sending a stored batch again changes nothing, so repeat
    the request after an error. The gate verifies the writer's hash chain. 409 `chain-forked`:
    another batch of this writer and sequence is stored. 409 `chain-gap`: the batch before is not
    stored. Begin another writer then. 503: try again later.
    """
    request = to_struct(call.document(), DeliveryRequest)
    return Reply(call.use(DeliveryDesk).receive(request, call.principal))
