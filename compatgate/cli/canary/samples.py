"""Run ``compatgate canary`` read, sample, import and baselines: measurements and their norms."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compatgate.canary.imports import MAX_BYTES
from compatgate.canary.protocol import TOOLS, make_reader
from compatgate.canary.protocol.tool import ToolOutput
from compatgate.canary.run import Report
from compatgate.canary.workloads import Library
from compatgate.cli.canary.runs import LIST
from compatgate.cli.commands import Body, Group, Row, columns, print_row
from compatgate.cli.gate import Client, Operations, asking, gate_of
from compatgate.core.stack import parse_stack_text
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.gate_client import ask, ask_all
from compatgate.kit.cli.options import FORMAT, add_workloads
from compatgate.kit.cli.output import (
    format_cells,
    format_json_time,
    open_input,
    print_answer,
    say,
    strip_controls,
    write_output,
)
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import parse_moment

_MOST = 256 << 20


@action(
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
    name = args.adapter
    if not args.workload and name not in TOOLS:
        hint = suggest_name(name, TOOLS)
        if name == "jsonl":
            hint = "give --workload: the line protocol needs the metrics that a workload declares"
        raise NotFound(f"adapter {name!r} does not exist", field="--adapter", value=name, hint=hint)
    reader = (
        make_reader(Library.open(args.workloads).workload(args.workload))
        if args.workload
        else ToolOutput(TOOLS[name])
    )
    with open_input(args.file, "FILE") as file:
        reader.feed(file.read(_MOST + 1))
    report = reader.report()
    print_answer(args.format, report, lambda: "\n".join(_list_lines(report)))
    if args.format != "json":
        for problem in report.problems:
            say(f"problem: {problem}")
    return int(bool(report.problems or report.truncated))


def _list_lines(report: Report) -> Iterator[str]:
    if env := report.env:
        fields = [("driver", env.driver), *env.versions.items()]
        fields += [("gpu", device.name) for device in env.gpus]
        yield from (f"{name:<10} {strip_controls(value)}" for name, value in fields if value)
    rows = [
        (m.name, m.unit, len(m.values), " ".join(f"{v:g}" for v in m.values[:4]))
        for m in report.metrics
    ]
    if rows:
        yield format_cells(("METRIC", "UNIT", "VALUES", "FIRST"), rows)
    for check in report.checks:
        state = "skipped" if check.skipped else "ok" if check.ok else "FAILED"
        yield f"check {check.name}: {state}: {strip_controls(check.message)}"
    if report.own_fault:
        yield f"fault of the tool, not of the stack: {strip_controls(report.own_fault)}"


@asking(
    "write the measurements of a run to files of JSON lines",
    """\
id: RUN               finished run
--step S              only this step, for example gemm-0
-o, --output DIR = .  folder to write to (default: this folder)
""",
    epilog="""\
Writes DIR/RUN_STEP.jsonl for each sound step, as the program printed its env, metrics and checks:
canary judge and canary import read it. A failed, disturbed or incomplete step gives no file; the
reason is printed.
exit status: 0 files written, 1 no file, 2 bad input
""",
)
def run_sample(args: argparse.Namespace, gate: Client) -> int:
    """Ask for the samples and write them."""
    answer = ask(gate, Operations.take_samples, args.id, step=args.step)
    folder = Path(args.output)
    paths = [folder / Path(sample["name"]).name for sample in answer["samples"]]
    for path, sample in zip(paths, answer["samples"], strict=True):
        write_output(str(path), sample["text"].encode())
    written = {"written": [*map(str, paths)], "refused": answer["refused"]}
    print_answer(args.format, written, "\n".join(written["written"]))
    if args.format == "text":
        for each in answer["refused"]:
            say(f"{each['step']}: no sample: {strip_controls(each['reason'])}")
    return int(not paths)


@asking(
    "import a report of another tool, with its source",
    """\
FILE                     report file; - for standard input
--format {auto,dcgm,nccl-tests,jsonl} = auto  report format (default: auto-detect)
--source WHO (required)  measuring party, for example acceptance-lab; on a server the name of the
                         token
--target T               target that the result applies to
--pool P                 pool of the target
--sku GPU                measured GPU, if the report names no product
--driver V               driver of the hosts, if the report does not state a driver
--host H                 measured host, if the report does not state a host
--stack LIST             measured components, for example cuda=12.4,nccl=2.21.5
--measured-at TIME       end time of the measurement, if the report states no time
--json                   print the stored runs as JSON
""",
    form="",
    epilog="""\
formats:
  dcgm         JSON of dcgmi diag -j
  nccl-tests   output of all_reduce_perf and its siblings
  jsonl        lines of env, metric and check, as canary programs print them
