"""Signed verdicts, the keys that vouch for them, and badges."""

from __future__ import annotations

from compatgate.client.operation import Operation
from compatgate.client.request import Request, get
from compatgate.wire.attestations import EnvelopeBody, KeySetBody


@Operation
def show_attestation(
    id: str,  # noqa: A002 - the path's name
    *,
    form: str | None = None,
) -> Request[EnvelopeBody]:
    """Sign a verdict: an in-toto statement in a DSSE envelope.

    Args:
        id: of the verdict.
        form: ``verdict``, or ``vsa``.
    """
    return get("/verdicts/{id}/attestation", EnvelopeBody, id=id, form=form)


@Operation
def list_keys() -> Request[KeySetBody]:
    """List the public keys of attestations, as a JSON Web Key Set."""
    return get("/keys", KeySetBody)


@Operation
def stack_badge(target: str, stack: str) -> Request[str]:
    """Draw what the gate says of a stack on a target, as SVG."""
    return get("/badge/{target}/{stack}.svg", str, target=target, stack=stack)


@Operation
def entry_badge(target: str, entry: str) -> Request[str]:
    """Draw the status of an entry of the matrix on a target, as SVG."""
    return get("/badge/{target}/entry/{entry}.svg", str, target=target, entry=entry)
