"""Run ``compatgate canary`` workloads, suites, lint and fetch: show, check and copy workloads."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.discovery.registry.limits import read_options
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit.cli.options import FORMAT, add_workloads
from compatgate.kit.cli.output import format_table, print_json
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import action
from compatgate.resources import canary_dir

if TYPE_CHECKING:
    from compatgate.canary.workload import Workload
    from compatgate.canary.workloads.lint import Finding


@action(
    "workloads",
    "list workloads, or show one",
    "[NAME]  workload to show in full",
    add_workloads,
    FORMAT,
)
def run_workloads(args: argparse.Namespace) -> int:
    """List workloads, or show one."""
    from compatgate.canary.workloads import Library

    library = Library.open(args.workloads)
    chosen = [library.workload(args.name)] if args.name else list(library.workloads.values())
    if args.format == "json":
        bodies = [to_json(workload) for workload in chosen]
        print_json(bodies[0] if args.name else {"workloads": bodies})
    elif args.name:
        print(_page(chosen[0]))
    else:
        rows = [(w.name, str(w.gpus), _time(w.timeout_s), w.description) for w in chosen]
        print(format_table(("NAME", "GPUS", "TIMEOUT", "DESCRIPTION"), rows))
    return 0


def to_json(workload: Workload) -> dict[str, Any]:
    """Return the workload in JSON form."""
    from compatgate.canary.samples.sample import list_samples

    fields = msgspec.structs.asdict(workload)
    folder = fields.pop("folder")
    samples = [msgspec.to_builtins(sample) for sample in list_samples(workload)]
    return {**fields, "folder": str(folder) if folder else None, "samples": samples}


def _page(workload: Workload) -> str:
    lines = [f"{workload.name}: {workload.description}", ""]
    lines += [f"  catches   {phrase}" for phrase in workload.catches]
    lines.append(f"  command   {' '.join(workload.command)}")
    signed = f"signed lines; {' and '.join(workload.proofs)} must answer a challenge"
    lines.append(f"  evidence  {signed if workload.proofs else 'self-reported'}")
    if workload.interpreter == "worker":
        lines.append("  python    the worker's, where the host can mount it")
    lines.append(f"  gpus      {workload.gpus}")
    if workload.nodes > 1:
        lines.append(f"  nodes     {workload.nodes}, on a slurm or kubernetes host")
    lines.append(f"  timeout   {_time(workload.timeout_s)}")
    lines.append(f"  memory    {workload.limits.memory >> 20} MiB")
    lines.append(f"  digest    {workload.digest}")
    lines.append(f"  folder    {workload.folder}")
    for name, spec in workload.metrics.items():
        better = "any change counts" if spec.better == "either" else f"{spec.better} is better"
        text = f"{spec.unit}, {better}, tolerance {spec.tolerance:.0%}"
        peak = f", shown as a share of the {spec.peak} peak" if spec.peak else ""
        lines.append(f"  metric    {name}: {text}, {spec.repetitions} values or more{peak}")
    lines += [f"  check     {name}: {says}" for name, says in workload.checks.items()]
    lines += [f"  sample    {line}" for line in _samples(workload)] or ["  sample    none yet"]
    return "\n".join(lines)


def _samples(workload: Workload) -> list[str]:
    from compatgate.canary.samples.sample import list_samples

    lines = []
    for one in list_samples(workload):
        driver = f"driver {one.driver}" if one.driver else "no driver"
        marks = [] if one.current else ["of another version of the workload"]
        marks += ["for development"] if one.development else []
        also = f" ({', '.join(marks)})" if marks else ""
        lines.append(
            strip_controls(f"{one.sku}, {driver}, {one.family}, {one.measured_at[:10]}{also}")
        )
    return lines


def _time(seconds: int) -> str:
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"


@action("suites", "list suites of workloads", "[NAME]  only this suite", add_workloads, FORMAT)
def run_suites(args: argparse.Namespace) -> int:
    """List suites."""
    from compatgate.canary.workloads import Library

    library = Library.open(args.workloads)
    names = [library.suite(args.name).name] if args.name else list(library.suites)
    if args.format == "json":
        bodies = [
            {
                "name": name,
                "description": library.suite(name).description,
                "gpus": library.gpus_of(name),
                "nodes": library.nodes_of(name),
                "workloads": list(library.suite(name).workloads),
            }
            for name in names
        ]
        print_json(bodies[0] if args.name else {"suites": bodies})
        return 0
    rows = [
        (
            name,
            str(library.gpus_of(name)),
            " ".join(library.suite(name).workloads),
            library.suite(name).description,
        )
        for name in names
    ]
    print(format_table(("NAME", "GPUS", "WORKLOADS", "DESCRIPTION"), rows))
    return 0


@action(
    "lint",
    "check workloads without running them",
    """\
[folders: DIR ...]  workload folder, or a folder of workloads (default: the shipped ones)
--strict            treat warnings as errors
""",
    FORMAT,
    epilog="""\
Checks the manifest against its schema, the program (exists, compiles, is executable), the
Dockerfile, units, descriptions and README.md. Warns about images without a digest, and about
samples that are incomplete or of another version of the workload.
exit status: 0 no errors (warnings do not count, see --strict), 1 errors, 2 bad usage
""",
)
def run_lint(args: argparse.Namespace) -> int:
    """Check workloads and print findings."""
    from compatgate.canary.workloads.lint import lint_workloads

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
        print(f"{_count(len(seen), 'workload')}: {counts}", file=sys.stderr)
    return int(any(f.severity == "error" or args.strict for f in found))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@action(
    "fetch",
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
    from compatgate.canary.workload import FOLDER
    from compatgate.canary.workloads.contents import MAX_BYTES, MAX_FILES
    from compatgate.canary.workloads.library import MANIFEST, read_workload
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
            _put(Path(draft), place / name, replace=args.force)
    except OSError as error:
        raise BadInput(f"cannot write: {error.strerror}", field=str(place)) from None
    print(f"{name}: {len(folder.files)} files of {folder.digest} in {place / name}")
    return 0


def _put(draft: Path, target: Path, *, replace: bool) -> None:
    """Move the draft to its place; a replaced folder is removed with the draft."""
    if target.exists() or target.is_symlink():
        if not replace:
            hint = "name another folder, or replace it with --force"
            raise Conflict("already exists", field=str(target), hint=hint)
        os.rename(target, draft / "before")
    os.rename(draft / "workload", target)
