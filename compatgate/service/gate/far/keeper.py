"""Keep the latest trusted bundle of the central gate: poll it, apply it, know how old it is.

The state folder holds the last good bundle. Its time says when the central gate last confirmed it.
A new bundle counts once its signature is verified, it is not older, this program can resolve it,
and the disk has it. Until then the present one stays. All processes of a far gate share the folder.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.documents.quantities import describe_seconds
from compatgate.errors import CompatgateError, Forbidden, Unavailable, quote_error
from compatgate.kit import clock
from compatgate.kit.files import PRIVATE_MODE, locked, replacing
from compatgate.service.gate.decisions.outages import MAX_STALE, Degraded
from compatgate.service.gate.far.bundles import (
    TrustedBundle,
    apply_bundle,
    bundle_age,
    confirm_bundle,
    present_bundle,
    read_trusted,
    require_newer,
)
from compatgate.service.matrix.snapshots.snapshot import Snapshot, restore_snapshot

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

    from compatgate.client import Client

BUNDLE = "matrix.bundle"
_NAME = "central.json"
_LOCK = "bundle.lock"
_FIRST_RETRY_S = 1.0
_TIMEOUT_S = 20.0
_SCOPES = ("read", "deliver")
_log = logging.getLogger("compatgate.far")


class Central(Struct, frozen=True):
    """The central gate, as a far gate reaches it, with the token or the file that has its secret.

    Writers of this far gate are called after the name of the token.
    """

    url: str
    token: str = ""
    token_file: Path | None = None
    name: str = ""

    def connect(self, timeout_s: float, retries: int) -> Client:
        """Return a client.

        ``timeout_s``: seconds to wait for the connection, and for each part of an answer.
        """
        from compatgate.gate_client import make_client
        from compatgate.kit.cli.output import read_bytes

        secret = self.token
        if self.token_file is not None:
            found = read_bytes(str(self.token_file), "--bundle-token", 4096)
            secret = found.decode("ascii", "replace").strip()
        return make_client(self.url, secret or None, timeout_s, retries=retries, stored=False)


class BundleOptions(Struct, frozen=True):
    """The source of bundles, and their maximum age.

    ``max_stale``: greatest age of a bundle to decide on.
    """

    central: Central
    keys: Sequence[SSlibKey]
    folder: Path
    every_s: float = 60.0
    max_stale: timedelta = MAX_STALE


class AppliedBundle(Struct, frozen=True):
    """A trusted bundle, and the snapshot to decide on."""

    trusted: TrustedBundle
    snapshot: Snapshot

    @classmethod
    def of(cls, trusted: TrustedBundle) -> AppliedBundle:
        """Resolve a bundle with the facts of this program."""
        bundle = trusted.bundle
        number = bundle.payload.evidence_number
        return cls(trusted, restore_snapshot(bundle.payload, bundle.facts, number))


class _Stored(Struct, frozen=True):  # the content of central.json
    central: str
    name: str


class BundleKeeper:
    """The state folder of a far gate: polls the bundle, and knows how old the present one is."""

    present: AppliedBundle
    check = expire = follow_change = staticmethod(lambda: None)
    """Do nothing: polls come by themselves, no request waits for one, and nothing changes here."""
    check_now = is_recent = staticmethod(lambda: True)
    """Requests read memory alone: it has all that there is."""
    is_away = staticmethod(lambda: False)

    def __init__(self, options: BundleOptions) -> None:
        self.options = options
        self.path = options.folder / BUNDLE
        self._ended = threading.Event()
        self._confirmed = 0.0
        self._failure: tuple[datetime, str] | None = None

    def prepare(self) -> None:
        """Get the bundle and this gate's name, or the last good ones without the central gate."""
        present, name = self.read(), self.read_name()
        if present is not None:
            clock.never_before(self.confirmed_at())
        try:
            name = self.ask_name()
            present = self.poll(present) or present
        except CompatgateError as error:
            if present is None or name is None:
                raise
            self._failure = (clock.now(), error.problem)
        if present is None:
            raise Unavailable("the central gate has no bundle", field="--bundle")
        self.options = replace(self.options, central=replace(self.options.central, name=name))
        self.present = present
        self._note_age()

    def _note_age(self) -> None:
        age = (clock.now() - self.confirmed_at()).total_seconds()
        self._confirmed = time.monotonic() - max(0.0, age)

    def read(self) -> AppliedBundle | None:
        """Return the last good bundle; None: there is none that a trusted key signed."""
        trusted = present_bundle(self.path, self.options.keys)
        if trusted is None:
            if self.path.exists():
                _log.warning("%s is not a bundle of a trusted key; it is ignored", self.path)
            return None
        try:
            return AppliedBundle.of(trusted)
        except CompatgateError as error:
            _log.warning("%s cannot be used: %s", self.path, error)
            return None

    def confirmed_at(self) -> datetime:
        """Return when the central gate last confirmed the last good bundle."""
        return clock.now() - bundle_age(str(self.path))

    def read_name(self) -> str | None:
        """Return the name under which this far gate delivers; None: not known yet."""
        try:
            found = msgspec.json.decode((self.options.folder / _NAME).read_bytes(), type=_Stored)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        return found.name if found.central == self.options.central.url else None

    def ask_name(self) -> str:
        """Ask the central gate for the name of the token, and store it."""
        from compatgate.client.operations import Operations

        with self.options.central.connect(_TIMEOUT_S, 0) as client:
            caller = client.send(Operations.show_caller.request())
        missing = [scope for scope in _SCOPES if not {scope, "admin"} & set(caller.scopes)]
        name = caller.name
        if missing or caller.kind != "token":
            lacks = f"lacks {' and '.join(missing)}" if missing else "is no token"
            hint = "on the central gate, run: compatgate token create --name NAME --scope "
            hint += ",".join(_SCOPES)
            what = f"{name} cannot be a far gate: it {lacks}"
            raise Forbidden(what, field="--bundle-token", hint=hint)
        content = msgspec.json.encode(_Stored(self.options.central.url, name))
        try:
            with replacing(self.options.folder / _NAME, PRIVATE_MODE) as file:
                file.write(content)
        except OSError as error:
            what = f"cannot write {self.options.folder / _NAME}: {quote_error(error)}"
            raise Unavailable(what, field="--state") from None
        return name

    def poll(self, present: AppliedBundle | None) -> AppliedBundle | None:
        """Return a newer bundle once the disk has it; None: the present one is current."""
        from compatgate.client.operations import Operations

        request = Operations.show_bundle.request().as_bytes()
        with self.options.central.connect(_TIMEOUT_S, 0) as client:
            etag = present.trusted.etag if present else None
            answer = client.exchange(request, if_none_match=etag)
        if answer.not_modified and present is not None:
            confirm_bundle(self.path)
            return None
        name = f"the bundle of {self.options.central.url}"
        trusted = read_trusted(answer.value, name, self.options.keys)
        remedy = f"stop this gate, remove {BUNDLE} from its state folder, and start it"
        require_newer(trusted, present.trusted if present else None, remedy)
        new = AppliedBundle.of(trusted)
        try:
            with locked(self.options.folder / _LOCK):
                stored = present_bundle(self.path, self.options.keys)
                apply_bundle(self.path, stored, trusted, allow_older=False)
                confirm_bundle(self.path)
        except OSError as error:
            what = f"cannot write {self.options.folder}: {quote_error(error)}"
            raise Unavailable(what, field="--state") from None
        return new

    def start(self, use: Callable[[AppliedBundle], None]) -> None:
        """Start to poll; ``use`` gets each new bundle."""
        self._note_age()
        threading.Thread(target=self._run, args=(use,), name="bundle", daemon=True).start()

    def close(self) -> None:
        """Stop to poll."""
        self._ended.set()

    def age_s(self) -> float:
        """Return the seconds since the central gate last confirmed the bundle."""
        return time.monotonic() - self._confirmed

    def degraded(self) -> Degraded | None:
        """Return the state while polls fail; None: the latest one did not."""
        if (failure := self._failure) is None:
            return None
        return Degraded(failure[0], round(self.age_s(), 1), failure[1], "the central gate")

    def require_usable(self) -> None:
        """Check that the bundle is recent enough to decide on."""
        self.present.trusted.bundle.payload.require_valid()
        most = self.options.max_stale.total_seconds()
        if self.age_s() <= most:
            return
        why = f" ({self._failure[1]})" if self._failure else ""
        what = f"the central gate confirmed the bundle {describe_seconds(self.age_s())} ago{why}"
        hint = "bring the central gate back; serve --max-stale sets the limit"
        limit = f"the limit is {describe_seconds(most)}"
        raise Unavailable(f"{what}; {limit}", field="bundle", hint=hint)

    def _run(self, use: Callable[[AppliedBundle], None]) -> None:
        every = self.options.every_s
        pause, retry = 0.0, min(_FIRST_RETRY_S, every)
        while not self._ended.wait(pause * random.uniform(0.8, 1.2)):  # noqa: S311 - to spread gates
            began = time.monotonic()
            try:
                if (new := self.poll(self.present)) is not None:
                    self.present = new
                    use(new)
            except Exception as error:
                self._note_failure(error)
                pause, retry = retry, min(2 * retry, every)
                continue
            if self._failure is not None:
                _log.warning("the central gate confirms the bundle again")
            self._confirmed, self._failure = began, None
            pause, retry = every, min(_FIRST_RETRY_S, every)

    def _note_failure(self, error: Exception) -> None:
        """Note why a poll failed; log it once for each reason."""
        if isinstance(error, CompatgateError):
            reason = error.problem
        else:
            reason = f"the poll failed: {quote_error(error)}"
            _log.error("the poll for a bundle failed", exc_info=error)
        since, before = self._failure or (clock.now(), "")
        self._failure = (since, reason)
        if before != reason:
            _log.error("no new bundle: %s", reason)
