"""Check who may change the matrix, and hold blessings to the evidence that policies ask for.

The gate asks for the evidence again with each question; this tells whoever blesses that it is
missing, while they can still do something about it.

Entries and waivers decide what may run, so each of their changes needs ``bless``. A change of a
target needs it where the target then enforces less; ``operate`` is enough for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy.orm import Session

from compatgate.core.entry_evidence import index_runs, judge_candidate
from compatgate.core.facts import Facts
from compatgate.core.request import Target
from compatgate.documents.convert import to_entry, to_target
from compatgate.documents.specs import EntryDoc, TargetDoc, kind_of, target_refs
from compatgate.documents.weakening import find_weakened, scope_of, takes_pods
from compatgate.errors import BadInput, Conflict
from compatgate.kit import clock
from compatgate.kit.principal import AccessRefused, Principal
from compatgate.service.matrix.documents.repository import DocumentLookup
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.documents.schemas import NeededEvidenceBody
from compatgate.service.matrix.snapshots.snapshot import Snapshot

_MAX_NAMED = 5
"""Missing runs that a refusal names."""
_HINT = "ask an administrator of the gate to run: compatgate token create --name NAME --scope bless"


class EvidenceNeeded(Conflict):
    """A policy asks for canary evidence that a blessed entry lacks."""

    slug = "evidence-needed"


class EvidenceState(Struct, frozen=True):
    """The canary evidence for the entries that edits bless; ``runs``: that passed and count."""

    runs: tuple[str, ...] = ()
    needs: tuple[NeededEvidenceBody, ...] = ()

    @property
    def required(self) -> tuple[NeededEvidenceBody, ...]:
        """Return the needs that stand in the way of a blessing."""
        return tuple(need for need in self.needs if need.required)

    def describe_required(self) -> str:
        """Return the first of the needs that stand in the way, in words."""
        required = self.required
        more = f"; and {len(required) - _MAX_NAMED} more" if len(required) > _MAX_NAMED else ""
        return "; ".join(need.describe() for need in required[:_MAX_NAMED]) + more


def list_blessed(edits: Iterable[Edit]) -> list[EntryDoc]:
    """Return the entries that edits bless, or whose scope they change while blessed."""
    blessed = []
    for before, after in ((edit.before, edit.after) for edit in edits):
        if isinstance(after, EntryDoc) and after.spec.status == "blessed":
            was = before.spec if isinstance(before, EntryDoc) else None
            if not was or was.status != "blessed" or scope_of(was) != scope_of(after.spec):
                blessed.append(after)
    return blessed


def assess_evidence(edits: Sequence[Edit], snapshot: Snapshot, facts: Facts) -> EvidenceState:
    """Return the evidence for the entries that edits bless, on the targets after the edits."""
    blessed = list_blessed(edits)
    if not blessed:
        return EvidenceState()
    targets = _targets_after(edits, snapshot, facts)
    index = index_runs(snapshot.matrix.evidence)
    now, suites = clock.now().timestamp(), snapshot.matrix.suites
    runs: dict[str, None] = {}
    needs: list[NeededEvidenceBody] = []
    for document in blessed:
        entry = to_entry(document, facts.gpus, snapshot.revision)
        found = judge_candidate(entry, targets.values(), index, now, suites)
        runs.update((run, None) for run in found.runs)
        for need in found.needs:
            asks = targets[need.target].policy.canary.require
            required = asks and document.spec.evidence_override is None
            needs.append(NeededEvidenceBody(entry=entry.name, required=required, **asdict(need)))
    return EvidenceState(tuple(runs), tuple(dict.fromkeys(needs)))


def _targets_after(edits: Sequence[Edit], snapshot: Snapshot, facts: Facts) -> dict[str, Target]:
    targets = dict(snapshot.targets)
    for edit in edits:
        if isinstance(edit.after, TargetDoc):
            try:
                targets[edit.after.metadata.name] = to_target(edit.after, facts.gpus)
            except BadInput:  # a GPU that the facts no longer know: nothing can run there
                targets.pop(edit.after.metadata.name, None)
        elif isinstance(edit.before, TargetDoc):
            targets.pop(edit.before.metadata.name, None)
    return targets


def require_evidence(edits: Sequence[Edit], snapshot: Snapshot, facts: Facts) -> None:
    """Refuse to bless entries directly without the evidence that a policy asks for."""
    state = assess_evidence(edits, snapshot, facts)
    if state.required:
        raise EvidenceNeeded(
            "a policy requires canary runs before this is blessed: " + state.describe_required(),
            field="spec.evidenceOverride",
            value=state.required[0].entry,
            hint="keep the entry a candidate until these suites have passed, or state in"
            " spec.evidenceOverride why it is blessed without them",
        )


def check_edits(session: Session, edits: Sequence[Edit], author: Principal | None) -> None:
    """Refuse edits that their author may not make; one is enough to refuse all.

    ``author`` is None for the installation itself, at its first start.
    """
    if author is None:
        return
    lookup = DocumentLookup(session)
    require_reach(lookup, edits, author)
    if not author.may("bless"):
        for edit in edits:
            _refuse_weakening(edit, list_taken(lookup, edit), author)


def require_reach(lookup: DocumentLookup, edits: Iterable[Edit], author: Principal) -> None:
    """Refuse an author who does not reach every target that the edits concern."""
    if author.targets is None:
        return
    for edit in edits:
        author.require_targets(targets_of(edit))
        for name in list_taken(lookup, edit):
            if not author.reaches(name):
                own = edit.document.metadata.name
                raise author.outside(f"{name}, from which {own} could take pods,", name)


def concerned_targets(lookup: DocumentLookup, edit: Edit) -> list[str]:
    """Return the targets that an edit concerns, with those that it can take pods from."""
    return [*targets_of(edit), *list_taken(lookup, edit)]


def list_taken(lookup: DocumentLookup, edit: Edit) -> list[str]:
    """Return the other stored targets that an edit can take pods from."""
    before, after = edit.before, edit.after
    if not isinstance(after, TargetDoc):
        return []
    former = before if isinstance(before, TargetDoc) else None
    spec, own = after.spec, after.metadata.name
    if former and (former.spec.match, former.spec.policy) == (spec.match, spec.policy):
        return []
    others = (one for one in lookup.targets() if one.metadata.name != own)
    return [one.metadata.name for one in others if takes_pods(former, after, one)]


def targets_of(edit: Edit) -> list[str]:
    """Return the targets that an edit concerns, before and after; ``*`` is all of them."""
    names: list[str] = []
    for side in (edit.before, edit.after):
        if side:
            names += [side.metadata.name] if isinstance(side, TargetDoc) else target_refs(side)
    return list(dict.fromkeys(names))


def _refuse_weakening(edit: Edit, taken: Sequence[str], author: Principal) -> None:
    before, after = edit.before, edit.after
    weakened = f"to {edit.action} it"
    if isinstance(before, TargetDoc) and isinstance(after, TargetDoc):
        fields = find_weakened(before, after)
        weakened = f"to change {', '.join(fields)}" if fields else ""
    if taken and not weakened:
        weakened = f"to take pods from {', '.join(taken[:_MAX_NAMED])}"
    if not weakened:
        return
    kind, name = kind_of(edit.document).lower(), edit.document.metadata.name
    what = f"the token {author.name} lacks the scope bless; the {kind} {name} needs it {weakened}"
    raise AccessRefused(what, principal=author, field="scope", value="bless", hint=_HINT)
