"""Import files of the matrix, and say in words what they change; report packages.

All files are sent as one text, so that they make one revision; mistakes name file and line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compatgate.cli.gate.opening import Operations, asking
from compatgate.documents.sources import DocumentProblem, Problems, Source, read_paths
from compatgate.documents.text import convert_json, read_nodes
from compatgate.errors import CompatgateError, ManyProblems
from compatgate.gate_client import Body, ask
from compatgate.kit.cli.options import (
    AUTHORSHIP,
    FORCE,
    FORMAT,
    PLACE,
    note_warnings,
    reason_of,
    revision_or_time,
)
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import today
from compatgate.resources import matrix_dir

if TYPE_CHECKING:
    from compatgate.client import Client


JOINED_NAME = "<files>"
"""Name of the joined text in errors of the gate."""
_LINE_REFERENCE = re.compile(re.escape(JOINED_NAME) + r":(\d+)")
_DOCUMENT_START = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*(---(?:\s|$)|%)")
"""The start of a text that has its own document marker."""


class JoinedFiles(Struct, frozen=True):
    """Several files, joined to one text.

    Attributes:
        text: a YAML stream.
        files: names, in order.
        starts: first line of each file in the text, from 1.
    """

    text: str
    files: tuple[str, ...]
    starts: tuple[int, ...]
    file: str = JOINED_NAME

    def locate_errors(self, error: ManyProblems) -> ManyProblems:
        """Return the error with the files and lines of its mistakes."""
        return ManyProblems(error.problem, [self._locate(problem) for problem in error.problems])

    def _locate(self, problem: CompatgateError) -> CompatgateError:
        if not isinstance(problem, DocumentProblem) or problem.file != JOINED_NAME:
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
        return _LINE_REFERENCE.sub(lambda m: ":".join(map(str, self.locate_line(int(m[1])))), text)


def join_files(sources: Sequence[Source]) -> JoinedFiles:
    """Join several files to one text; each file starts a new document."""
    _check_syntax(sources)
    parts: list[str] = []
    starts: list[int] = []
    line = 1
    for source in sources:
        text = convert_json(source.text)
        if parts:
            between = "\n...\n" if _DOCUMENT_START.match(text) else "\n...\n---\n"
            parts.append(between)
            line += between.count("\n")
        starts.append(line)
        parts.append(text)
        line += text.count("\n")
    return JoinedFiles("".join(parts), tuple(source.file for source in sources), tuple(starts))


def _check_syntax(sources: Sequence[Source]) -> None:
    problems = Problems()
    for source in sources:
        for _ in read_nodes(source, problems):
            pass
    problems.raise_if_any()


@action(
    "import",
    "create or change the documents in files, all or none",
    """\
files: FILE|DIR|- ...  YAML or JSON files, folders of them, or "-" for standard input
--dry-run              show what would change
""",
    FORCE,
    AUTHORSHIP,
    FORMAT,
    PLACE,
)
@asking(make=True)
def import_files(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix import``."""
    try:
        result = _import_joined(args, gate)
    except ManyProblems as error:
        if args.format != "json":
            raise
        print_json({"error": error.problem, "problems": [_problem_body(p) for p in error.problems]})
        return error.exit_code
    if args.format == "json":
        print_json({**result, "dry_run": args.dry_run})
        return 0
    print_changes(result["changes"])
    note_warnings(result.get("warnings", ()))
    note_expired(result["changes"])
    for line in (*describe_preview(result), describe_result(result)):
        print(line)
    return 0


def _import_joined(args: argparse.Namespace, gate: Client) -> Body:
    """Import files as one revision; mistakes name their files."""
    why = reason_of(args, f"matrix import {' '.join(args.files)}")
    whole = join_files(read_paths(args.files))
    try:
        return ask(
            gate,
            Operations.import_matrix,
            whole.text,
            reason=why,
            dry_run=args.dry_run,
            force=args.force or None,
            file=whole.file,
        )
    except ManyProblems as error:
        raise whole.locate_errors(error) from None


def note_expired(changes: Iterable[Body]) -> None:
    """Warn about expired waivers: a wrong year would otherwise show up as a denial."""
    for change in changes:
        after = change["after"]
        expires = after["spec"].get("expires") if after else None
        if expires and expires < today().isoformat():
            text = f"note: {change['kind']} {change['name']} ended on {expires}: it waives nothing"
            print(text, file=sys.stderr)


