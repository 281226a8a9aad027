"""Run ``compatgate matrix sync``: make the stored matrix equal to files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping

from compatgate.cli.gate.opening import Client, Operations, asking
from compatgate.cli.matrix.diff import count_changes
from compatgate.cli.matrix.files import JoinedFiles, format_changes, join_files, note_expired
from compatgate.documents.sources import read_paths
from compatgate.errors import BadInput
from compatgate.gate_client import Body, ask
from compatgate.kit.cli.options import (
    AUTHORSHIP,
    FORCE,
    LONGEST_REASON,
    note_warnings,
    shorten_text,
)
from compatgate.kit.cli.output import print_answer
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.sections import shorten

_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILD_SOURCEVERSION", "GIT_COMMIT")
_REPOSITORIES = ("GITHUB_REPOSITORY", "CI_PROJECT_PATH", "BUILD_REPOSITORY_NAME", "GIT_URL")
_MAX_NAMED = 10


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
    commit = next((environ[key] for key in _COMMITS if environ.get(key)), "")
    repository = next((environ[key] for key in _REPOSITORIES if environ.get(key)), "")
    known = f"{repository}@{commit}" if repository and commit else commit
    noted = note or known
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
