"""Run ``compatgate canary`` read and sample: parse a tool's output, write sample files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatgate.canary.run import Report
from compatgate.catalog import load_facts
from compatgate.cli.gate.opening import Operations, gate_of
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.gate_client import ask
from compatgate.kit.cli.options import FORMAT, PLACE, add_workloads
from compatgate.kit.cli.output import format_table, open_input, print_json
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import parse_moment

if TYPE_CHECKING:
    from compatgate.canary.protocol.adapters.tool import ToolReader

_MOST = 256 << 20
_LONGEST = 2000
_LARGEST_SEED = 4_294_967_295


@action(
    "read",
    "parse the output of a tool with an adapter",
    """\
FILE               file with the tool's output; - for standard input
--adapter NAME (required)  adapter of the tool, as in workload.toml
| --workload NAME  workload that the output belongs to
""",
    add_workloads,
    FORMAT,
    epilog="""\
Parses the output of a tool as the engine does. Shows each metric with its unit (the names that a
workload.toml may declare), checks, versions and problems. With --workload: only the metrics that
the workload declares.
exit status: 0 no problems, 1 problems, 2 bad usage
""",
)
def run_read(args: argparse.Namespace) -> int:
    """Parse the output and print a report."""
    report = _report(args)
    if args.format == "json":
        print_json(report)
    else:
        _print_report(report)
    return int(bool(report.problems or report.truncated))


def _report(args: argparse.Namespace) -> Report:
    from compatgate.canary.protocol import make_reader
    from compatgate.canary.protocol.adapters import ToolOutput
    from compatgate.canary.workloads import Library

    reader = (
        make_reader(Library.open(args.workloads).workload(args.workload))
        if args.workload
        else ToolOutput(_tool(args.adapter))
    )
    with open_input(args.file, "FILE") as file:
        reader.feed(file.read(_MOST + 1))
    return reader.report()


def _tool(name: str) -> ToolReader:
    from compatgate.canary.protocol.adapters import TOOLS

    if found := TOOLS.get(name):
        return found
    hint = suggest_name(name, TOOLS)
    if name == "jsonl":
        hint = "give --workload: the line protocol needs the metrics that a workload declares"
    raise NotFound(f"adapter {name!r} does not exist", field="--adapter", value=name, hint=hint)


def _print_report(report: Report) -> None:
    if env := report.env:
        stated = {"driver": env.driver, **env.versions}
        for name, value in stated.items():
            if value:
                print(f"{name:<10} {strip_controls(value)}")
        for device in env.gpus:
            print(f"{'gpu':<10} {strip_controls(device.name)}")
    rows = [
        (m.name, m.unit, str(len(m.values)), " ".join(f"{v:g}" for v in m.values[:4]))
        for m in report.metrics
    ]
    if rows:
        print(strip_controls(format_table(("METRIC", "UNIT", "VALUES", "FIRST"), rows)))
    for check in report.checks:
        state = "skipped" if check.skipped else "ok" if check.ok else "FAILED"
        print(f"check {check.name}: {state}: {strip_controls(check.message)}")
    if report.own_fault:
        print(f"fault of the tool, not of the stack: {strip_controls(report.own_fault)}")
    for problem in report.problems:
        print(f"problem: {strip_controls(problem)}", file=sys.stderr)


@action(
    "sample",
    "write the measurements of a run to sample files",
    """\
[id: RUN]           finished run
--printed FILE      file with the output of a program, instead of RUN
--workload W        with --printed: workload of the program
--seed N = 0        with --printed: seed
--measured-at TIME  with --printed: end time, for example 2026-11-21T20:16:37Z
""",
    add_workloads,
    """\
--step S              only this step, for example gemm-0
--note TEXT           note to store in each file
-o, --output DIR = .  workload folder to write to (default: this folder)
""",
    PLACE,
    FORMAT,
    epilog="""\
Writes DIR/WORKLOAD/samples/NAME.jsonl for each valid step of a run; NAME is GPU, stack family, time
and seed. A failed, disturbed or incomplete step gives no sample; the reason is printed. With
--printed, reads the output of a program that ran on a machine without a gate: the sample is marked
as development and starts no baseline.
exit status: 0 samples written (or unchanged), 1 no samples, 2 bad input
""",
    seed={"type": int},
    note={"default": ""},
)
def run_sample(args: argparse.Namespace) -> int:
    """Take the samples and write them."""
    if len(args.note) > _LONGEST:
        hint = f"at most {_LONGEST} characters"
        raise BadInput("is too long", field="--note", value=args.note[:40], hint=hint)
    taken = _sample_of_output(args) if args.printed else _samples_of_run(args)
    paths = [(_place(Path(args.output), sample), sample["text"]) for sample in taken["samples"]]
    for path, text in paths:
        _refuse_other(path, text)
    for path, text in paths:
        _write(path, text)
    if args.format == "json":
        print_json({"written": [str(path) for path, _ in paths], "refused": taken["refused"]})
    else:
        for path, _ in paths:
            print(path)
        for each in taken["refused"]:
            text = f"{each['step']}: no sample: {strip_controls(each['reason'])}"
            print(text, file=sys.stderr)
    return int(not paths)


def _samples_of_run(args: argparse.Namespace) -> dict[str, Any]:
    if args.id is None or args.workload or args.measured_at:
        hint = "RUN; or --printed FILE --workload W --measured-at TIME"
        raise BadInput("name a run, or a file with --printed", hint=hint)
    with gate_of(args) as gate:
        note = args.note or None
        return ask(gate, Operations.take_samples, args.id, step=args.step, note=note)


def _sample_of_output(args: argparse.Namespace) -> dict[str, Any]:
    """Return a sample of a program's output, in the form of the gate's answer."""
    from compatgate.canary.samples.extract import ExtractedSamples, sample_files, sample_from_output
    from compatgate.canary.workloads import Library

    if args.id or args.step or not (args.workload and args.measured_at):
        hint = "with --workload W and --measured-at TIME, without RUN and --step"
        what = "needs --workload and --measured-at, and excludes RUN and --step"
        raise BadInput(what, field="--printed", hint=hint)
    if not 0 <= args.seed <= _LARGEST_SEED:
        raise BadInput("is not a seed", field="--seed", value=args.seed)
    at = parse_moment(args.measured_at, field="--measured-at").strftime("%Y-%m-%dT%H:%M:%SZ")
    workload = Library.open(args.workloads).workload(args.workload)
    with open_input(args.printed, "--printed") as file:
        printed = file.read()
    sample = sample_from_output(
        printed, workload, load_facts(), seed=args.seed, measured_at=at, note=args.note
    )
    return sample_files(ExtractedSamples((sample,), ()))


def _place(folder: Path, sample: dict[str, Any]) -> Path:
    """Return the path of a sample; refuse a path from the gate outside of the folder."""
    parts = (sample["workload"], "samples", sample["name"])
    if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        raise BadInput("the gate returned a path outside the folder", field="--server")
    return folder.joinpath(*parts)


def _refuse_other(path: Path, text: str) -> None:
    try:
        there = path.read_bytes() if path.exists() else None
    except OSError as error:
        raise _write_error(path, error) from None
    if there is not None and there != text.encode():
        hint = "remove it, or write into another folder with -o"
        raise Conflict(
            f"{path} exists with other content", field="--output", value=str(path), hint=hint
        )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _write_error(path, error) from None


def _write_error(path: Path, error: OSError) -> Exception:
    return BadInput(f"cannot write {path}: {error.strerror}", field="--output", value=str(path))
