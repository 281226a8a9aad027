"""The parts of ``compatgate matrix`` that deal in files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from compatgate.cli.database import print_json, reason, revision_or_time
from compatgate.cli.gate import Body, ask
from compatgate.cli.matrix_text import join
from compatgate.cli.output import write_output
from compatgate.documents.problems import DocumentProblem
from compatgate.documents.sources import read_paths
from compatgate.documents.write import to_json, to_yaml
from compatgate.errors import BadInput, CompatgateError, ManyProblems

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from compatgate.client import Client

_SIGNS = {"create": "+", "change": "~", "delete": "-"}


def import_files(args: argparse.Namespace, gate: Client) -> int:
    """``matrix import``."""
    try:
        result = _import(args, gate)
    except ManyProblems as error:
        if args.format != "json":
            raise
        print_json({"error": error.problem, "problems": [_problem(p) for p in error.problems]})
        return error.exit_code
    if args.format == "json":
        print_json({**result, "dry_run": args.dry_run})
        return 0
    changes, unchanged = result["changes"], result["unchanged"]
    print_changes(changes)
    _note_ended(changes)
    if result["revision"] is not None:
        print(f"revision {result['revision']}: {len(changes)} changed, {unchanged} as they were")
    elif changes:
        print(f"dry run: {len(changes)} would change, {unchanged} would not")
    else:
        print(f"nothing to change: all {unchanged} are stored as they are")
    return 0


def _import(args: argparse.Namespace, gate: Client) -> Body:
    """Import files as one text, so that they make one revision; mistakes name their files."""
    from compatgate.client.operations import Operations

    why = reason(args, f"matrix import {' '.join(args.files)}")
    whole = join(read_paths(args.files))
    try:
        return ask(
            gate,
            Operations.import_matrix,
            whole.text,
            reason=why,
            dry_run=args.dry_run,
            file=whole.file,
        )
    except ManyProblems as error:
        raise whole.placed(error) from None


def _note_ended(changes: Iterable[Body]) -> None:
    """Waivers that have no effect any more, lest a wrong year is found out by a denial."""
    from compatgate.store.clock import today

    for change in changes:
        after = change["after"]
        expires = after["spec"].get("expires") if after else None
        if expires and expires < today().isoformat():
            text = f"note: {change['kind']} {change['name']} ended on {expires}: it waives nothing"
            print(text, file=sys.stderr)


def example() -> int:
    """``matrix example``."""
    from compatgate.resources import matrix_dir

    folder = matrix_dir() / "examples"
    texts = [(folder / f"{name}.yaml").read_text() for name in ("targets", "entries", "waivers")]
    print("---\n".join(texts), end="")
    return 0


def export(args: argparse.Namespace, gate: Client) -> int:
    """``matrix export``."""
    revision = _revision(gate, args.at, "--at") if args.at else None
    bodies = gate.export_matrix(revision=revision)
    text = to_yaml(bodies) if args.format == "yaml" else to_json(bodies)
    write_output(args.output, text.encode())
    return 0


def diff(args: argparse.Namespace, gate: Client) -> int:
    """``matrix diff``."""
    if bool(args.files) == bool(args.older) or (args.files and args.newer):
        hint = "matrix diff FILE..., or matrix diff --from N [--to N]"
        raise BadInput("give either files or revisions to compare", hint=hint)
    if args.files:
        changes = _diff_files(args.files, gate)
    else:
        older = _revision(gate, args.older, "--from")
        newer = _revision(gate, args.newer, "--to") if args.newer else _latest(gate)
        changes = _diff(older, newer, gate)
    if args.format == "json":
        print_json(changes)
    else:
        print_changes(changes)
        if not changes:
            print("no differences")
    return 1 if changes and args.exit_code else 0


def _diff(older: int, newer: int, gate: Client) -> list[Body]:
    from compatgate.client.operations import Operations

    found: list[Body] = ask(gate, Operations.diff_revisions, newer, older=older)["changes"]
    return found


def _diff_files(paths: Sequence[str], gate: Client) -> list[Body]:
    """Return what would turn the gate's matrix into that of some files; compared here."""
    import msgspec

    from compatgate.catalog import load_facts
    from compatgate.documents.changes import compare
    from compatgate.documents.read import read_documents
    from compatgate.documents.specs import TYPES

    sources = read_paths(paths)
    known = gate.export_matrix()
    names = [body["metadata"]["name"] for body in known if body["kind"] == "Target"]
    wanted = read_documents(sources, load_facts().gpus, names)
    stored = [msgspec.convert(body, TYPES[body["kind"]]) for body in known]
    return [change.to_json() for change in compare(stored, wanted)]


def print_changes(changes: Iterable[Body]) -> None:
    """Print changes for people: one line a document, one a field."""
    for change in changes:
        print(f"{_SIGNS[change['action']]} {change['kind']} {change['name']}")
        for field in change["fields"]:
            print(f"    {field['path']}: {_value(field['before'])} -> {_value(field['after'])}")


def _value(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)


def _problem(problem: CompatgateError) -> dict[str, Any]:
    if isinstance(problem, DocumentProblem):
        return problem.to_json()
    return {"problem": problem.problem, "field": problem.field, "hint": problem.hint or None}


def _revision(gate: Client, text: str, option: str) -> int:
    """A revision by its number, or by a time: the one that held then."""
    which = revision_or_time(text, option)
    return which if isinstance(which, int) else _latest(gate, until=which)


def _latest(gate: Client, until: datetime | None = None) -> int:
    """The number of the latest revision, or of the latest until a time; 0 before the first."""
    rows = gate.list_revisions(until=until).page(size=1).items
    return rows[0].number if rows else 0
