"""Describe one call: settings, shared objects, and the request of a handler.

`guarded` changes a document only if ``If-Match`` names its current revision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flask import request
from msgspec import Struct, field

from compatgate.errors import CompatgateError, Conflict, PreconditionFailed
from compatgate.kit.http import requests as bodies
from compatgate.kit.http.certificates import CertificatePair
from compatgate.kit.http.rate import Rate
from compatgate.kit.http.replies import Reply, etag_with_remarks, unexpected_error
from compatgate.kit.http.requests import REASON_HEADER as REASON
from compatgate.kit.http.requests import read_reason
from compatgate.service.access.identity.settings import IdentitySettings
from compatgate.service.access.tokens.browser_sessions import SessionLimits
from compatgate.service.attention.notices.webhook import IncidentWebhook
from compatgate.service.audit.attestations.service import SigningOptions
from compatgate.service.cluster.admission.kinds import load_kinds
from compatgate.service.cluster.admission.service import AdmissionOptions
from compatgate.service.cluster.webhooks.signatures import Secret
from compatgate.service.matrix.documents.service import Authorship
from compatgate.web.access import AccessLevel

if TYPE_CHECKING:
    from compatgate.catalog.library import Library
    from compatgate.kit.principal import Principal
    from compatgate.service.access.identity.service import Identity
    from compatgate.service.audit.attestations.service import Attestations
    from compatgate.service.cluster.manifests.service import ManifestChecks
    from compatgate.service.gate.questions.service import Gate
    from compatgate.service.runs.queue.logs import LogListeners
    from compatgate.web.auth import RequestLimits
    from compatgate.web.metrics import Metrics
    from compatgate.web.route import Route

MAX_REQUEST_SIZE = 1024 * 1024
MAX_DEPTH = 32
_BYTES_OF_VALUE = 24
"""Bytes of a request for each value that its documents may hold; an entry has about 26 values."""
METRIC_TARGETS = 100
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?")


class Settings(Struct, frozen=True):
    """Settings of the web application.

    Attributes:
        anonymous: scopes of callers without a token.
        max_request_size: bytes of a request's body.
        max_depth: how deep a JSON body may be nested.
        max_listeners: number of followed logs at once, each on a thread of the server.
        overlays: the operator's fact files, as the gate was opened with.
        admission: of the Kubernetes hook.
        hook_secrets: that requests of deploy webhooks may be signed with; where there are any, who
            comes without signature and token is refused there.
        public_url: where people reach this service, for links; empty: where it was asked.
        signing: the keys of attestations.
        access_log: which requests have a line in the log.
        metric_targets: number of targets that have figures of their own, by name; the others
            count together.
        certificate: of the server; None: plain HTTP.
        identity: issuers that vouch for people and jobs.
        failed: failed authentications of a peer in each process; None: no limit.
        rate: requests of a caller in each process; None: no limit.
        anonymous_rate: logged questions of an anonymous caller's address in each process; None: no
            limit.
        sessions: the ends of browser sessions.
        incident_webhook: where incidents are posted; None: nowhere.
    """

    anonymous: frozenset[str] = frozenset()
    max_request_size: int = MAX_REQUEST_SIZE
    max_depth: int = MAX_DEPTH
    max_listeners: int = 8
    overlays: tuple[str, ...] | None = None
    admission: AdmissionOptions = field(default_factory=lambda: AdmissionOptions(load_kinds()))
    hook_secrets: tuple[Secret, ...] = ()
    public_url: str = ""
    signing: SigningOptions = SigningOptions()
    access_log: AccessLevel = "errors"
    metric_targets: int = METRIC_TARGETS
    certificate: CertificatePair | None = None
    identity: IdentitySettings = IdentitySettings()
    failed: Rate | None = None
    rate: Rate | None = None
    anonymous_rate: Rate | None = None
    sessions: SessionLimits = SessionLimits()
    incident_webhook: IncidentWebhook | None = None

    @property
    def max_values(self) -> int:
        """Return how many values the documents of a request may hold."""
        return self.max_request_size // _BYTES_OF_VALUE


Q = TypeVar("Q", bound=Struct)


class Service(Struct, frozen=True):
    """The objects that all requests of an application share."""

    gate: Gate
    settings: Settings
    metrics: Metrics
    nobody: Principal
    """The principal of callers without a token."""
    facts: Library
    """The fact files, overlays laid over them."""
    describe: Callable[[], bytes]
    """Returns the OpenAPI document, which is made at its first request."""
    listeners: LogListeners
    """The listeners that follow a log."""
    attestations: Attestations
    """Signs verdicts."""
    identity: Identity
    """Knows people and jobs that an issuer vouches for."""
    limits: RequestLimits
    """Limits of peers and callers."""
    manifests: ManifestChecks
    """Asks admission about objects that no cluster has seen."""

    def explain(self, error: Exception, environ: Mapping[str, Any]) -> CompatgateError:
        """Return the error for an unexpected exception: of a newer schema, else of a defect."""
        return self.gate.find_newer_schema() or unexpected_error(error, environ)


class Call(Struct, Generic[Q]):
    """One request, its query validated and its sender known.

    Attributes:
        args: values of the path.
        query: validated query parameters.
        parsed: the body as JSON, once it was read.
    """

    service: Service
    route: Route
    principal: Principal
    args: dict[str, Any]
    query: Q
    parsed: dict[str, Any] | None = None

    @property
    def gate(self) -> Gate:
        """Return the gate that answers."""
        return self.service.gate

    def raw(self) -> bytes:
        """Return the unparsed body; check its content type."""
        assert self.route.body is not None  # noqa: S101 - a mistake in the route's declaration
        return bodies.read_body(self.route.body.media, self.service.settings.max_request_size)

    def text(self) -> str:
        """Return the body as text."""
        return bodies.to_text(self.raw())

    def document(self) -> dict[str, Any]:
        """Return the body as a JSON object, without the change's ``reason``."""
        if self.parsed is None:
            self.parsed = bodies.to_object(self.raw(), self.service.settings.max_depth)
        if self.route.reason == "body":
            return {key: value for key, value in self.parsed.items() if key != "reason"}
        return self.parsed

    def filters(self) -> dict[str, Any]:
        """Return the filters of a list, with the sender's limit to targets."""
        asked: dict[str, Any] = self.query.filters()  # type: ignore[attr-defined]
        return {**asked, "within": self.principal.targets}

    def by(self) -> Authorship:
        """Return the author and reason of a change."""
        other: Any = None
        if self.route.reason == "body":
            self.document()
            other = (self.parsed or {}).get("reason")
        elif self.route.reason == "query":
            other = getattr(self.query, "reason", None)
        reason = read_reason(request.headers.get(REASON), other)
        force = getattr(self.query, "force", False)
        return Authorship(self.principal.name, reason, self.principal, force)


