"""Sign bundles, serve the current one cheaply, and accept only trusted and newer ones.

A bundle is signed like a verdict: DSSE, over its payload and the payload's type. Its entity tag
names the payload, which is the same in every process of a gate. A poll that finds nothing new reads
no database and builds nothing.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.errors import BadInput, CompatgateError, quote_error
from compatgate.kit import clock
from compatgate.kit.cli.output import read_bytes
from compatgate.kit.database.database import Database
from compatgate.kit.files import PRIVATE_MODE, replacing
from compatgate.service.matrix.snapshots.reader import Snapshots, make_bundle_payload
from compatgate.service.matrix.snapshots.snapshot import (
    BUNDLE_TYPE,
    LARGEST_BUNDLE,
    Bundle,
    Envelope,
    Payload,
    load_bundle,
    open_bundle,
    open_envelope,
    seal_bundle,
)

if TYPE_CHECKING:
    from securesystemslib.signer import Key, Signer, SSlibKey

VALID_FOR = timedelta(days=1)
"""How long decisions may rest on a bundle that the gate serves."""
_ISSUE_EVERY = timedelta(hours=1)
"""Between two issues of an unchanged bundle: each far gate downloads every one."""
_LARGEST_KEY = 256 * 1024
_MAX_SIGNATURES = 16
_encode = msgspec.json.Encoder(order="sorted").encode


class BundleRefused(CompatgateError):
    """An error: a bundle is not trusted, or older than the present one; nothing was changed."""

    status = 422
    exit_code = 2
    slug = "bundle-refused"


class BundleVersion(NamedTuple):
    """The version of a bundle; each part grows. Evidence counts discarded runs, too."""

    revision: int
    evidence: int
    issue: int = 0

    def __str__(self) -> str:
        return f"revision {self.revision}, evidence {self.evidence}, issue {self.issue}"


class TrustedBundle(Struct, frozen=True):
    """A bundle that a trusted key signed."""

    bundle: Bundle
    key_id: str
    content: bytes

    @property
    def version(self) -> BundleVersion:
        """Return what grows with each newer bundle."""
        return _version_of(self.bundle.payload)

    @property
    def etag(self) -> str:
        """Return the entity tag under which the gate serves this bundle."""
        return _etag_of(self.bundle.sha256, self.key_id)


def _version_of(payload: Payload) -> BundleVersion:
    number = payload.evidence_number + payload.discards
    return BundleVersion(payload.revision, number, payload.issue)


def _etag_of(digest: str, key_id: str) -> str:
    """Return the entity tag of a bundle, of the digest of its payload and the id of its key."""
    return f'"b{digest[:32]}.{key_id[:16]}"'


def issue_bundle(
    payload: Payload, valid_for: timedelta | None, issued_at: datetime | None = None
) -> Payload:
    """Return the content of a bundle with the time of its issue, and the end of its validity."""
    now = issued_at or clock.now()
    until = now + valid_for if valid_for else None
    return replace(payload, issue=_current_issue(), issued_at=now, valid_until=until)


def _current_issue() -> int:
    return int(clock.now().timestamp() // _ISSUE_EVERY.total_seconds())


def sign_bundle(content: bytes, signer: Signer) -> bytes:
    """Return a sealed bundle with a signature."""
    from compatgate.service.audit.envelope import sign_payload

    envelope, payload = open_envelope(content, "the bundle")
    signed = sign_payload(payload, BUNDLE_TYPE, signer)
    made = replace(envelope, signatures=tuple(signed["signatures"]))
    return msgspec.json.format(_encode(made), indent=1) + b"\n"


def read_trusted(content: bytes, name: str, keys: Sequence[SSlibKey]) -> TrustedBundle:
    """Return a bundle that one of these keys signed; read its payload only then."""
    from securesystemslib.dsse import Envelope as Signed
    from securesystemslib.exceptions import VerificationError

    envelope, payload = open_envelope(content, name)
    given = ", ".join(key.keyid[:16] for key in keys)
    if not envelope.signatures:
        hint = "sign it: compatgate bundle export --sign KEY, or serve --signing-key"
        raise BundleRefused(f"{name} is not signed", field="bundle", hint=hint)
    try:
        document = {
            "payload": envelope.payload,
            "payloadType": BUNDLE_TYPE,
            "signatures": list(envelope.signatures),
        }
        signed = Signed.from_dict(document)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        raise BundleRefused(f"{name} has malformed signatures", field="bundle") from None
    known: list[Key] = [key for key in keys if key.keyid in signed.signatures]
    if not known:
        by = ", ".join(one[:16] for one in list(signed.signatures)[:_MAX_SIGNATURES])
        what = f"{name} is signed by {by}, which is not trusted"
        raise BundleRefused(what, field="bundle", hint=f"trusted: {given}")
    try:
        accepted = signed.verify(known, 1)
    except VerificationError:
        what = f"the signature of {name} is invalid: the bundle was changed"
        raise BundleRefused(
            what, field="bundle", hint="download the bundle again from the gate"
        ) from None
    assert signed.payload == payload  # noqa: S101 - both decode the same text
    return TrustedBundle(open_bundle(content, name), next(iter(accepted)), content)


def read_bundle_keys(paths: Sequence[str], option: str = "--key") -> list[SSlibKey]:
    """Return the public keys of files."""
    from compatgate.service.audit.keys import read_keys

    files = [read_bytes(path, option, _LARGEST_KEY) for path in paths]
    return [key for data in files for key in read_keys(data, option)]


def load_checked_bundle(path: str, key_files: Sequence[str]) -> Bundle:
    """Return the bundle of a file; with keys only if one of them signed it."""
    if not key_files:
        found = load_bundle(path)
    else:
        content = read_bytes(path, "--bundle", LARGEST_BUNDLE)
        found = read_trusted(content, path, read_bundle_keys(key_files)).bundle
    found.payload.require_valid()
    return found


# --- serving --------------------------------------------------------------------------------


class ServedBundle(Struct, frozen=True):
    """A signed bundle as it is served, plain and compressed.

    ``basis``: key, facts and version; while they stay, so does the bundle.
    """

    basis: tuple[str, str, BundleVersion]
    etag: str
    content: bytes
    compressed: bytes


class BundleSource:
    """The current bundle of a gate; built and signed once per version."""

    def __init__(
        self, database: Database, snapshots: Snapshots, overlays: Sequence[str] | None
    ) -> None:
        self._database = database
        self._overlays = overlays
        self._snapshots = snapshots
        self._building = threading.Lock()
        self._served: ServedBundle | None = None

    def serve(
        self, key_id: str, sign: Callable[[bytes, str], list[dict[str, Any]]]
    ) -> ServedBundle:
        """Return the current bundle."""
        snapshot = self._snapshots.current()
        number = snapshot.evidence + snapshot.discards
        version = BundleVersion(snapshot.revision, number, _current_issue())
        with self._building:
            known = self._served
            if known is not None and known.basis == (key_id, self._snapshots.facts.digest, version):
                return known
            with self._database.reading() as session:
                payload = make_bundle_payload(session, self._snapshots, self._overlays, None)
            # The period's start: other processes of this gate make the same bytes.
            begin = datetime.fromtimestamp(version.issue * _ISSUE_EVERY.total_seconds(), UTC)
            payload = replace(issue_bundle(payload, VALID_FOR, begin), issue=version.issue)
            sealed = msgspec.json.decode(seal_bundle(payload), type=Envelope)
            signatures = tuple(sign(base64.b64decode(sealed.payload), BUNDLE_TYPE))
            content = _encode(replace(sealed, signatures=signatures))
            self._served = ServedBundle(
                (key_id, payload.facts, _version_of(payload)),
                _etag_of(sealed.sha256, key_id),
                content,
                gzip.compress(content, 6, mtime=0),
            )
            return self._served


# --- receiving ------------------------------------------------------------------------------


class PulledBundle(Struct, frozen=True):
    """The result of a poll.

    ``before``: version of the file before; None: there was none that is trusted.
    """

    before: BundleVersion | None
    after: BundleVersion
    changed: bool


def present_bundle(path: Path, keys: Sequence[SSlibKey]) -> TrustedBundle | None:
    """Return the bundle that a file holds; None: no file, or no trusted bundle."""
    with suppress(CompatgateError):
        return read_trusted(read_bytes(str(path), "--to", LARGEST_BUNDLE), str(path), keys)
    return None


def require_newer(new: TrustedBundle, present: TrustedBundle | None, remedy: str) -> None:
    """Refuse a bundle that has ended, or is older than another; ``remedy`` for a restored gate."""
    payload = new.bundle.payload
    payload.require_valid()
    begin, end = payload.issued_at, payload.valid_until
    if begin is None or end is None or end - begin > VALID_FOR:
        what = "the bundle was exported: it is valid for longer than what a gate serves"
        hint = "it may be a replay of an old file; check --bundle decides from a file"
        raise BundleRefused(what, field="bundle", hint=hint)
    if present is not None and new.version < present.version:
        raise BundleRefused(
            f"the bundle is older ({new.version}) than the stored bundle ({present.version})",
            field="bundle",
            hint="the bundle is a replay, or the gate was restored from a backup; after a restore,"
            f" {remedy}",
        )


def apply_bundle(
    path: Path, present: TrustedBundle | None, new: TrustedBundle, *, allow_older: bool
) -> PulledBundle:
    """Replace the file with a newer bundle; a reader sees the old one or the new one."""
    require_newer(new, None if allow_older else present, "use --allow-older once")
    changed = present is None or present.content != new.content
    if changed:
        with _explaining("write", path, "--to"):
            mode = path.stat().st_mode & 0o777 if path.exists() else PRIVATE_MODE
            with replacing(path, mode) as file:
                file.write(new.content)
    return PulledBundle(present.version if present else None, new.version, changed)


def confirm_bundle(path: Path) -> None:
    """Note in the file's time that the gate has no newer bundle."""
    with _explaining("update the time of", path, "--to"):
        path.touch()


def bundle_age(path: str) -> timedelta:
    """Return the time since a file was pulled, or its gate last confirmed it."""
    with _explaining("read", path, "bundle"):
        confirmed = datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
    return clock.now() - confirmed


@contextmanager
def _explaining(what: str, path: str | Path, field: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"cannot {what} {path}: {quote_error(error)}"
        raise BadInput(problem, field=field, value=str(path)) from None
