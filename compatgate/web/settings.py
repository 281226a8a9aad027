"""Settings of the web application, as `compatgate serve` was given them."""

from __future__ import annotations

from msgspec import field

from compatgate.kit.http.certificates import CertificatePair
from compatgate.kit.http.rate import Rate
from compatgate.kit.http.route import RequestSettings
from compatgate.kit.http.signatures import Secret
from compatgate.service.access.identity.settings import IdentitySettings
from compatgate.service.access.tokens.browser_sessions import SessionLimits
from compatgate.service.attention.notices.worker import IncidentWebhook
from compatgate.service.audit.attestations.service import SigningOptions
from compatgate.service.cluster.admission.kinds import load_kinds
from compatgate.service.cluster.admission.service import AdmissionOptions
from compatgate.web.access import AccessLevel

METRIC_TARGETS = 100


class Settings(RequestSettings, frozen=True, kw_only=True):
    """Settings of the web application.

    Attributes:
        anonymous: scopes of callers without a token.
        max_listeners: number of followed logs at once, each on a thread of the server.
        hook_secrets: that requests of deploy webhooks may be signed with; where there are any, who
            comes without signature and token is refused there.
        public_url: where people reach this service, for links; empty: where it was asked.
        metric_targets: number of targets that have figures of their own, by name; the others
            count together.
        certificate: of the server; None: plain HTTP.
        failed: failed authentications of a peer in each process; None: no limit.
        anonymous_rate: logged questions of an anonymous caller's address in each process; None: no
            limit.
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
