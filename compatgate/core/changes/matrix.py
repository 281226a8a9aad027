"""Changes towards a blessed entry of the matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from compatgate.core.changes.common import described
from compatgate.core.components import in_order
from compatgate.core.constraints import Constraint
from compatgate.core.rules.base import Candidate
from compatgate.core.versions import Version, show

if TYPE_CHECKING:
    from compatgate.core.case import Case
    from compatgate.core.matrix import Entry


def nearest_entry(case: Case, replacing: Entry | None = None) -> Iterator[Candidate]:
    """Change what differs from the entry that replaces one, then from the nearest blessed one."""
    entries = case.matrix.entries.of(case.target.name)
    if replacing and replacing.replacement:
        for entry in entries:
            if entry.name == replacing.replacement and entry.status == "blessed":
                yield from _towards(case, entry)
    if case.nearest:
        yield from _towards(case, case.nearest)


def _towards(case: Case, entry: Entry) -> Iterator[Candidate]:
    change: dict[str, Any] = {}
    for name in in_order(entry.differences(case.stack, case.pool)):
        version = _version_in(case, name, entry.components[name])
        if version is None:
            return
        change[name] = version
    if change:
        yield Candidate(change, f"{described(change)} (entry {entry.name})")


def _version_in(case: Case, name: str, constraint: Constraint) -> str | None:
    """What a framework of the stack is pinned to, else the newest that the constraint allows."""
    for found in case.built:
        pin = found.build.pins.get(name) if found.build else None
        if pin and pin.floor and not pin.optional and constraint.allows(pin.floor):
            return show(pin.floor.at(3))
    for version in sorted(_known_versions(case, name), reverse=True):
        if constraint.allows(version):
            return version.text
    for clause in constraint.clauses:
        if clause.operator in (">=", "==", "~=", "==*") and constraint.allows(clause.version):
            return clause.version.text.removesuffix(".*")
    return None


def _known_versions(case: Case, name: str) -> Iterable[Version]:
    facts = case.facts
    if name == "driver":
        toolkits = facts.cuda_driver.toolkits
        branches = facts.driver_branches.branches.values()
        own = [t.driver[case.os] for t in toolkits if case.os in t.driver]
        return [*own, *(b.last for b in branches if b.last and case.os == "linux")]
    if name == "cuda":
        return [t.version for t in facts.cuda_driver.toolkits]
    if name == "cudnn":
        return [r.version for r in facts.cudnn.releases]
    if name == "nccl":
        return [r.version for r in facts.nccl.releases]
    table = facts.framework(name)
    return [r.version for r in table.releases] if table else []
