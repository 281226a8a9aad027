"""Run ``compatgate facts diff``: compare two sets of facts and the verdicts they give."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.parser import positive_count
from compatgate.kit.cli.terminal import strip_controls

if TYPE_CHECKING:
    import argparse

    from compatgate.catalog.browse import FactSet, RecordChange
    from compatgate.core.whatif_result import EntryChange, PoolChange
    from compatgate.service.gate.snapshot import Snapshot
    from compatgate.service.gate.what_if import DecisionChange, Replay

HELP = "compare two sets of facts: records, verdicts of the matrix, recent decisions"
_EXAMPLES = """\
examples:
  compatgate facts diff shipped ./new-facts
  compatgate facts diff shipped ./new-facts --matrix ./matrix --format json
  compatgate facts diff ./facts ./new-facts --database postgresql://gate@db/gate --decisions 1000

OLD and NEW: "shipped"; overlays, separated like PATH; or a whole folder of facts, such as
that of another release. Evaluates every entry in use on every target with both sets, and
re-evaluates the newest decisions of the database. Stores nothing.

exit status: 0 no verdict gets worse, 1 a verdict gets worse, 2 bad input
"""
_MAX_LINES = 40
_LONGEST_VALUE = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: two sets of facts, and the matrix to evaluate."""
    from compatgate.kit.cli.options import add_database, add_format

    parser.epilog = _EXAMPLES
    parser.add_argument(
        "old", metavar="OLD", help="facts to compare: shipped, overlays, or a folder"
    )
    parser.add_argument("new", metavar="NEW", help="facts to compare with")
    parser.add_argument(
        "--matrix",
        metavar="FILE|DIR",
        action="append",
        default=[],
        help="matrix files to evaluate instead of the stored matrix; may be repeated",
    )
    add_database(parser)
    parser.add_argument(
        "--decisions",
        metavar="N",
        type=positive_count,
        default=200,
        help="number of recent decisions to re-evaluate (default: 200)",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and print; return 1 when a verdict gets worse."""
    from compatgate.catalog.browse import compare_sets, open_set

    old, new = open_set(args.old), open_set(args.new)
    records = compare_sets(old, new)
    entries, unusable, replayed = _verdicts(args, old, new)
    if args.format == "json":
        print_json(_document(old, new, records, entries, unusable, replayed))
    else:
        lines = [
            *_record_lines(records),
            *_entry_lines(entries, unusable),
            *_decision_lines(replayed),
        ]
        print("\n".join(map(strip_controls, lines)))
        if entries is None:
            hint = "name a matrix with --matrix, or a database with --database"
            print(f"no verdicts were compared: {hint}", file=sys.stderr)
    return 1 if _gets_worse(entries or {}, replayed) else 0


# --- verdicts ------------------------------------------------------------------------------

Entries = Mapping[str, Sequence["EntryChange"]]


def _verdicts(
    args: argparse.Namespace, old: FactSet, new: FactSet
) -> tuple[Entries | None, dict[str, str], Replay | None]:
    """Evaluate matrix and decisions with both sets; None without a matrix or decisions."""
    from compatgate.kit import clock
    from compatgate.service.gate.what_if import compare_entries, read_snapshots

    if args.matrix and args.database:
        raise BadInput("cannot be combined", field="--matrix and --database")
    if args.matrix:
        from compatgate.documents.sources import read_paths

        sides = read_snapshots(read_paths(args.matrix), old.facts, new.facts)
        return compare_entries(*sides, clock.now()), _unusable_targets(*sides), None
    if not _database_exists(args.database):
        return None, {}, None
    return _compare_in_database(args, old, new)


def _database_exists(named: str | None) -> bool:
    """Tell whether a database is named, or the user's database exists."""
    from pathlib import Path

    from compatgate.kit.database.database import ENVIRONMENT, resolve_url

    if named or os.environ.get(ENVIRONMENT):
        return True
    return Path(str(resolve_url(None).database)).exists()


def _compare_in_database(
    args: argparse.Namespace, old: FactSet, new: FactSet
) -> tuple[Entries, dict[str, str], Replay]:
    from compatgate.kit import clock
    from compatgate.service.gate.snapshot_reader import Snapshots
    from compatgate.service.gate.what_if import compare_entries, replay_decisions
    from compatgate.service.gate_client import open_gate

    now = clock.now()
    with open_gate(args, overlays=()) as gate:
        before, after = (Snapshots(gate.database, side.facts).current() for side in (old, new))
        entries = compare_entries(before, after, now)
        replayed = replay_decisions(gate.database, before, after, now, most=args.decisions)
    return entries, _unusable_targets(before, after), replayed


def _unusable_targets(before: Snapshot, after: Snapshot) -> dict[str, str]:
    """Return the targets that one of the sets cannot resolve, with the reason."""
    return {**before.unusable, **after.unusable}


def _gets_worse(entries: Entries, replayed: Replay | None) -> bool:
    """Tell whether a verdict is more severe than before."""
    worse = any(e.change in ("breaks", "worsens") for found in entries.values() for e in found)
    return worse or any(change.is_worse for change in (replayed.changes if replayed else ()))


# --- JSON ----------------------------------------------------------------------------------


def _document(
    old: FactSet,
    new: FactSet,
    records: Sequence[RecordChange],
    entries: Entries | None,
    unusable: dict[str, str],
    replayed: Replay | None,
) -> dict[str, Any]:
    changed = [
        {"target": target, **entry.to_json()}
        for target, found in (entries or {}).items()
        for entry in found
        if _changed_pools(entry)
    ]
    return {
        "old": {"name": old.name, "facts": old.facts.digest},
        "new": {"name": new.name, "facts": new.facts.digest},
        "records": records,
        "entries": None
        if entries is None
        else {
            "judged": sum(map(len, entries.values())),
            "targets": len(entries),
            "changed": changed,
            "unusable": unusable,
        },
        "decisions": None
        if replayed is None
        else {
            "read": replayed.decisions,
            "verdicts": replayed.asked,
            "changed": [change.to_json() for change in replayed.changes],
            "not_asked": replayed.left,
        },
    }


# --- text ----------------------------------------------------------------------------------

_SIGNS = {"add": "+", "change": "~", "remove": "-"}


def _record_lines(records: Sequence[RecordChange]) -> Iterator[str]:
    count = len(records)
    yield "facts: 1 record differs" if count == 1 else f"facts: {count or 'no'} records differ"
    for change in records[:_MAX_LINES]:
        name = " ".join(filter(None, (change.facts, change.part, change.key)))
        yield f"  {_SIGNS[change.action]} {name}"
        for field in change.fields:
            yield f"      {field.path}: {_shorten(field.before)} -> {_shorten(field.after)}"
    if count > _MAX_LINES:
        yield f"  and {count - _MAX_LINES} more (--format json)"


def _shorten(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _entry_lines(entries: Entries | None, unusable: Mapping[str, str]) -> Iterator[str]:
    if entries is None:
        return
    changed = [(t, e) for t, found in entries.items() for e in found if _changed_pools(e)]
    total = sum(map(len, entries.values()))
    count = len(changed) or "none"
    yield f"matrix: {count} of {total} entries in use change on {len(entries)} targets"
    for target, entry in changed:
        for pool in _changed_pools(entry):
            yield (
                f"  {target} {entry.entry} on {pool.pool}: {pool.before.verdict} -> "
                f"{pool.after.verdict} ({pool.change})"
            )
            for finding in pool.lost[:3]:
                yield f"      {finding.rule} {finding.message}"
    for target, why in unusable.items():
        yield f"  {target} could not be evaluated: {why}"


def _changed_pools(entry: EntryChange) -> list[PoolChange]:
    return [
        pool
        for pool in entry.pools
        if pool.change != "same" or pool.before.verdict != pool.after.verdict
    ]


def _decision_lines(replayed: Replay | None) -> Iterator[str]:
    if replayed is None:
        return
    count = len(replayed.changes)
    yield (
        f"decisions: {count or 'none'} of {replayed.asked} verdicts change "
        f"({replayed.decisions} decisions)"
    )
    for change in replayed.changes[:_MAX_LINES]:
        yield _decision_line(change)
    if count > _MAX_LINES:
        yield f"  and {count - _MAX_LINES} more (--format json)"
    for name, why in replayed.left.items():
        yield f"  {name} could not be re-evaluated: {why}"


def _decision_line(change: DecisionChange) -> str:
    names = ",".join(f"{name}={value}" for name, value in list(change.stack.items())[:4])
    rules = f" by {', '.join(change.rules)}" if change.rules else ""
    stops = {True: "allowed", False: "stopped"}
    return (
        f"  {change.verdict_id} {change.target or 'a pool'} {names}: {change.before} "
        f"({stops[change.allowed_before]}) -> {change.after} ({stops[change.allowed_after]})"
        f"{rules}, {change.times} times"
    )