def document_reply(
    row: Any,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    remarks: dict[str, Any] | None = None,
) -> Reply:
    """Return a stored document, with an entity tag of its revision and its remarks."""
    body = {**row.to_json(), **(remarks or {})}
    etag = etag_with_remarks(row.etag, remarks) if remarks else row.etag
    return Reply(body, status=status, headers=headers or {}, etag=etag)


T = TypeVar("T")


def change_document(call: Call[Any], kind: Any, change: Callable[[int | None], T]) -> T:
    """Change a document if ``If-Match`` names its current revision, which the function gets."""
    if "If-Match" not in request.headers:
        return change(None)
    expected = _expected(call, kind)
    try:
        return change(expected)
    except Conflict:
        _expected(call, kind)
        raise


def _expected(call: Call[Any], kind: Any) -> int:
    row = call.gate.matrix.get(kind, call.args["name"])
    tag, sent = row.etag.strip('"'), request.if_match
    if not sent.contains(tag) and tag not in {one.partition(".")[0] for one in sent.as_set()}:
        raise PreconditionFailed(
            f"{kind} {row.name} is now at revision {row.revision}",
            field="If-Match",
            value=request.headers["If-Match"],
            hint=f"read the document again; its entity tag is {row.etag}",
        )
    return row.revision


def base_url(service: Service, environ: Mapping[str, Any] | None = None) -> str:
    """Return the public URL: the operator's setting, else the address of the request."""
    if service.settings.public_url:
        return service.settings.public_url.rstrip("/")
    environ = request.environ if environ is None else environ
    host = environ.get("HTTP_HOST", "")
    return f"{environ['wsgi.url_scheme']}://{host}" if _HOST.fullmatch(host) else ""


def answer_link(service: Service, verdict_id: str, environ: Mapping[str, Any] | None = None) -> str:
    """Return the permanent link to a verdict (`compatgate.web.app`)."""
    return f"{base_url(service, environ)}/v/{verdict_id}"
