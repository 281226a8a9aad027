"""Run ``compatgate matrix`` diff and sync: show what files would change, and change it."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from compatgate.catalog import load_facts
from compatgate.cli.gate import Client, Operations, asking
from compatgate.cli.gate.comparison import PERIOD, ask_backtest
from compatgate.cli.matrix.files import (
    JoinedFiles,
    find_revision,
    format_changes,
    join_files,
    latest_revision,
    note_expired,
)
from compatgate.documents.ownership import select_concerned, set_owner
from compatgate.documents.sources import Source, read_paths
from compatgate.documents.specs import TYPES, compare_documents, key_of
from compatgate.documents.validation import read_documents
from compatgate.errors import BadInput
from compatgate.gate_client import Body, ask
from compatgate.kit.cli.options import (
    AUTHORSHIP,
    FORCE,
    FORMAT_OR_MARKDOWN,
    LONGEST_REASON,
    note_warnings,
)
from compatgate.kit.cli.output import print_answer, shorten_text, strip_controls
from compatgate.kit.sections import markdown_text, shorten
from compatgate.service.changes.comparison import sections
from compatgate.service.changes.comparison.matrix_sections import report_backtest

_MAX_CHANGES = 50
_MAX_FIELDS = 12
_LONGEST_VALUE = 200
_SIGNS = {"create": "create", "change": "change", "delete": "**delete**"}
_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILD_SOURCEVERSION", "GIT_COMMIT")
_REPOSITORIES = ("GITHUB_REPOSITORY", "CI_PROJECT_PATH", "BUILD_REPOSITORY_NAME", "GIT_URL")
_MAX_NAMED = 10


def render_markdown(changes: Sequence[Body], name: str | None, backtest: Body | None) -> str:
    """Return changes and their backtest as Markdown.

    The first line is hidden, and finds the comment of an earlier run.
    """
    title = f"compatgate matrix{f': {name}' if name else ''}"
    headline = f"would change: {count_changes(changes)}" if changes else "would not change"
    lines = [f"<!-- {title} -->", f"## {markdown_text(f'The matrix {headline}')}", ""]
    for change in changes[:_MAX_CHANGES]:
        name = markdown_text(change["name"])
        lines.append(f"- {_SIGNS[change['action']]} {change['kind']} {name}")
        lines += [
            f"    - {_quote(one['path'])}: {_code(one['before'])} → {_code(one['after'])}"
            for one in change["fields"][:_MAX_FIELDS]
        ]
        if (more := len(change["fields"]) - _MAX_FIELDS) > 0:
            lines.append(f"    - and {more} more fields")
    if len(changes) > _MAX_CHANGES:
        lines.append(f"- and {len(changes) - _MAX_CHANGES} more documents")
    if backtest is not None:
        lines += ["", sections.render_markdown(report_backtest(backtest))]
    return "\n".join(lines)


def count_changes(changes: Iterable[Body]) -> str:
    """Return the number of changes in words: ``1 created, 2 deleted``."""
    actions = [change["action"] for change in changes]
    words = {"create": "created", "change": "changed", "delete": "deleted"}
    return ", ".join(
        f"{count} {word}" for action, word in words.items() if (count := actions.count(action))
    )


def _code(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _quote(shorten_text(text, _LONGEST_VALUE))


def _quote(text: str) -> str:
    """Return text as inline code, on one line, whatever backticks it has."""
    flat = " ".join(text.split())
    fence = "`" * (max(map(len, re.findall("`+", flat)), default=0) + 1)
    space = " " if flat.startswith("`") or flat.endswith("`") or not flat else ""
    return f"{fence}{space}{flat}{space}{fence}"


@asking(
    "show what files or a later revision would change",
    """\
[files: FILE|DIR|- ...]  YAML or JSON files, folders of them, or "-" for standard input; or --from
older: --from REVISION|TIME  older revision or time
newer: --to REVISION|TIME  newer revision or time (default: now)
--sync NAME              compare as a sync with this name would
--prune                  include deletions: documents of the sync that are not in the files
--exit-code              exit with 1 if there are differences
--no-backtest            omit the backtest in Markdown
""",
    PERIOD,
    form=FORMAT_OR_MARKDOWN,
    epilog="""\
examples:
  compatgate matrix diff ./matrix
  compatgate matrix diff --from 41 --to 42
  compatgate matrix diff ./matrix --sync fleet --prune --format markdown > comment.md

