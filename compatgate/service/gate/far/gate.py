"""Decide from the bundle of a central gate, without a database.

A far gate is a gate whose database refuses every transaction: what needs one (changes, history,
pages) is refused with a pointer to the central gate. Decisions go to the spool.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL

from compatgate.errors import Forbidden
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.http.signatures import Secret
from compatgate.service.access.tokens.repository import KnownToken, TokenRow
from compatgate.service.access.tokens.service import digest_of
from compatgate.service.audit.events.refusals import RefusalLog
from compatgate.service.gate.decisions.decision_log import DecisionLog
from compatgate.service.gate.decisions.spool import SpoolOptions
from compatgate.service.gate.far.keeper import AppliedBundle, BundleKeeper, BundleOptions
from compatgate.service.gate.far.log import CentralDestination
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.snapshots.reader import Snapshots

if TYPE_CHECKING:
    from compatgate.service.gate.decisions.outages import Degraded
    from compatgate.service.gate.questions.images import ImageSettings
    from compatgate.service.gate.questions.wheels import WheelSettings

_CALLER_SCOPES = ("read", "gate", "plan")
_log = logging.getLogger("compatgate.far")


class ReadOnlyGate(Forbidden):
    """An error: this gate decides from a bundle, and has no database."""

    slug = "read-only-gate"

    def __init__(self, central: str) -> None:
        super().__init__(
            "this is a read-only gate: it decides from a bundle, changes nothing, and has no"
            " history",
            hint=f"ask the central gate: {central}",
        )


class NoDatabase(Database):
    """A database that refuses every transaction."""

    def __init__(self, options: BundleOptions) -> None:
        super().__init__(URL.create("sqlite", database=str(options.folder / "none.db")))
        self._central = options.central.url
        self.outage = lambda: ReadOnlyGate(self._central)

    @property
    def shown(self) -> str:
        """Return the URL of the central gate, which the spool belongs to."""
        return self._central


class FarGate(Gate):
    """A read-only gate, of a prepared bundle."""

    def __init__(
        self,
        snapshots: Snapshots,
        bundle: BundleKeeper,
        *,
        images: ImageSettings | None = None,
        wheels: WheelSettings | None = None,
        spool_size: int,
    ) -> None:
        options = bundle.options
        self._central = options.central
        self.bundle = bundle
        super().__init__(
            snapshots,
            overlays=(),
            images=images,
            wheels=wheels,
            spool=SpoolOptions(options.folder / "spool", spool_size),
        )
        self._use(bundle.present)
        self.snapshots.keeper = bundle
        bundle.start(self._use)

    def _make_log(self, spool: SpoolOptions | None) -> DecisionLog:
        assert spool is not None  # noqa: S101 - the constructor gives one
        return DecisionLog(self.database, "sync", spool, partial(CentralDestination, self._central))

    def _use(self, new: AppliedBundle) -> None:
        self.snapshots.replace(new.snapshot)
        bundle = new.trusted.bundle
        if not bundle.facts_match:
            _log.warning(
                "the facts of this program differ from those of the central gate: answers may"
                " differ; run the same version"
            )

    def degraded(self) -> Degraded | None:
        """Return the state while the central gate confirms nothing; None: it does."""
        return self.bundle.degraded()

    def snapshot_age_s(self) -> float:
        """Return the seconds since the central gate last confirmed the bundle."""
        return self.bundle.age_s()

    def require_writable(self) -> None:
        """Refuse a change or a page."""
        raise ReadOnlyGate(self._central.url)

    require_pages = require_writable

    def check_ready(self) -> dict[str, Any]:
        """Return the state of a gate that can decide."""
        snapshot = self.snapshots.current()
        payload = self.bundle.present.trusted.bundle.payload
        log = self.log_state
        state: dict[str, Any] = {
            "central": self._central.url,
            "far_gate": self._central.name,
            "revision": snapshot.revision,
            "evidence": snapshot.evidence,
            "targets": len(snapshot.targets),
            "unusable_targets": snapshot.unusable,
            "facts": snapshot.facts.digest,
            "facts_of_central": payload.facts,
            "snapshot_age_s": round(self.bundle.age_s(), 1),
            "spool": {"batches": log.batches, "bytes": log.used, "set_aside": log.set_aside},
        }
        if (degraded := self.degraded()) is not None:
            state["degraded"] = degraded.to_json()
        return state

    def close(self) -> None:
        """Stop to poll, and leave what is not delivered in the spool."""
        self.bundle.close()
        super().close()


class LoggedRefusals(RefusalLog):
    """Refused attempts of a gate without an audit chain: they are lines of the log."""

    def note(self, identity: str, actor: str, place: str, reason: str) -> None:
        """Log a refusal."""
        _log.warning("%s was refused %s: %s", actor, place, reason)


def known_callers(callers: Iterable[Secret]) -> list[KnownToken]:
    """Return the tokens of callers, which this gate alone knows."""
    about: dict[str, Any] = {"created_at": clock.now(), "created_by": "serve --caller-token"}
    about |= dict.fromkeys(("expires_at", "last_used_at", "revoked_at"))
    return [
        KnownToken(
            digest_of(one.key.decode("utf-8", "replace")),
            TokenRow(f"far_{one.name}", one.name, _CALLER_SCOPES, **about),
        )
        for one in callers
    ]
