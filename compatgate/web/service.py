"""Hold what all requests of an application share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from flask import request
from msgspec import field

from compatgate.errors import CompatgateError
from compatgate.kit.http.certificates import CertificatePair
from compatgate.kit.http.limits import Rate
from compatgate.kit.http.replies import unexpected_error
from compatgate.kit.http.route import RequestSettings
from compatgate.kit.http.signatures import Secret
from compatgate.kit.principal import anonymous_principal
from compatgate.service.access.browser_sessions import SessionLimits
from compatgate.service.access.settings import IdentitySettings
from compatgate.service.attention.worker import IncidentWebhook
from compatgate.service.audit.attestations import SigningOptions
from compatgate.service.cluster.admission import AdmissionOptions
from compatgate.service.cluster.kinds import load_kinds

if TYPE_CHECKING:
    from compatgate.kit.http.limits import RequestLimits
    from compatgate.service.access.identity import Identity
    from compatgate.service.app import Rooms
    from compatgate.service.audit.attestations import Attestations
    from compatgate.web.metrics import Metrics

T = TypeVar("T")
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?")
METRIC_TARGETS = 100
AccessLevel = Literal["off", "errors", "all"]
"""Requests that have a line in the log; ``errors``: those that are refused or fail."""


class Service:
    """The objects that all requests of an application share.

    ``nobody``: the principal of callers without a token.
    """

    def __init__(
        self,
        rooms: Rooms,
        settings: Settings,
        metrics: Metrics,
        limits: RequestLimits,
        attestations: Attestations,
        identity: Identity,
        others: Iterable[object],
    ) -> None:
        self.rooms = rooms
        self.gate = rooms.gate
        self.settings = settings
        self.metrics = metrics
        self.nobody = anonymous_principal(settings.anonymous)
        self.limits = limits
        self.attestations = attestations
        self.identity = identity
        own = (self, rooms.gate.database, metrics, limits, attestations, identity)
        every = (*own, *vars(rooms).values(), *others)
        self._by_class = {kind: one for one in every for kind in type(one).__mro__}

    def find(self, kind: type[T]) -> T:
        """Return the one service of a class."""
        found: T = self._by_class[kind]
        return found

    def explain(self, error: Exception, environ: Mapping[str, Any]) -> CompatgateError:
        """Return the error for an unexpected exception: of a newer schema, else of a defect."""
        return self.gate.find_newer_schema() or unexpected_error(error, environ)


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


class Settings(RequestSettings, frozen=True, kw_only=True):
    """Settings of the web application; the options of `serve` say what each means.

    ``max_listeners``: followed logs at once, each on a thread of the server. With ``hook_secrets``,
    who comes to a deploy webhook without signature and token is refused. Rates are those of a
    process; None: no limit.
    """

    anonymous: frozenset[str] = frozenset()
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
