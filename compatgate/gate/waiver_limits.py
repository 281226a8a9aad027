"""Waivers that are new or changed, held against the policies of their targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy.orm import Session

from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.nodes import RawDocument
from compatgate.documents.problems import DocumentProblem, Problems
from compatgate.documents.read import Judge, Read
from compatgate.documents.specs import Document, TargetDoc, WaiverDoc, key_of, to_body
from compatgate.documents.waivers import is_no_more, limit, problems
from compatgate.store import clock, documents


def judge(session: Session) -> Judge:
    """What keeps waivers from being stored; those that are stored as they are stay as they are."""

    def found(read: Read) -> Iterator[DocumentProblem]:
        waivers = [(raw, one) for raw, one in read if isinstance(one, WaiverDoc)]
        stored = documents.find(session, [key_of(one) for _, one in waivers])
        changed = [
            (raw, one) for raw, one in waivers if not is_no_more(stored.get(key_of(one)), one)
        ]
        targets = _targets(session, [one for _, one in changed], [one for _, one in read])
        for raw, one in changed:
            yield from problems(raw, one, limit(one.spec.targets, targets, clock.now()))

    return found


def check(session: Session, imported: Sequence[Document]) -> None:
    """Judge waivers again as they are written: policies may have changed since they were read.

    Raises:
        ManyProblems: one must not be stored.
    """
    found = Problems()
    read = [(RawDocument(None, to_body(d)), d) for d in imported if isinstance(d, WaiverDoc)]
    others = [(RawDocument(None, None), d) for d in imported if isinstance(d, TargetDoc)]
    for problem in judge(session)([*read, *others]) if read else ():
        found.add(problem)
    found.raise_if_any()


def _targets(
    session: Session, waivers: Sequence[WaiverDoc], read: Sequence[Document]
) -> dict[str, TargetDoc]:
    """The targets that waivers name, as they will be."""
    names = {name for waiver in waivers for name in waiver.spec.targets}
    if ANY_TARGET in names:
        stored = [document for document, _ in documents.load(session, "Target")]
    else:
        stored = list(documents.find(session, [("Target", name) for name in names]).values())
    targets = [one for one in (*stored, *read) if isinstance(one, TargetDoc)]
    return {one.metadata.name: one for one in targets}
