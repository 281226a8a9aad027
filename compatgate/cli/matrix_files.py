"""The parts of ``compatgate matrix`` that deal in files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from compatgate.cli.database import authorship, print_json, revision_or_time
from compatgate.cli.output import write_output
from compatgate.documents.problems import DocumentProblem
from compatgate.documents.sources import read_paths
from compatgate.documents.write import to_json, to_yaml
from compatgate.errors import BadInput, CompatgateError, ManyProblems

if TYPE_CHECKING:
    import argparse

    from compatgate.cli.service import Service
    from compatgate.documents.changes import Change

_SIGNS = {"create": "+", "change": "~", "delete": "-"}


def import_files(args: argparse.Namespace, gate: Service) -> int:
    """``matrix import``."""
    by = authorship(args, f"matrix import {' '.join(args.files)}")
    try:
        result = gate.matrix.import_documents(read_paths(args.files), by, dry_run=args.dry_run)
    except ManyProblems as error:
        if args.format != "json":
            raise
        print_json({"error": error.problem, "problems": [_problem(p) for p in error.problems]})
        return error.exit_code
    if args.format == "json":
        print_json({**result.to_json(), "dry_run": args.dry_run})
        return 0
    print_changes(result.changes)
    _note_ended(result.changes)
    count = len(result.changes)
    if result.revision is not None:
        print(f"revision {result.revision}: {count} changed, {result.unchanged} as they were")
    elif count:
        print(f"dry run: {count} would change, {result.unchanged} would not")
    else:
        print(f"nothing to change: all {result.unchanged} are stored as they are")
    return 0


def _note_ended(changes: Iterable[Change]) -> None:
    """Waivers that have no effect any more, lest a wrong year is found out by a denial."""
    from compatgate.store.clock import today

    for change in changes:
        expires = change.after["spec"].get("expires") if change.after else None
        if expires and expires < today().isoformat():
            text = f"note: {change.kind} {change.name} ended on {expires}: it waives nothing"
            print(text, file=sys.stderr)


def example() -> int:
    """``matrix example``."""
    from compatgate.resources import matrix_dir

    folder = matrix_dir() / "examples"
    texts = [(folder / f"{name}.yaml").read_text() for name in ("targets", "entries", "waivers")]
    print("---\n".join(texts), end="")
    return 0


def export(args: argparse.Namespace, gate: Service) -> int:
    """``matrix export``."""
    revision = _revision(gate, args.at, "--at") if args.at else None
    bodies = gate.matrix.export(revision=revision)
    text = to_yaml(bodies) if args.format == "yaml" else to_json(bodies)
    write_output(args.output, text.encode())
    return 0


def diff(args: argparse.Namespace, gate: Service) -> int:
    """``matrix diff``."""
    if bool(args.files) == bool(args.older) or (args.files and args.newer):
        hint = "matrix diff FILE..., or matrix diff --from N [--to N]"
        raise BadInput("give either files or revisions to compare", hint=hint)
    if args.files:
        changes = gate.matrix.diff_files(read_paths(args.files))
    else:
        older = _revision(gate, args.older, "--from")
        newer = _revision(gate, args.newer, "--to") if args.newer else None
        changes = gate.matrix.diff(older, newer)
    if args.format == "json":
        print_json([change.to_json() for change in changes])
    else:
        print_changes(changes)
        if not changes:
            print("no differences")
    return 1 if changes and args.exit_code else 0


def print_changes(changes: Iterable[Change]) -> None:
    """Changes for people: one line a document, one a field."""
    for change in changes:
        print(f"{_SIGNS[change.action]} {change.kind} {change.name}")
        for field in change.fields:
            print(f"    {field.path}: {_value(field.before)} -> {_value(field.after)}")


def _value(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)


def _problem(problem: CompatgateError) -> dict[str, Any]:
    if isinstance(problem, DocumentProblem):
        return problem.to_json()
    return {"problem": problem.problem, "field": problem.field, "hint": problem.hint or None}


def _revision(gate: Service, text: str, option: str) -> int:
    """A revision by its number, or by a time: the one that held then."""
    which = revision_or_time(text, option)
    return which if isinstance(which, int) else gate.matrix.revision_at(which)
