"""The parts of ``compatgate matrix`` that deal in files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from compatgate.cli.database import authorship, print_json
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
    count = len(result.changes)
    if result.revision is not None:
        print(f"revision {result.revision}: {count} changed, {result.unchanged} as they were")
    elif count:
        print(f"dry run: {count} would change, {result.unchanged} would not")
    else:
        print(f"nothing to change: all {result.unchanged} are stored as they are")
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
    from compatgate.store.clock import parse_moment

    if text.isdecimal() and len(text) < len("20261103"):
        return int(text)
    try:
        when = parse_moment(text, field=option, end_of_day=True)
    except BadInput as error:
        error.hint = f"a revision's number, or a time {error.hint}"
        raise
    return gate.matrix.revision_at(when)
