"""What an operator can set about the web side."""

from __future__ import annotations

from msgspec import Struct, field

from compatgate.gate.admission.admit import AdmissionOptions
from compatgate.gate.admission.kinds import load_kinds
from compatgate.gate.attest.service import Signing
from compatgate.gate.hooks.signatures import Secret

MAX_REQUEST_SIZE = 1024 * 1024
MAX_DEPTH = 32


class Settings(Struct, frozen=True):
    """Settings of the web application.

    Attributes:
        anonymous: scopes of whoever comes without a token.
        max_request_size: bytes of a request's body.
        max_depth: how deep a JSON body may be nested.
        max_listeners: who may follow a log at once, each on a thread of the server.
        overlays: the operator's fact files, as the gate was opened with.
        admission: of the Kubernetes hook.
        hook_secrets: that requests of deploy webhooks may be signed with; where there are any, who
            comes without signature and token is refused there.
        public_url: where people reach this service, for links; empty: where it was asked.
        signing: the keys of attestations.
    """

    anonymous: frozenset[str] = frozenset()
    max_request_size: int = MAX_REQUEST_SIZE
    max_depth: int = MAX_DEPTH
    max_listeners: int = 8
    overlays: tuple[str, ...] | None = None
    admission: AdmissionOptions = field(default_factory=lambda: AdmissionOptions(load_kinds()))
    hook_secrets: tuple[Secret, ...] = ()
    public_url: str = ""
    signing: Signing = Signing()
