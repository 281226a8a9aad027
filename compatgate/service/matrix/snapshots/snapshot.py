"""Hold the matrix and the evidence in memory, immutable and indexed; carry them in a bundle.

Of all judged runs only the latest of each kind count. Memory grows with the number of tested
images, not with the number of runs.

A bundle is one file to decide offline. The file is a DSSE envelope (``payloadType``, ``payload``
in base64, ``signatures``) with the SHA-256 of its payload; the module `bundles` signs it. The
payload is JSON with sorted keys and no time of export: the same matrix and evidence make the same
bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from compatgate.core.binding import Binding, SuiteDefinition
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryIndex, Evidence, Matrix, Waiver
from compatgate.core.performance import pause_garbage_collection
from compatgate.core.request import Pool, Target
from compatgate.documents.convert import to_entry, to_target, to_waiver
from compatgate.documents.sources import suggest_name
from compatgate.documents.specs import Document, EntryDoc, Kind, TargetDoc, WaiverDoc, key_of
from compatgate.errors import BadInput, NotFound, Unavailable, quote_error
from compatgate.kit import clock
from compatgate.strict_json import DECODE_ERRORS

T = TypeVar("T")

DocumentVersion = tuple[Kind, str, Document | None, int]
"""Kind, name and content of a document (None: deleted), and the revision of that version."""
BUNDLE_TYPE = "application/vnd.compatgate.bundle+json"
BUNDLE_FORMAT = 1
LARGEST_BUNDLE = 1024 * 1024 * 1024
_NO_SUITES: Mapping[str, SuiteDefinition] = {}
_encode = msgspec.json.Encoder(order="sorted").encode
MAX_POOLED = 32
"""Runs of one kind that are kept, the newest ones."""


def keep_counting(runs: Iterable[Evidence], known: Iterable[Evidence] = ()) -> tuple[Evidence, ...]:
    """Return the judged runs that can decide an answer.

    Rules pool the runs of one kind: of each the newest `MAX_POOLED` are kept, so that memory grows
    with the number of tested images. Of runs without a binding, which were judged before bindings
    were recorded, the newest of each kind speaks alone.
    """
    kinds: dict[tuple[object, ...], list[Evidence]] = {}
    for run in (*known, *runs):
        if run.outcome != "inconclusive":
            parts = tuple(sorted((name, version.text) for name, version in run.components.items()))
            bound = (run.bound.content, run.bound.suite, run.bound.image) if run.bound else None
            about = (run.suite, run.sku, run.driver.text, run.development, run.assurance)
            kinds.setdefault((*about, parts, bound), []).append(run)
    kept: list[Evidence] = []
    for pooled in kinds.values():
        pooled.sort(key=lambda run: run.finished)
        kept += pooled[-MAX_POOLED:] if pooled[0].bound else pooled[-1:]
    return tuple(kept)


class Snapshot(Struct, frozen=True):
    """The basis of answers at one revision, by name; ``matrix`` has indexes of the same.

    ``unusable``: why the facts cannot resolve a target. ``evidence`` and ``discards``: numbers of
    the latest judged run and of the latest discarded one; 0: there is none.
    """

    revision: int
    facts: Facts
    matrix: Matrix
    targets: dict[str, Target] = {}
    documents: dict[str, TargetDoc] = {}
    entries: dict[str, Entry] = {}
    waivers: dict[str, Waiver] = {}
    unusable: dict[str, str] = {}
    evidence: int = 0
    discards: int = 0

    @property
    def state(self) -> tuple[int, int, int]:
        """Return the numbers of what answers rest on: revision, judged run, discarded run."""
        return self.revision, self.evidence, self.discards

    def target(self, name: str) -> Target:
        """Return a target by name."""
        if found := self.targets.get(name):
            return found
        if why := self.unusable.get(name):
            raise Unavailable(f"the target {name!r} cannot be used: {why}", field="target")
        hint = suggest_name(name, self.targets)
        raise NotFound(f"target {name!r} does not exist", field="target", value=name, hint=hint)

    def entry(self, name: str, field: str = "entry") -> Entry:
        """Return an entry by name; the field states the name."""
        if name not in self.entries:
            hint = suggest_name(name, self.entries)
            raise NotFound(f"entry {name!r} does not exist", field=field, value=name, hint=hint)
        return self.entries[name]


def find_pool(target: str, pools: Sequence[Pool], name: str) -> Pool:
    """Return a pool of a target by name."""
    known = {pool.name: pool for pool in pools}
    if name not in known:
        what, hint = f"the target {target!r} has no pool {name!r}", suggest_name(name, known)
        raise NotFound(what, field="pool", value=name, hint=hint)
    return known[name]


def build(
    versions: Iterable[DocumentVersion],
    facts: Facts,
    revision: int,
    evidence: tuple[Evidence, ...] = (),
    suites: Mapping[str, SuiteDefinition] = _NO_SUITES,
) -> Snapshot:
    """Build a snapshot of documents."""
    nothing = Snapshot(0, facts, Matrix(evidence=evidence, suites=suites))
    return advance_snapshot(nothing, versions, revision)


def _by_name(documents: dict[str, T]) -> list[T]:
    """Return documents by name: the answer among equals must not depend on what changed before."""
    return [documents[name] for name in sorted(documents)]


def advance_snapshot(
    snapshot: Snapshot, versions: Iterable[DocumentVersion], revision: int
) -> Snapshot:
    """Return the snapshot of a later revision; only changed documents are resolved again."""
    new = replace(
        snapshot,
        revision=revision,
        targets=dict(snapshot.targets),
        documents=dict(snapshot.documents),
        entries=dict(snapshot.entries),
        waivers=dict(snapshot.waivers),
        unusable=dict(snapshot.unusable),
    )
    with pause_garbage_collection():
        for version in versions:
            _set_document(new, *version)
        matrix = snapshot.matrix.replace(
            revision=revision,
            entries=EntryIndex(_by_name(new.entries)),
            waivers=_by_name(new.waivers),
        )
    return replace(new, matrix=matrix)


def add_evidence(
    snapshot: Snapshot,
    runs: Iterable[Evidence],
    number: int,
    suites: Callable[[], Mapping[str, SuiteDefinition]] = dict,
) -> Snapshot:
    """Return the snapshot with more judged runs."""
    old = snapshot.matrix
    found = keep_counting(runs, old.evidence)
    known = old.suites
    if not known and any(run.bound and run.bound.suite for run in found):
        known = suites()
    matrix = old.replace(evidence=found, suites=known)
    return replace(snapshot, matrix=matrix, evidence=number)


def without_evidence(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without judged runs, to load them again."""
    return replace(snapshot, matrix=snapshot.matrix.replace(evidence=()), evidence=0)


