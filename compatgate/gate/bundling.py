"""Making a bundle of what a database holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from compatgate.catalog import open_library
from compatgate.core.facts import Facts
from compatgate.documents.specs import KINDS, key_of
from compatgate.gate.bundle import FORMAT, BundledDocument, Overlay, Payload, bundle_evidence
from compatgate.gate.evidence import newest
from compatgate.store import evidence, revisions
from compatgate.store.clock import iso


def make_payload(
    session: Session, facts: Facts, overlays: Sequence[str] | None, revision: int | None
) -> Payload:
    """What a bundle of one revision holds.

    Args:
        session: to read from.
        facts: that the gate decides with.
        overlays: the fact files that the gate was opened with.
        revision: None: the latest; evidence is always that of now.

    Raises:
        NotFound: there is no such revision.
    """
    number = revisions.latest(session) if revision is None else revision
    made_at = iso(revisions.require(session, number).made_at) if number else None
    found = [
        BundledDocument(document, made)
        for document, made in revisions.documents_at(session, number)
    ]
    found.sort(key=lambda item: (KINDS.index(key_of(item.document)[0]), key_of(item.document)[1]))
    return Payload(
        format=FORMAT,
        revision=number,
        made_at=made_at,
        facts=facts.digest,
        overlays=tuple(
            Overlay(Path(overlay.path).name, Path(overlay.path).read_text(encoding="utf-8"))
            for overlay in open_library(overlays).overlays
        ),
        documents=tuple(found),
        evidence=bundle_evidence(newest(evidence.load(session))),
    )
