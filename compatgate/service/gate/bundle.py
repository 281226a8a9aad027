"""Seal and open bundles: one file to decide offline, with the matrix at a revision.

The file is a DSSE envelope (``payloadType``, ``payload`` in base64, ``signatures``) with the
SHA-256 of its payload; ``signatures`` is empty until bundles are signed. The payload is JSON with
sorted keys and no time of export: the same matrix and evidence make the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shutil
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import msgspec
from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.matrix import Evidence
from compatgate.core.versions import parse_version
from compatgate.documents.specs import EntryDoc, TargetDoc, WaiverDoc, key_of
from compatgate.errors import BadInput
from compatgate.service.gate.snapshot import Snapshot, build
from compatgate.strict_json import NOT_JSON

PAYLOAD_TYPE = "application/vnd.compatgate.bundle+json"
FORMAT = 1
LARGEST = 1024 * 1024 * 1024
_encode = msgspec.json.Encoder(order="sorted").encode


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


class Overlay(Struct, frozen=True):
    """An operator's fact file."""

    name: str
    content: str


class Payload(Struct, frozen=True):
    """The content of a bundle.

    Attributes:
        format: version of the file format.
        revision: of the matrix.
        made_at: time of the revision; None: the matrix is empty.
        facts: digest of the exporting gate's facts.
        overlays: applied to the shipped facts, in this order.
    """

    format: int
    revision: int
    made_at: str | None
    facts: str
    overlays: tuple[Overlay, ...]
    documents: tuple[BundledDocument, ...]
    evidence: tuple[BundledRun, ...] = ()


class Envelope(Struct, frozen=True, rename="camel"):
    """The file: a DSSE envelope with the digest of its payload."""

    payload_type: str
    payload: str
    sha256: str
    signatures: tuple[dict[str, Any], ...] = ()


class Bundle:
    """A verified bundle."""

    def __init__(self, payload: Payload, sha256: str) -> None:
        self.payload = payload
        self.sha256 = sha256

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
        stored = (
            (*key_of(item.document), item.document, item.revision)
            for item in self.payload.documents
        )
        evidence = tuple(_evidence(run) for run in self.payload.evidence)
        return build(stored, self.facts, self.payload.revision, evidence)


def seal(payload: Payload) -> bytes:
    """Return a bundle as bytes; equal payloads give equal bytes."""
    content = _encode(payload)
    envelope = Envelope(
        PAYLOAD_TYPE, base64.b64encode(content).decode(), hashlib.sha256(content).hexdigest()
    )
    return msgspec.json.format(_encode(envelope), indent=1) + b"\n"


def load_bundle(path: str | Path) -> Bundle:
    """Read a bundle.

    Raises:
        BadInput: the file cannot be read, is not a bundle, is damaged, or has another format.
    """
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise _bad(f"cannot read {path}: {reason}", path) from None
    if len(content) > LARGEST:
        raise _bad(f"{path} is larger than {LARGEST} bytes", path)
    return open_bundle(content, str(path))


def open_bundle(content: bytes, name: str) -> Bundle:
    """Read a bundle from bytes.

    Raises:
        BadInput: as for `load_bundle`.
    """
    try:
        envelope = msgspec.json.decode(content, type=Envelope)
    except (msgspec.MsgspecError, *NOT_JSON) as error:
        raise _bad(f"{name} is not a bundle, or is truncated: {error}", name) from None
    if envelope.payload_type != PAYLOAD_TYPE:
        raise _bad(f"{name} is not a bundle: it holds {envelope.payload_type}", name)
    try:
        payload = base64.b64decode(envelope.payload, validate=True)
    except (binascii.Error, ValueError):
        raise _bad(f"{name} is damaged: its payload is not base64", name) from None
    if hashlib.sha256(payload).hexdigest() != envelope.sha256:
        raise _bad(f"{name} is damaged or was tampered with: its digest does not match", name)
    return Bundle(_payload(payload, name), envelope.sha256)


def _payload(content: bytes, name: str) -> Payload:
    try:
        stated = msgspec.json.decode(content, type=_Format).format
        if stated != FORMAT:
            hint = "use the version of compatgate that wrote the bundle, or a newer one"
            raise BadInput(
                f"{name} has format {stated}, expected {FORMAT}", field="bundle", hint=hint
            )
        return msgspec.json.decode(content, type=Payload)
    except (msgspec.MsgspecError, *NOT_JSON) as error:
        raise _bad(f"{name} is not a valid bundle: {error}", name) from None


class _Format(Struct):
    format: int


def bundle_evidence(evidence: Sequence[Evidence]) -> tuple[BundledRun, ...]:
    """Return judged runs in the form of a bundle, sorted by id."""
    runs = [
        BundledRun(
            run.id,
            run.suite,
            run.sku,
            run.driver.text,
            {name: version.text for name, version in run.components.items()},
            run.outcome,
            run.finished,
            run.development,
        )
        for run in evidence
    ]
    return tuple(sorted(runs, key=lambda run: run.id))


def _evidence(run: BundledRun) -> Evidence:
    return Evidence(
        run.id,
        run.suite,
        run.sku,
        parse_version("driver", run.driver),
        {name: parse_version(name, text) for name, text in run.components.items()},
        run.outcome,
        run.finished,
        run.development,
    )


def _bad(problem: str, value: object) -> BadInput:
    hint = "create one with: compatgate bundle export"
    return BadInput(problem, field="bundle", value=str(value), hint=hint)
