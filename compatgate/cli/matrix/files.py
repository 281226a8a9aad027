"""Run ``compatgate matrix`` import, example and export; say in words what files change.

All files are sent as one text, so that they make one revision; mistakes name file and line.
"""

from __future__ import annotations

import argparse
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from compatgate.catalog import load_facts
from compatgate.cli.gate import Client, Operations, asking
from compatgate.documents.edits import edit_file
from compatgate.documents.ownership import owner_of, set_owner
from compatgate.documents.sources import SUFFIXES, DocumentProblem, Problems, Source, read_paths
from compatgate.documents.specs import TYPES, Document, key_of, to_sorted_body
from compatgate.documents.text import convert_json, read_nodes, to_json, to_yaml
from compatgate.errors import BadInput, CompatgateError, ManyProblems, quote_error
from compatgate.gate_client import Body, ask
from compatgate.kit.cli.options import AUTHORSHIP, FORCE, note_warnings, reason_of, revision_or_time
from compatgate.kit.cli.output import print_answer, print_json, say, strip_controls, write_output
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import today
from compatgate.kit.files import replacing
from compatgate.resources import matrix_dir

JOINED_NAME = "<files>"
"""Name of the joined text in errors of the gate."""
_LINE_REFERENCE = re.compile(re.escape(JOINED_NAME) + r":(\d+)")
_DOCUMENT_START = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*(---(?:\s|$)|%)")
"""The start of a text that has its own document marker."""
_SIGNS = {"create": "+", "change": "~", "delete": "-"}
_MAX_NEEDS = 20
_MAX_EXAMPLES = 5
_FOLDERS = {"Target": "targets", "Entry": "entries", "Waiver": "waivers"}
_MODE = 0o644
Key = tuple[str, str]


class JoinedFiles(Struct, frozen=True):
    """Several files, joined to one YAML stream; each begins at a line, counted from 1."""

    text: str
    files: tuple[str, ...]
    starts: tuple[int, ...]
    file: str = JOINED_NAME

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Name the file and line of each mistake that the gate finds."""
        try:
            yield
        except ManyProblems as error:
            problems = [self._locate(problem) for problem in error.problems]
            raise ManyProblems(error.problem, problems) from None

    def _locate(self, problem: CompatgateError) -> CompatgateError:
        if not isinstance(problem, DocumentProblem) or problem.file != JOINED_NAME:
            return problem
        file, line = self._locate_line(problem.line or 1)
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

    def _locate_line(self, line: int) -> tuple[str, int]:
        index = bisect_right(self.starts, line) - 1
        return self.files[index], line - self.starts[index] + 1

    def _locate_text(self, text: str) -> str:
        return _LINE_REFERENCE.sub(lambda m: ":".join(map(str, self._locate_line(int(m[1])))), text)


def join_files(sources: Sequence[Source]) -> JoinedFiles:
    """Join several files to one text, after a check of each; each starts a new document."""
    problems = Problems()
    for source in sources:
        for _ in read_nodes(source, problems):
            pass
    problems.raise_if_any()
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


@asking(
    "create or change the documents in files, all or none",
    """\
files: FILE|DIR|- ...  YAML or JSON files, folders of them, or "-" for standard input
--dry-run              show what would change
""",
    FORCE,
    AUTHORSHIP,
    make=True,
)
def import_files(args: argparse.Namespace, gate: Client) -> int:
    """Import files as one revision; mistakes name their files, in JSON as well."""
    why = reason_of(args, f"matrix import {' '.join(args.files)}")
    try:
        whole = join_files(read_paths(args.files))
        with whole.locating():
            result = ask(
                gate,
                Operations.import_matrix,
                whole.text,
                reason=why,
                dry_run=args.dry_run,
                force=args.force or None,
                file=whole.file,
            )
    except ManyProblems as error:
        if args.format != "json":
            raise
        problems = [
            one.to_json()
            if isinstance(one, DocumentProblem)
            else {"problem": one.problem, "field": one.field, "hint": one.hint or None}
            for one in error.problems
        ]
        print_json({"error": error.problem, "problems": problems})
        return error.exit_code
    if args.format != "json":
        note_warnings(result.get("warnings", ()))
        note_expired(result["changes"])
    lines = (*format_changes(result["changes"]), *describe_preview(result), describe_result(result))
    return print_answer(args.format, {**result, "dry_run": args.dry_run}, "\n".join(lines))


def note_expired(changes: Iterable[Body]) -> None:
    """Warn about expired waivers: a wrong year would otherwise show up as a denial."""
    for change in changes:
        after = change["after"]
        expires = after["spec"].get("expires") if after else None
        if expires and expires < today().isoformat():
            say(f"note: {change['kind']} {change['name']} ended on {expires}: it waives nothing")


@action("print an example matrix to start from")
def print_example(_: argparse.Namespace) -> int:
    """Print the shipped targets, entries and waivers as one stream."""
    folder = matrix_dir() / "examples"
    texts = [(folder / f"{name}.yaml").read_text() for name in ("targets", "entries", "waivers")]
    print("---\n".join(texts), end="")
    return 0


def find_revision(gate: Client, text: str, option: str) -> int:
    """Return the number of a revision, given by its number or by a time."""
    which = revision_or_time(text, option)
    return which if isinstance(which, int) else latest_revision(gate, until=which)


def latest_revision(gate: Client, until: datetime | None = None) -> int:
    """Return the number of the latest revision, now or at a time; 0 before the first."""
    rows = gate.list_revisions(until=until).page(size=1).items
    return rows[0].number if rows else 0


def format_changes(changes: Iterable[Body]) -> Iterator[str]:
    """Yield changes as text: one line per document, one line per field."""
    for change in changes:
        yield f"{_SIGNS[change['action']]} {change['kind']} {change['name']}"
        for field in change["fields"]:
            before, after = (
                "(none)" if field[side] is None else json.dumps(field[side], ensure_ascii=False)
                for side in ("before", "after")
            )
            yield f"    {field['path']}: {before} -> {after}"


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
        what = f"{one['image'] or ' '.join(versions)} on {one['target']}"
        asked_by = ", ".join(one["asked_by"]) or "nobody"
        yield strip_controls(f"    {what}: {one['decisions']} decisions, asked by {asked_by}")
    if waiver["stacks"] > _MAX_EXAMPLES:
        yield f"    and {waiver['stacks'] - _MAX_EXAMPLES} more stacks"
    for remark in waiver["remarks"]:
        yield f"note: {remark}"


@asking(
    "write every document, now or at an older revision",
    """\