An imported result is shown with its source. No policy counts it unless the target's
canary.imported names FORMAT@SOURCE for a suite.
exit status: 0 stored, whatever the result; 2 bad input; 3 the gate cannot be reached
""",
)
def run_import(args: argparse.Namespace, gate: Client) -> int:
    """Import the report."""
    with open_input(args.file, "FILE") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        hint = f"at most {MAX_BYTES} bytes"
        raise BadInput("the report is too large", field="FILE", value=args.file, hint=hint)
    try:
        content = data.decode()
    except UnicodeDecodeError as error:
        problem = f"is no UTF-8 text, byte {error.start}"
        raise BadInput(problem, field="FILE", value=args.file) from None
    names = ("format", "target", "pool", "sku", "driver", "host")
    body = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    body["file"] = "standard input" if args.file == "-" else Path(args.file).name
    if args.stack is not None:
        body["stack"] = parse_stack_text(args.stack)
    if args.measured_at is not None:
        body["measured_at"] = parse_moment(args.measured_at, field="--measured-at").isoformat()
    made = ask(gate, Operations.import_report, content, args.source, **body)["runs"]
    print_row("json" if args.json else "text", LIST, made)
    return 0


def _list_figures(found: Body) -> Iterator[str]:
    yield (
        f"{found['id']}: {found['metric']} of {found['workload']} on {found['sku']},"
        f" {found['family']}, version {found['version']}, {found['state']}"
    )
    by = found["decided_by"] or found["proposed_by"]
    yield f"  {format_json_time(found['decided_at'] or found['proposed_at'])} by {by}"
    if found["source"]:
        yield f"  from {found['source']}"
    yield f"  better {found['better']}, tolerance {found['tolerance']:.1%}"
    if found.get("explained"):
        yield f"  explained: {found['explained']}"
    figures, names = found["distribution"], ("min", "median", "p95", "p99", "max")
    named = " ".join(f"{name} {figures[name]:.6g}" for name in names)
    yield f"  {figures['n']} values of {figures['runs']} runs, in {found['unit']}: {named}"
    if near := found.get("nearest"):
        change = "" if near["change"] is None else f"; this is {near['change']:+.1%}"
        yield (
            f"  no version is approved for this family; the nearest family is {near['family']}"
            f" ({near['id']}): median {near['median']:.6g}{change}, to compare, never to judge by"
        )
    most = max((bar["count"] for bar in figures["bins"]), default=0)
    for bar in figures["bins"]:
        mark = "#" * round(40 * bar["count"] / most) if most else ""
        yield f"  {bar['low']:>12.6g}  {mark}".rstrip()
    for run in found["runs"]:
        yield f"  from {run['run']}: {len(run['values'])} values{_describe_sample(run)}"
    for run in found["discarded"]:
        yield f"  not from {run['run']}: {run['reason']}"


def _describe_sample(run: Body) -> str:
    sample = run.get("sample")
    if not sample:
        return ""
    on = [f"driver {sample['driver']}"] if sample["driver"] else []
    on += [f"{name} {version}" for name, version in sample["versions"].items()]
    note = f" ({sample['note']})" if sample.get("note") else ""
    return f", a sample of {sample['measured_at'][:10]}: {', '.join(on)}{note}"


def _approve(args: argparse.Namespace) -> Any:
    """Approve a version, or the proposed ones that a run is part of; others wait."""
    if (args.id is None) == (args.all_of is None):
        hint = "name one version, or --all-of RUN"
        raise BadInput("approve needs a version or a run", field="ID", value=args.id, hint=hint)
    if args.all_of is None:
        return APPROVE.ask(args)
    with gate_of(args) as gate:
        proposed = ask_all(gate, None, Operations.list_baselines, state="proposed")
        details = [ask(gate, Operations.show_baseline, one["id"]) for one in reversed(proposed)]
        of_run = f"{args.all_of}:"  # values are those of a run, or of one of its steps
        runs = {one["id"]: [f"{run['run']}:" for run in one["runs"]] for one in details}
        ids = [number for number in runs if any(n.startswith(of_run) for n in runs[number])]
        if not ids:
            what = f"no proposed baseline has values of run {args.all_of}"
            hint = "compatgate canary baselines list --state proposed"
            raise NotFound(what, field="--all-of", value=args.all_of, hint=hint)
        return [ask(gate, Operations.approve_baseline, number) for number in ids]


def _format(found: Body) -> str:
    return strip_controls("\n".join(_list_figures(found)))


_LISTED = columns("id", "workload", "metric", "sku", "family", "version", "state")
APPROVE = Row(
    "approve_baseline",
    "[ID]\n--all-of RUN  approve every proposed version with values of this run",
    columns=_LISTED,
    text=_format,
    answer=_approve,
)
run_baselines = Group(
    {
        "list": Row(
            "list_baselines",
            "--workload W\n--sku SKU  GPU SKU, or cpu\n--metric M\n--state {}",
            {**_LISTED, "runs": "learnt_from", "values": "values"},
        ),
        "show": Row("show_baseline", text=_format),
        "approve": APPROVE,
        "refuse": Row("refuse_baseline", text=_format),
    },
    help="list, show, approve and refuse baselines",
)