def _set_document(
    new: Snapshot, kind: Kind, name: str, document: Document | None, revision: int
) -> None:
    if kind == "Target":
        new.targets.pop(name, None)
        new.unusable.pop(name, None)
    if document is None:
        kept = {"Target": new.documents, "Entry": new.entries, "Waiver": new.waivers}[kind]
        kept.pop(name, None)  # type: ignore[attr-defined]
        return
    match document:
        case EntryDoc():
            new.entries[name] = to_entry(document, new.facts.gpus, revision)
        case WaiverDoc():
            new.waivers[name] = to_waiver(document)
        case TargetDoc():
            new.documents[name] = document
            try:
                new.targets[name] = to_target(document, new.facts.gpus)
            except BadInput as error:
                new.unusable[name] = error.detail


class BundledDocument(Struct, frozen=True):
    """A document, and the revision of its version."""

    document: TargetDoc | EntryDoc | WaiverDoc
    revision: int


class BundledRun(Struct, frozen=True):
    """A judged run, as `compatgate.core.matrix.Evidence` in text."""

    id: str
    suite: str
    sku: str
    driver: str
    components: dict[str, str]
    outcome: Literal["passed", "failed", "inconclusive"]
    finished: int
    development: bool = False
    bound: Binding | None = None


class Overlay(Struct, frozen=True):
    """An operator's fact file."""

    name: str
    content: str


class Payload(Struct, frozen=True):
    """The content of a bundle.

    ``evidence_number`` and ``discards``: of the latest judged run and of the latest discarded one;
    0: unknown, or there is none. ``issue`` grows with time, so that an older bundle of a revision
    is known; 0: not issued. No decision rests on it after ``valid_until``; None: for ever.
    """

    format: int
    revision: int
    made_at: str | None
    facts: str
    overlays: tuple[Overlay, ...]
    documents: tuple[BundledDocument, ...]
    evidence: tuple[BundledRun, ...] = ()
    evidence_number: int = 0
    discards: int = 0
    suites: dict[str, SuiteDefinition] = {}
    issue: int = 0
    issued_at: datetime | None = None
    valid_until: datetime | None = None

    def require_valid(self) -> None:
        """Check the period in which decisions may rest on the bundle."""
        now = clock.now()
        if self.issued_at is not None and self.issued_at > now + clock.SKEW:
            what = f"the bundle was issued in the future, at {clock.iso(self.issued_at)}"
            hint = "synchronize the clocks of this machine and of the gate (NTP)"
            raise Unavailable(what, field="bundle", hint=hint)
        if self.valid_until is not None and self.valid_until < now:
            what = f"the bundle expired at {clock.iso(self.valid_until)}"
            hint = "get the current one from its gate: an older bundle may be a replay"
            raise Unavailable(what, field="bundle", hint=hint)


class Envelope(Struct, frozen=True, rename="camel"):
    """The file: a DSSE envelope with the digest of its payload."""

    payload_type: str
    payload: Annotated[str, Meta(description="bundle as JSON, in base64")]
    sha256: Annotated[str, Meta(description="digest of the payload, hex")]
    signatures: Sequence[Any] = ()