-o, --output FILE = -    output file (default: standard output)
| --split DIR            output folder; each new document gets its own file
--at REVISION|TIME       revision or time (default: now)
--sync NAME              export only documents of this sync, without its label
--format {yaml,json} = yaml  output format
""",
    form="",
    epilog="""\
examples:
  compatgate matrix export -o matrix.yaml
  compatgate matrix export --at 41 -o before.yaml
  compatgate matrix export --split ./matrix --sync fleet

Equal matrices give the same bytes. --split edits documents in their files, and keeps comments,
order and form. It adds new documents as KIND/NAME.yaml, and removes documents that are not stored.
""",
)
def export_matrix(args: argparse.Namespace, gate: Client) -> int:
    """Write the matrix."""
    if args.split and args.format == "json":
        raise BadInput("writes YAML", field="--split", hint="omit --format")
    revision = find_revision(gate, args.at, "--at") if args.at else None
    bodies = gate.export_matrix(revision=revision)
    if args.sync or args.split:
        found = [msgspec.convert(body, TYPES[body["kind"]]) for body in bodies]
        if args.sync:
            found = [set_owner(one, None) for one in found if owner_of(one) == args.sync]
        if args.split:
            return _write_folder(Path(args.split), found)
        bodies = [to_sorted_body(document) for document in found]
    text = to_yaml(bodies) if args.format == "yaml" else to_json(bodies)
    write_output(args.output, text.encode())
    return 0


def _write_folder(folder: Path, found: Iterable[Document]) -> int:
    wanted: dict[Key, Document] = {key_of(document): document for document in found}
    known = folder.is_dir() and any(path.suffix in SUFFIXES for path in folder.rglob("*"))
    sources = read_paths([folder]) if known else []
    gpus = load_facts().gpus
    edits = [(source, edit_file(source, wanted, gpus)) for source in sources]
    written = {key for _, edit in edits for key in edit.documents}
    new = {
        folder / _FOLDERS[kind] / f"{name}.yaml": one
        for (kind, name), one in wanted.items()
        if (kind, name) not in written
    }
    places: dict[str, Path] = {}
    for path in new:  # some file systems do not tell cases apart
        other = places.setdefault(str(path).casefold(), path)
        if other != path:
            problem = f"{path.name} and {other.name} differ only in case"
            raise BadInput(problem, field="--split", value=str(path), hint="use -o FILE")
    count = 0
    try:
        for source, edit in edits:
            count += _write(Path(source.file), edit.text, source.text)
            for name in edit.rewritten:
                say(f"note: {source.file}: {name} was rewritten without its comments")
        for path, document in sorted(new.items()):
            path.parent.mkdir(parents=True, exist_ok=True)
            count += _write(path, to_yaml([to_sorted_body(document)]))
    except OSError as error:
        problem = f"cannot write: {quote_error(error)}"
        raise BadInput(problem, field="--split", value=error.filename) from None
    print(f"{len(wanted)} documents, {count} files written")
    return 0


def _write(path: Path, text: str, stored: str | None = None) -> bool:
    """Write a file whose text differs; remove one without documents. Return whether it did."""
    if stored == text:
        return False
    if stored is not None and not text:
        path.unlink()
        return True
    mode = path.stat().st_mode & 0o777 if path.exists() else _MODE
    with replacing(path, mode) as file:
        file.write(text.encode())
    return True
