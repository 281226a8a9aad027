"""Import, export and compare files of the matrix.

All files are sent as one text, so that they make one revision; mistakes name file and line.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compatgate.documents.sources import DocumentProblem, Problems, Source, read_paths
from compatgate.documents.text import as_yaml, read_nodes, to_json, to_yaml
from compatgate.errors import BadInput, CompatgateError, ManyProblems
from compatgate.kit.cli.options import reason_of, revision_or_time
from compatgate.kit.cli.output import print_json, write_output
from compatgate.service.cli.gate import Body, ask

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from compatgate.client import Client

FILE = "<files>"
"""Name of the joined text in errors of the gate."""
_PLACE = re.compile(re.escape(FILE) + r":(\d+)")
_BEGUN = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*(---(?:\s|$)|%)")
"""The start of a text that has its own document marker."""


class Together(Struct, frozen=True):
    """Several files, joined to one text.

    Attributes:
        text: a YAML stream.
        files: names, in order.
        starts: first line of each file in the text, from 1.
    """

    text: str
    files: tuple[str, ...]
    starts: tuple[int, ...]
    file: str = FILE

    def locate_errors(self, error: ManyProblems) -> ManyProblems:
        """Return the error with the files and lines of its mistakes."""
        return ManyProblems(error.problem, [self._locate(problem) for problem in error.problems])

    def _locate(self, problem: CompatgateError) -> CompatgateError:
        if not isinstance(problem, DocumentProblem) or problem.file != FILE:
            return problem
        file, line = self.locate_line(problem.line or 1)
        moved = DocumentProblem(
            self._locate_text(problem.problem),
            file=file,
            line=line if problem.line else None,
            document=problem.document,
            value=problem.value,
            hint=self._locate_text(problem.hint),
        )
        moved.field = problem.field
        return moved

    def locate_line(self, line: int) -> tuple[str, int]:
        """Return the file and its line for a line of the text."""
        index = bisect_right(self.starts, line) - 1
        return self.files[index], line - self.starts[index] + 1

    def _locate_text(self, text: str) -> str:
        return _PLACE.sub(lambda m: ":".join(map(str, self.locate_line(int(m[1])))), text)


def join(sources: Sequence[Source]) -> Together:
    """Join several files to one text; each file starts a new document.

    Raises:
        ManyProblems: syntax errors, which would hide mistakes in later files.
    """
    _check(sources)
    parts: list[str] = []
    starts: list[int] = []
    line = 1
    for source in sources:
        text = as_yaml(source.text)
        if parts:
            between = "\n...\n" if _BEGUN.match(text) else "\n...\n---\n"
            parts.append(between)
            line += between.count("\n")
        starts.append(line)
        parts.append(text)
        line += text.count("\n")
    return Together("".join(parts), tuple(source.file for source in sources), tuple(starts))


def _check(sources: Sequence[Source]) -> None:
    problems = Problems()
    for source in sources:
        for _ in read_nodes(source, problems):
            pass
    problems.raise_if_any()


_SIGNS = {"create": "+", "change": "~", "delete": "-"}


def import_files(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix import``."""
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
        print(f"revision {result['revision']}: {len(changes)} changed, {unchanged} unchanged")
    elif changes:
        print(f"dry run: {len(changes)} would change, {unchanged} would not")
    else:
        print(f"nothing to change: all {unchanged} documents are up to date")
    return 0


def _import(args: argparse.Namespace, gate: Client) -> Body:
    """Import files as one revision; mistakes name their files."""
    from compatgate.client.operations import Operations

    why = reason_of(args, f"matrix import {' '.join(args.files)}")
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
        raise whole.locate_errors(error) from None


def _note_ended(changes: Iterable[Body]) -> None:
    """Warn about expired waivers: a wrong year would otherwise show up as a denial."""
    from compatgate.kit.clock import today

    for change in changes:
        after = change["after"]
        expires = after["spec"].get("expires") if after else None
        if expires and expires < today().isoformat():
            text = f"note: {change['kind']} {change['name']} ended on {expires}: it waives nothing"
            print(text, file=sys.stderr)


def example() -> int:
    """Run ``matrix example``."""
    from compatgate.resources import matrix_dir

    folder = matrix_dir() / "examples"
    texts = [(folder / f"{name}.yaml").read_text() for name in ("targets", "entries", "waivers")]
    print("---\n".join(texts), end="")
    return 0


def export(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix export``."""
    revision = _revision(gate, args.at, "--at") if args.at else None
    bodies = gate.export_matrix(revision=revision)
    text = to_yaml(bodies) if args.format == "yaml" else to_json(bodies)
    write_output(args.output, text.encode())
    return 0


def diff(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix diff``."""
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
    """Compare the gate's matrix with files, in this process."""
    import msgspec

    from compatgate.catalog import load_facts
    from compatgate.documents.read import read_documents
    from compatgate.documents.specs import TYPES, compare

    sources = read_paths(paths)
    known = gate.export_matrix()
    names = [body["metadata"]["name"] for body in known if body["kind"] == "Target"]
    wanted = read_documents(sources, load_facts().gpus, names)
    stored = [msgspec.convert(body, TYPES[body["kind"]]) for body in known]
    return [change.to_json() for change in compare(stored, wanted)]


def print_changes(changes: Iterable[Body]) -> None:
    """Print changes as text: one line per document, one line per field."""
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
    """Return the number of a revision, given by its number or by a time."""
    which = revision_or_time(text, option)
    return which if isinstance(which, int) else _latest(gate, until=which)


def _latest(gate: Client, until: datetime | None = None) -> int:
    """Return the number of the latest revision, now or at a time; 0 before the first."""
    rows = gate.list_revisions(until=until).page(size=1).items
    return rows[0].number if rows else 0