Without --sync, files are compared with the whole matrix: a document that they lack counts as
deleted. With --sync, as with matrix sync: only documents of the files count, and with --prune those
that the sync owns. Markdown has the backtest of the change, for a comment on a pull request.
""",
)
def diff_matrix(args: argparse.Namespace, gate: Client) -> int:
    """Print the changes."""
    if bool(args.files) == bool(args.older) or (args.files and args.newer):
        hint = "matrix diff FILE..., or matrix diff --from N [--to N]"
        raise BadInput("give either files or revisions to compare", hint=hint)
    if args.prune and not args.sync:
        raise BadInput("needs --sync", field="--prune", hint="--sync NAME --prune")
    sources = read_paths(args.files)
    if sources:
        changes = _diff_files(args, sources, gate)
    else:
        older = find_revision(gate, args.older, "--from")
        newer = find_revision(gate, args.newer, "--to") if args.newer else latest_revision(gate)
        changes = ask(gate, Operations.diff_revisions, newer, older=older)["changes"]
    if args.format == "markdown":
        backtest = None
        if sources and changes and not args.no_backtest:
            gone = [one for one in changes if one["action"] == "delete"]
            deleted = [{name: one[name] for name in ("kind", "name")} for one in gone]
            bounds = {"days": args.days, "questions": args.questions}
            backtest = ask_backtest(gate, sources, deleted, **bounds)
        print(render_markdown(changes, args.sync, backtest))
    else:
        text = "\n".join(format_changes(changes)) or "no differences"
        print_answer(args.format, changes, text)
    return 1 if changes and args.exit_code else 0


def _diff_files(args: argparse.Namespace, sources: Sequence[Source], gate: Client) -> list[Body]:
    """Compare the gate's matrix with files, in this process: reading is enough for that."""
    known = gate.export_matrix()
    names = [body["metadata"]["name"] for body in known if body["kind"] == "Target"]
    wanted = read_documents(sources, load_facts().gpus, names)
    stored = [msgspec.convert(body, TYPES[body["kind"]]) for body in known]
    if args.sync:
        by_key = {key_of(document): document for document in stored}
        stored = select_concerned(by_key, wanted, args.sync, prune=args.prune)
        wanted = [set_owner(document, args.sync) for document in wanted]
    changes: list[Body] = msgspec.to_builtins(compare_documents(stored, wanted))
    return changes


@asking(
    "make the stored matrix equal to the files",
    """\
files: FILE|DIR|- ...  YAML or JSON files, folders of them, or "-" for standard input
--name NAME            name of the sync, which owns the documents that it stores
--prune                delete documents of this sync that are not in the files; needs --name
--take-over            take over documents that belong to other syncs
--check                change nothing; exit with 1 on a difference
| --dry-run            show what would change
--revision-note TEXT   commit or link, kept with the reason (default: the commit of the CI job, if
                       any)
""",
    FORCE,
    AUTHORSHIP,
    make=True,
    epilog="""\
examples:
  compatgate matrix sync ./matrix --dry-run
  compatgate matrix sync ./matrix --name fleet --check --prune
  compatgate matrix sync ./matrix --name fleet --prune --revision-note "$(git rev-parse HEAD)"

With --name, every document that the sync stores carries the name as the label compatgate.dev/sync.
It deletes only documents with this label. It adopts documents without one, and refuses documents of
other syncs. Files that are wrong anywhere change nothing.

exit status: 0 done, or no difference; 1 --check found a difference; 2 bad input
""",
)
def sync_files(args: argparse.Namespace, gate: Client) -> int:
    """Show the plan of a sync, and make it unless told otherwise; return the exit status."""
    if args.prune and not args.name:
        hint = "a sync deletes only documents that carry its name, like --name fleet"
        raise BadInput("needs --name", field="--prune", hint=hint)
    whole = join_files(read_paths(args.files))
    plan = _ask(args, gate, whole, dry_run=True)
    only_plan = args.check or args.dry_run
    made = plan if only_plan or not plan["changes"] else _ask(args, gate, whole, dry_run=False)
    if args.format != "json":
        note_warnings(made.get("warnings", ()))
        note_expired(made["changes"])
    print_answer(args.format, {**made, "dry_run": only_plan}, "\n".join(_list_lines(made)))
    return 1 if args.check and plan["changes"] else 0


def _ask(args: argparse.Namespace, gate: Client, whole: JoinedFiles, *, dry_run: bool) -> Body:
    with whole.locating():
        return ask(
            gate,
            Operations.sync_matrix,
            whole.text,
            reason=describe_sync(args.name, args.reason, args.revision_note),
            name=args.name,
            prune=args.prune,
            take_over=args.take_over,
            dry_run=dry_run,
            force=args.force or None,
            file=whole.file,
        )


def describe_sync(
    name: str | None, reason: str | None, note: str | None, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the reason of a sync's revision: who wants it, and the commit.

    Without a note it is the commit of the CI job, if ``environ`` names one.
    """
    commit, repository = (
        next((environ[key] for key in keys if environ.get(key)), "")
        for keys in (_COMMITS, _REPOSITORIES)
    )
    noted = note or (f"{repository}@{commit}" if repository and commit else commit)
    what = reason or " ".join(filter(None, ("matrix sync", name)))
    text = f"{what} ({noted})" if noted else what
    return shorten_text(strip_controls(text).replace("\n", " "), LONGEST_REASON)


def _list_lines(found: Body) -> Iterator[str]:
    changes, unchanged = found["changes"], found["unchanged"]
    yield from format_changes(changes)
    for what, key in (("adopted", "adopted"), ("not in the files, kept without --prune", "left")):
        if names := [f"{one['kind']} {one['name']}" for one in found[key]]:
            yield f"{what}: {shorten(names, _MAX_NAMED)}"
    if changes:
        stored = found["revision"] is not None
        what = f"revision {found['revision']}" if stored else "plan"
        yield f"{what}: {count_changes(changes)}, {unchanged} unchanged"
    else:
        yield f"no difference: {unchanged} unchanged"