class Bundle:
    """A verified bundle."""

    def __init__(self, payload: Payload, sha256: str, signatures: Sequence[str] = ()) -> None:
        self.payload = payload
        self.sha256 = sha256
        self.signatures = tuple(signatures)
        """Ids of the keys that are said to have signed it; `bundles` verifies that."""

    @cached_property
    def facts(self) -> Facts:
        """Return this program's facts with the bundle's overlays."""
        from compatgate.catalog import load_facts

        if not self.payload.overlays:
            return load_facts([])
        folder = mkdtemp(prefix="compatgate-bundle-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        paths = []
        for index, overlay in enumerate(self.payload.overlays):
            path = Path(folder) / str(index) / os.path.basename(overlay.name)
            path.parent.mkdir()
            path.write_text(overlay.content)
            paths.append(str(path))
        return load_facts(paths)

    @property
    def facts_match(self) -> bool:
        """Tell whether this program and the exporting gate have the same facts."""
        return self.facts.digest == self.payload.facts

    def snapshot(self) -> Snapshot:
        """Return the snapshot to decide on."""
        return restore_snapshot(self.payload, self.facts, 0)


def restore_snapshot(payload: Payload, facts: Facts, evidence: int) -> Snapshot:
    """Return the snapshot of a payload."""
    stored = ((*key_of(item.document), item.document, item.revision) for item in payload.documents)
    known = tuple(Evidence.read(**asdict(run)) for run in payload.evidence)
    made = build(stored, facts, payload.revision, known, payload.suites)
    return replace(made, evidence=evidence)


def seal_bundle(payload: Payload) -> bytes:
    """Return a bundle as bytes; equal payloads give equal bytes."""
    content = _encode(payload)
    envelope = Envelope(
        BUNDLE_TYPE, base64.b64encode(content).decode(), hashlib.sha256(content).hexdigest()
    )
    return msgspec.json.format(_encode(envelope), indent=1) + b"\n"


def load_bundle(path: str | Path) -> Bundle:
    """Read a bundle."""
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(LARGEST_BUNDLE + 1)
    except OSError as error:
        reason = quote_error(error)
        raise _bundle_error(f"cannot read {path}: {reason}", path) from None
    if len(content) > LARGEST_BUNDLE:
        raise _bundle_error(f"{path} is larger than {LARGEST_BUNDLE} bytes", path)
    return open_bundle(content, str(path))


def open_envelope(content: bytes, name: str) -> tuple[Envelope, bytes]:
    """Return the envelope of a bundle, and its payload, unread."""
    try:
        envelope = msgspec.json.decode(content, type=Envelope)
    except (msgspec.MsgspecError, *DECODE_ERRORS) as error:
        what = f"{name} is not a bundle, or is truncated: {quote_error(error)}"
        raise _bundle_error(what, name) from None
    if envelope.payload_type != BUNDLE_TYPE:
        what = f"{name} is not a bundle: it holds {envelope.payload_type[:100]}"
        raise _bundle_error(what, name)
    try:
        return envelope, base64.b64decode(envelope.payload, validate=True)
    except (binascii.Error, ValueError):
        raise _bundle_error(f"{name} is damaged: its payload is not base64", name) from None


def open_bundle(content: bytes, name: str) -> Bundle:
    """Read a bundle from bytes."""
    envelope, payload = open_envelope(content, name)
    if hashlib.sha256(payload).hexdigest() != envelope.sha256:
        what = f"{name} is damaged or was tampered with: its digest does not match"
        raise _bundle_error(what, name)
    stated = [str(signature.get("keyid", "")) for signature in envelope.signatures]
    return Bundle(_read_payload(payload, name), envelope.sha256, stated)


def _read_payload(content: bytes, name: str) -> Payload:
    try:
        stated = msgspec.json.decode(content, type=_PayloadFormat).format
        if stated != BUNDLE_FORMAT:
            hint = "use the version of compatgate that wrote the bundle, or a newer one"
            what = f"{name} has format {stated}, expected {BUNDLE_FORMAT}"
            raise BadInput(what, field="bundle", hint=hint)
        return msgspec.json.decode(content, type=Payload)
    except (msgspec.MsgspecError, *DECODE_ERRORS) as error:
        raise _bundle_error(f"{name} is not a valid bundle: {quote_error(error)}", name) from None


class _PayloadFormat(Struct):
    format: int


def bundle_evidence(evidence: Sequence[Evidence]) -> tuple[BundledRun, ...]:
    """Return judged runs in the form of a bundle, sorted by id."""
    ordered = sorted(evidence, key=lambda run: run.id)
    return tuple(BundledRun(**run.to_text()) for run in ordered)


def _bundle_error(problem: str, value: object) -> BadInput:
    hint = "create one with: compatgate bundle export"
    return BadInput(problem, field="bundle", value=str(value), hint=hint)
