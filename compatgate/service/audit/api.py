"""Serve signed verdicts and the public keys."""

from __future__ import annotations

from compatgate.kit.http.replies import Reply
from compatgate.kit.http.route import Call, NoQuery, Returns, Routes
from compatgate.service.audit.attestations import Attestations
from compatgate.service.audit.envelope import MEDIA
from compatgate.service.audit.keys import MEDIA as KEYS
from compatgate.service.audit.schemas import EnvelopeBody, KeySetBody

routes = Routes("gate", targets="checked")


@routes.get(
    "/verdicts/{id}/attestation",
    Returns(EnvelopeBody, "An in-toto statement in a DSSE envelope", media=(MEDIA,), etag=True),
    errors=(404, 409),
)
def show_attestation(call: Call[NoQuery]) -> Reply:
    """Sign a verdict.

    The subject is the image if the gate read it and used no other source; otherwise it is the
    stack. The answer is 409 for a what-if, and without `serve --signing-key`. An attestation
    is valid until its `validUntil`; asking the gate again renews it.
    """
    if call.principal.targets is not None:
        verdict = call.use(Attestations).read_verdict(call.args["id"])
        call.principal.require_question(verdict)
    signed = call.use(Attestations).attest(call.args["id"])
    return Reply(signed.envelope, media=MEDIA, etag=signed.etag)


@routes.get(
    "/keys",
    Returns(KeySetBody, "Public keys; empty if this gate signs nothing", media=(KEYS,), etag=True),
    scope=None,
    targets="free",
)
def list_keys(call: Call[NoQuery]) -> Reply:
    """List the public keys of attestations.

    A JSON Web Key Set; also at `/.well-known/jwks.json`, and in PEM at
    `/.well-known/signing-keys.pem`, which is 404 if this gate signs nothing.
    """
    return Reply(call.use(Attestations).key_set(), media=KEYS)
