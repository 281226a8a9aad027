"""Hold the matrix and the evidence in memory, immutable and indexed for answers.

Of all judged runs only the latest of each kind counts. Memory grows with the number of tested
stacks, not with the number of runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryIndex, Evidence, Matrix, Target, Waiver
from compatgate.documents.convert import many_objects, to_entry, to_target, to_waiver
from compatgate.documents.sources import did_you_mean
from compatgate.documents.specs import Document, EntryDoc, Kind, TargetDoc, WaiverDoc
from compatgate.errors import BadInput, NotFound, Unavailable

EvidenceKind = tuple[str, str, str, bool, tuple[tuple[str, str], ...]]
"""Suite, SKU, driver, whether for development, and the components: what rules compare."""


def kind_of(run: Evidence) -> EvidenceKind:
    """Return the kind of a run, which does not depend on its outcome."""
    components = tuple(sorted((name, version.text) for name, version in run.components.items()))
    return (run.suite, run.sku, run.driver.text, run.development, components)


def newest(runs: Iterable[Evidence], known: Iterable[Evidence] = ()) -> tuple[Evidence, ...]:
    """Return the latest judged run of each kind.

    Rules look for the latest run on a stack, and all runs of one kind are about the same stacks.
    An older run can therefore decide nothing.

    Args:
        runs: in the order of their arrival.
        known: earlier runs.
    """
    found: dict[EvidenceKind, Evidence] = {kind_of(run): run for run in known}
    for run in runs:
        if run.outcome == "inconclusive":
            continue
        kind = kind_of(run)
        latest = found.get(kind)
        if latest is None or run.finished >= latest.finished:
            found.pop(kind, None)
            found[kind] = run
    return tuple(found.values())


Version = tuple[Kind, str, Document | None, int]
"""Kind, name and content of a document (None: deleted), and the revision of that version."""


class Snapshot(Struct, frozen=True):
    """The basis of answers at one revision.

    Attributes:
        targets: by name, resolved.
        documents: of the targets, for labels and match.
        entries: by name; ``matrix`` has their index.
        waivers: by name; also in ``matrix``.
        unusable: why the facts cannot resolve a stored target, by name.
        evidence: number of the latest judged run; 0: there is none.
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

    def target(self, name: str) -> Target:
        """Return a target by name.

        Raises:
            NotFound: no target has that name; suggests similar names.
            Unavailable: its document names a GPU that the facts no longer know.
        """
        if found := self.targets.get(name):
            return found
        if why := self.unusable.get(name):
            raise Unavailable(f"the target {name!r} cannot be used: {why}", field="target")
        hint = did_you_mean(name, self.targets)
        raise NotFound(f"there is no target {name!r}", field="target", value=name, hint=hint)


def build(
    versions: Iterable[Version],
    facts: Facts,
    revision: int,
    evidence: tuple[Evidence, ...] = (),
) -> Snapshot:
    """Build a snapshot of documents.

    Args:
        versions: of every document.
        facts: to resolve GPUs with.
        revision: of the matrix.
        evidence: judged runs.
    """
    nothing = Snapshot(0, facts, Matrix(evidence=evidence))
    return advance(nothing, versions, revision)


def advance(snapshot: Snapshot, versions: Iterable[Version], revision: int) -> Snapshot:
    """Return the snapshot of a later revision; only changed documents are resolved again.

    Args:
        snapshot: to start from; it does not change.
        versions: of every changed document, the latest of each.
        revision: of the matrix.
    """
    new = replace(
        snapshot,
        revision=revision,
        targets=dict(snapshot.targets),
        documents=dict(snapshot.documents),
        entries=dict(snapshot.entries),
        waivers=dict(snapshot.waivers),
        unusable=dict(snapshot.unusable),
    )
    with many_objects():
        for version in versions:
            _set(new, *version)
        matrix = Matrix(
            revision,
            EntryIndex(new.entries.values()),
            tuple(new.waivers.values()),
            snapshot.matrix.evidence,
        )
    return replace(new, matrix=matrix)


def with_evidence(snapshot: Snapshot, runs: Iterable[Evidence], number: int) -> Snapshot:
    """Return the snapshot with more judged runs.

    Args:
        snapshot: to start from; it does not change.
        runs: new since the snapshot, in order.
        number: of the last run.
    """
    old = snapshot.matrix
    found = newest(runs, old.evidence)
    matrix = Matrix(old.revision, old.entries, old.waivers, found)
    return replace(snapshot, matrix=matrix, evidence=number)


def _set(new: Snapshot, kind: Kind, name: str, document: Document | None, revision: int) -> None:
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
