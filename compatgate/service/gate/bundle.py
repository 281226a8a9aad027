"""Seal and open bundles: one file with the matrix at a revision and everything to decide by it.

The file is a DSSE envelope (``payloadType``, ``payload`` in base64, ``signatures``) with the
SHA-256 of its payload beside it; ``signatures`` is empty until bundles are signed. The payload
is JSON with sorted keys and no times of its own: the same matrix and evidence make the same
bytes.
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
    """A document, and the revision that made it."""

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
    """What a bundle holds.

    Attributes:
        format: of this file.
        revision: of the matrix.
        made_at: when that revision was made; None: there was none.
        facts: digest of the catalog that the exporting gate decided with.
        overlays: laid over the shipped facts, in this order.
    """

    format: int
    revision: int
    made_at: str | None
    facts: str
    overlays: tuple[Overlay, ...]
    documents: tuple[BundledDocument, ...]
    evidence: tuple[BundledRun, ...] = ()


class Envelope(Struct, frozen=True, rename="camel"):
    """The file."""

    payload_type: str
    payload: str
    sha256: str
    signatures: tuple[dict[str, Any], ...] = ()


class Bundle:
    """A bundle that was read and found whole."""

    def __init__(self, payload: Payload, sha256: str) -> None:
        self.payload = payload
        self.sha256 = sha256

    @cached_property
    def facts(self) -> Facts:
        """This program's facts, with the bundle's overlays laid over them."""
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
        """Return whether this program's facts are those that the exporting gate had."""
        return self.facts.digest == self.payload.facts

    def snapshot(self) -> Snapshot:
        """What deciding rests on."""
        stored = (
            (*key_of(item.document), item.document, item.revision)
            for item in self.payload.documents
        )
        evidence = tuple(_evidence(run) for run in self.payload.evidence)
        return build(stored, self.facts, self.payload.revision, evidence)


def seal(payload: Payload) -> bytes:
    """Return the bytes of a bundle's file; equal payloads give equal bytes."""
    content = _encode(payload)
    envelope = Envelope(
        PAYLOAD_TYPE, base64.b64encode(content).decode(), hashlib.sha256(content).hexdigest()
    )
    return msgspec.json.format(_encode(envelope), indent=1) + b"\n"


def load_bundle(path: str | Path) -> Bundle:
    """Read a bundle.

    Raises:
        BadInput: the file cannot be read, is not a bundle, is damaged, or of another format.
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
    """Read a bundle's bytes.

    Raises:
        BadInput: as `load_bundle`.
    """
    try:
        envelope = msgspec.json.decode(content, type=Envelope)
    except (msgspec.MsgspecError, *NOT_JSON) as error:
        raise _bad(f"{name} is not a bundle, or was cut short: {error}", name) from None
    if envelope.payload_type != PAYLOAD_TYPE:
        raise _bad(f"{name} is not a bundle: it holds {envelope.payload_type}", name)
    try:
        payload = base64.b64decode(envelope.payload, validate=True)
    except (binascii.Error, ValueError):
        raise _bad(f"{name} is damaged: its payload is not base64", name) from None
    if hashlib.sha256(payload).hexdigest() != envelope.sha256:
        raise _bad(f"{name} is damaged or was tampered with: its digest does not fit", name)
    return Bundle(_payload(payload, name), envelope.sha256)


def _payload(content: bytes, name: str) -> Payload:
    try:
        stated = msgspec.json.decode(content, type=_Format).format
        if stated != FORMAT:
            hint = "use the version of compatgate that wrote it, or a newer one"
            raise BadInput(
                f"{name} has format {stated}, known is {FORMAT}", field="bundle", hint=hint
            )
        return msgspec.json.decode(content, type=Payload)
    except (msgspec.MsgspecError, *NOT_JSON) as error:
        raise _bad(f"{name} does not hold what a bundle holds: {error}", name) from None


class _Format(Struct):
    format: int


def bundle_evidence(evidence: Sequence[Evidence]) -> tuple[BundledRun, ...]:
    """Judged runs as a bundle carries them, by id."""
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
    hint = "make one with: compatgate bundle export"
    return BadInput(problem, field="bundle", value=str(value), hint=hint)
