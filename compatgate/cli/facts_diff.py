"""Run ``compatgate facts diff``: compare two sets of facts and the verdicts they give."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from compatgate.catalog.browse import compare_sets, open_set
from compatgate.cli.gate import open_rooms
from compatgate.core.compare.differences import Subject
from compatgate.core.rule import OUTCOME_RANK
from compatgate.documents.sources import read_paths
from compatgate.documents.specs import key_of
from compatgate.documents.validation import read_documents
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.cli.options import DATABASE, FORMAT
from compatgate.kit.cli.output import print_answer, say, wants_colour, width_of
from compatgate.kit.cli.usage import action
from compatgate.kit.database.database import ENVIRONMENT, resolve_url
from compatgate.kit.sections import text_lines
from compatgate.service.changes.comparison.matrix_sections import report_facts
from compatgate.service.changes.comparison.schemas import EntryWhatIfBody
from compatgate.service.matrix.snapshots.snapshot import Snapshot, build


@action(
    "compare two sets of facts: records, verdicts of the matrix, recent decisions",
    """\
OLD                    facts to compare: shipped, overlays, or a folder
NEW                    facts to compare with
--matrix FILE|DIR ...  matrix files to evaluate instead of the stored matrix; may be repeated
""",
    DATABASE,
    "--decisions N = 200  number of recent decisions to re-evaluate",
    FORMAT,
    epilog="""\
examples:
  compatgate facts diff shipped ./new-facts
  compatgate facts diff shipped ./new-facts --matrix ./matrix --format json
  compatgate facts diff ./facts ./new-facts --database postgresql://gate@db/gate --decisions 1000

OLD and NEW: "shipped"; overlays, separated like PATH; or a whole folder of facts, such as
that of another release. Evaluates every entry in use on every target with both sets, and
re-evaluates the newest decisions of the database. Stores nothing.

exit status: 0 no verdict gets worse, 1 a verdict gets worse, 2 bad input
""",
)
def run(args: argparse.Namespace) -> int:
    """Compare and print; return 1 when a verdict gets worse."""
    if args.matrix and args.database:
        raise BadInput("cannot be combined", field="--matrix and --database")
    old, new = open_set(args.old), open_set(args.new)
    document: dict[str, Any] = {
        "old": {"name": old.name, "facts": old.facts.digest},
        "new": {"name": new.name, "facts": new.facts.digest},
        "records": msgspec.to_builtins(compare_sets(old, new)),
        "entries": None,
        "decisions": None,
    }
    worse = False
    if args.matrix:
        documents = read_documents(read_paths(args.matrix), old.facts.gpus)
        versions = [(*key_of(one), one, 0) for one in documents]
        before, after = (build(versions, side.facts, 0) for side in (old, new))
        worse = _compare(document, before, after, None)
    elif (
        args.database
        or os.environ.get(ENVIRONMENT)
        or Path(str(resolve_url(None).database)).exists()  # the user's database
    ):
        from compatgate.service.changes.comparison.recorded import list_newest_verdicts
        from compatgate.service.matrix.snapshots.reader import Snapshots
        from compatgate.service.runs.evidence.evidence import StoredEvidence

        with open_rooms(args, overlays=()) as rooms:
            before, after = (
                Snapshots(rooms.gate.database, side.facts, StoredEvidence()).current()
                for side in (old, new)
            )
            recorded = list_newest_verdicts(rooms.gate.database, before, after, args.decisions)
        worse = _compare(document, before, after, recorded)
    width, colour = width_of(sys.stdout), wants_colour(sys.stdout)
    _, *lines = text_lines(report_facts(document), width, colour=colour)
    print_answer(args.format, document, "\n".join(lines))
    if document["entries"] is None and args.format != "json":
        hint = "name a matrix with --matrix, or a database with --database"
        say(f"no verdicts were compared: {hint}")
    return 1 if worse else 0


def _compare(
    document: dict[str, Any],
    before: Snapshot,
    after: Snapshot,
    recorded: tuple[list[Subject], int, dict[str, str]] | None,
) -> bool:
    """Add the verdicts of both sets of facts; return whether one gets worse."""
    from compatgate.service.changes.comparison.service import compare_facts, to_wire

    asked, read, unread = recorded or ([], 0, {})
    entries, verdicts = compare_facts(before, after, asked, clock.now())
    document["entries"] = {
        "judged": sum(map(len, entries.values())),
        "targets": len(entries),
        "changed": [
            {"target": target, **to_wire(entry, EntryWhatIfBody)}
            for target, of_target in entries.items()
            for entry in of_target
            if any(pool.change != "same" or pool.before != pool.after for pool in entry.pools)
        ],
        "unusable": {**before.unusable, **after.unusable},
    }
    changed = [one for one in verdicts if one.cases and one.cases[0].effect]
    changed.sort(key=lambda one: (_weigh(one), -one.decisions, one.name))
    if recorded is not None:
        unread = {**unread, **{one.name: one.open[0] for one in verdicts if one.open}}
        document["decisions"] = {
            "read": read,
            "verdicts": len(asked) + len(recorded[2]),
            "changed": [_describe_verdict(one) for one in changed],
            "not_asked": unread,
        }
    every = (entry for of_target in entries.values() for entry in of_target)
    is_worse = any(entry.change in ("breaks", "worsens") for entry in every)
    return is_worse or any(_weigh(one) < 0 for one in changed)


def _weigh(verdict: Subject) -> int:
    """Return how much better a verdict gets; below 0: it gets worse."""
    return OUTCOME_RANK[verdict.before] - OUTCOME_RANK[verdict.after]


def _describe_verdict(verdict: Subject) -> dict[str, Any]:
    (case,) = verdict.cases
    rules = [f.rule for f in case.lost if f.outcome == case.after]
    return {
        "verdict_id": verdict.name,
        "target": verdict.target or None,
        "times": verdict.decisions,
        "before": case.before,
        "after": case.after,
        "allowed_before": case.allowed[0],
        "allowed_after": case.allowed[1],
        "rules": list(dict.fromkeys(rules)),
        "stack": verdict.stack,
    }