@action("example", "print an example matrix to start from")
def print_example(_: argparse.Namespace) -> int:
    """Run ``matrix example``."""
    folder = matrix_dir() / "examples"
    texts = [(folder / f"{name}.yaml").read_text() for name in ("targets", "entries", "waivers")]
    print("---\n".join(texts), end="")
    return 0


def _problem_body(problem: CompatgateError) -> dict[str, Any]:
    if isinstance(problem, DocumentProblem):
        return problem.to_json()
    return {"problem": problem.problem, "field": problem.field, "hint": problem.hint or None}


def find_revision(gate: Client, text: str, option: str) -> int:
    """Return the number of a revision, given by its number or by a time."""
    which = revision_or_time(text, option)
    return which if isinstance(which, int) else latest_revision(gate, until=which)


def latest_revision(gate: Client, until: datetime | None = None) -> int:
    """Return the number of the latest revision, now or at a time; 0 before the first."""
    rows = gate.list_revisions(until=until).page(size=1).items
    return rows[0].number if rows else 0


_SIGNS = {"create": "+", "change": "~", "delete": "-"}


def print_changes(changes: Iterable[Body]) -> None:
    """Print changes as text: one line per document, one line per field."""
    for change in changes:
        print(f"{_SIGNS[change['action']]} {change['kind']} {change['name']}")
        for field in change["fields"]:
            print(f"    {field['path']}: {_to_text(field['before'])} -> {_to_text(field['after'])}")


def _to_text(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)


_MAX_NEEDS = 20
_MAX_EXAMPLES = 5


def describe_result(result: Body) -> str:
    """Return what an import or a dry run did, in one line."""
    changes, unchanged = result["changes"], result["unchanged"]
    if result["revision"] is not None:
        return f"revision {result['revision']}: {len(changes)} changed, {unchanged} unchanged"
    if changes:
        return f"dry run: {len(changes)} would change, {unchanged} would not"
    return f"nothing to change: all {unchanged} documents are up to date"


def describe_preview(result: Body) -> Iterator[str]:
    """Yield what a dry run foresees: missing canary runs, and what waivers let through."""
    preview = result.get("preview") or {}
    needs = preview.get("needs", ())
    for need in needs[:_MAX_NEEDS]:
        state = f"run {need['failed']} failed" if need["failed"] else "has not passed"
        asked = "a policy requires it" if need["required"] else "not required"
        yield strip_controls(
            f"evidence: suite {need['suite']} for {need['entry']} on {need['target']},"
            f" {need['sku']}, driver {need['driver']}: {state} ({asked})"
        )
    if len(needs) > _MAX_NEEDS:
        yield f"evidence: and {len(needs) - _MAX_NEEDS} more runs"
    if any(need["required"] for need in needs):
        yield "evidence: without these runs, state spec.evidenceOverride, or the change is refused"
    for waiver in preview.get("waivers", ()):
        yield from _describe_scope(waiver)
    for remark in preview.get("remarks", ()):
        yield f"note: {remark}"


def _describe_scope(waiver: Body) -> Iterator[str]:
    counts = ", ".join(
        f"{waiver[name]} {name.removesuffix('s') if waiver[name] == 1 else name}"
        for name in ("stacks", "decisions", "nodes")
    )
    yield strip_controls(
        f"waiver {waiver['name']} lets through, of the last {waiver['days']} days: {counts}"
    )
    for one in waiver["examples"][:_MAX_EXAMPLES]:
        versions = (f"{k}={v}" for k, v in one["stack"].items() if isinstance(v, str))
        what = one["image"] or " ".join(versions)
        asked_by = ", ".join(one["asked_by"]) or "nobody"
        yield strip_controls(
            f"    {what} on {one['target']}: {one['decisions']} decisions, asked by {asked_by}"
        )
    if waiver["stacks"] > _MAX_EXAMPLES:
        yield f"    and {waiver['stacks'] - _MAX_EXAMPLES} more stacks"
    for remark in waiver["remarks"]:
        yield f"note: {remark}"
