"""Run ``compatgate canary`` workloads, suites, lint and fetch: show, check and copy workloads."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from compatgate.canary.workload import FOLDER, Workload
from compatgate.canary.workloads import Library
from compatgate.canary.workloads.contents import MAX_BYTES, MAX_FILES
from compatgate.canary.workloads.library import MANIFEST, read_workload
from compatgate.canary.workloads.lint import Finding, lint_workloads
from compatgate.cli.commands import columns, format_rows
from compatgate.discovery.registry.limits import read_options
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit.cli.options import FORMAT, add_workloads
from compatgate.kit.cli.output import format_cells, print_answer, print_json, say
from compatgate.kit.cli.usage import action
from compatgate.resources import canary_dir


@action("list workloads, or show one", "[NAME]  workload to show in full", add_workloads, FORMAT)
def run_workloads(args: argparse.Namespace) -> int:
    """List workloads, or show one."""
    library = Library.open(args.workloads)
    if args.name:
        one = library.workload(args.name)
        return print_answer(args.format, _to_json(one), lambda: _format_workload(one))
    every = list(library.workloads.values())
    rows = [(one.name, one.gpus, _time(one.timeout_s), one.description) for one in every]
    return print_answer(
        args.format,
        {"workloads": [*map(_to_json, every)]},
        format_cells(("NAME", "GPUS", "TIMEOUT", "DESCRIPTION"), rows),
    )


def _to_json(workload: Workload) -> dict[str, Any]:
    fields = msgspec.structs.asdict(workload)
    folder = fields.pop("folder")
    return {**fields, "folder": str(folder) if folder else None}


def _format_workload(workload: Workload) -> str:
    signed = f"signed lines; {' and '.join(workload.proofs)} must answer a challenge"
    by_worker, several = workload.interpreter == "worker", workload.nodes > 1
    fields: list[tuple[str, object]] = [
        *(("catches", phrase) for phrase in workload.catches),
        ("command", " ".join(workload.command)),
        ("evidence", signed if workload.proofs else "self-reported"),
        ("python", "the worker's, where the host can mount it" if by_worker else ""),
        ("gpus", workload.gpus),
        ("nodes", f"{workload.nodes}, on a slurm or kubernetes host" if several else ""),
        ("timeout", _time(workload.timeout_s)),
        ("memory", f"{workload.limits.memory >> 20} MiB"),
        ("digest", workload.digest),
        ("folder", workload.folder),
    ]
    for name, spec in workload.metrics.items():
        better = "any change counts" if spec.better == "either" else f"{spec.better} is better"
        text = f"{spec.unit}, {better}, tolerance {spec.tolerance:.0%}"
        peak = f", shown as a share of the {spec.peak} peak" if spec.peak else ""
        fields.append(("metric", f"{name}: {text}, {spec.repetitions} values or more{peak}"))
    fields += [("check", f"{name}: {says}") for name, says in workload.checks.items()]
    lines = [f"  {name:<8}  {value}" for name, value in fields if value]
    return "\n".join([f"{workload.name}: {workload.description}", "", *lines])


def _time(seconds: int) -> str:
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"


@action("list suites of workloads", "[NAME]  only this suite", add_workloads, FORMAT)
def run_suites(args: argparse.Namespace) -> int:
    """List suites."""
    library = Library.open(args.workloads)
    suites = [library.suite(args.name)] if args.name else list(library.suites.values())
    bodies = [
        {
            "name": one.name,
            "description": one.description,
            "gpus": library.gpus_of(one.name),
            "nodes": library.nodes_of(one.name),
            "workloads": list(one.workloads),
        }
        for one in suites
    ]
    answer = bodies[0] if args.name else {"suites": bodies}
    named = columns("name", "gpus", "workloads", "description")
    rows = [
        {**body, "workloads": " ".join(one.workloads)}
        for body, one in zip(bodies, suites, strict=True)
    ]
    return print_answer(args.format, answer, format_rows(rows, named))


@action(
    "check workloads without running them",
    """\
[folders: DIR ...]  workload folder, or a folder of workloads (default: the shipped ones)
--strict            treat warnings as errors
""",
    FORMAT,
    epilog="""\
Checks the manifest against its schema, the program (exists, compiles, is executable), the
Dockerfile, units, descriptions and README.md. Warns about images without a digest.
exit status: 0 no errors (warnings do not count, see --strict), 1 errors, 2 bad usage
""",
)
def run_lint(args: argparse.Namespace) -> int:
    """Check workloads and print findings."""
    seen: list[Path] = []
    found: list[Finding] = []
    for folder in map(Path, args.folders or [str(canary_dir())]):
        looked_at, findings = lint_workloads(folder)
        seen += looked_at
        found += findings
    if args.format == "json":
        rows = [{"file": f.file, "severity": f.severity, "message": f.message} for f in found]
        print_json({"workloads": [str(path) for path in seen], "findings": rows})
    else:
        for finding in found:
            print(f"{finding.file}: {finding.severity}: {finding.message}")
        errors = sum(f.severity == "error" for f in found)
        counts = f"{_count(errors, 'error')}, {_count(len(found) - errors, 'warning')}"
        say(f"{_count(len(seen), 'workload')}: {counts}")
    return int(any(f.severity == "error" or args.strict for f in found))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@action(
    "copy the workload in an image",
    """\
IMAGE                 reference in a registry
-o, --output DIR = .  destination folder (default: this folder)
--platform OS/CPU     platform in a multi-platform image
--force               replace an existing folder
""",
    epilog="""\
Copies /compatgate of the image, with its workload.toml, to DIR/NAME. Runs nothing: read the files,
check them with compatgate canary lint, and name DIR with --workloads or COMPATGATE_WORKLOADS.
exit status: 0 copied, 2 no image, or no valid workload in it, 3 no answer
""",
    platform={"default": "linux/amd64"},
)
def run_fetch(args: argparse.Namespace) -> int:
    """Copy the workload and print its name."""
    from compatgate.discovery.image.read import read_folder

    folder = read_folder(
        args.image,
        FOLDER.strip("/"),
        most_files=MAX_FILES,
        most_bytes=MAX_BYTES,
        platform=args.platform,
        options=read_options(),
    )
    if MANIFEST not in folder.files:
        hint = f"a workload image has /compatgate/{MANIFEST}, as compatgate canary lint checks it"
        raise NotFound("the image holds no workload", field=args.image, hint=hint)
    place = Path(args.output)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".fetching-", dir=place) as draft:
            for path, content in folder.files.items():
                target = Path(draft) / "workload" / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.data)
                target.chmod(0o755 if content.executable else 0o644)
            name = read_workload(Path(draft) / "workload").name
            if (goal := place / name).exists() or goal.is_symlink():
                if not args.force:
                    hint = "name another folder, or replace it with --force"
                    raise Conflict("already exists", field=str(goal), hint=hint)
                os.rename(goal, Path(draft) / "before")  # it is removed with the draft
            os.rename(Path(draft) / "workload", goal)
    except OSError as error:
        raise BadInput(f"cannot write: {error.strerror}", field=str(place)) from None
    print(f"{name}: {len(folder.files)} files of {folder.digest} in {place / name}")
    return 0
