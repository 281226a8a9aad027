"""``POST /what-if``: what would break, and what would get better, if a target were changed."""

from __future__ import annotations

from compatgate.gate.whatif import answer
from compatgate.store import clock
from compatgate.web.call import Call, Reply
from compatgate.web.route import Body, NoQuery, Returns, route
from compatgate.wire.whatif import WHAT_IF, WhatIfBody, WhatIfRequest


@route(
    "POST",
    "/what-if",
    scope="gate",
    tag="gate",
    body=Body(WhatIfRequest, examples=WHAT_IF),
    returns=Returns(WhatIfBody, "What would be lost and gained; denials are answered 200 as well"),
    errors=(404,),
)
def what_if(call: Call[NoQuery]) -> Reply:
    """Say what becomes of everything in use on a target if it had another driver, GPU or CUDA.

    Every blessed and deprecated entry is evaluated before and after, on each pool that changes. An
    entry that names a range is evaluated as the newest and the oldest known versions that it allows
    and as what canary runs measured. Nothing is logged.
    """
    found = answer(call.document(), call.gate.snapshot(), clock.now())
    return Reply(found.to_json())
