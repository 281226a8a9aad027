"""Run ``compatgate canary`` read, sample and import: read outputs of tools, write sample files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from compatgate.canary.imports import MAX_BYTES
from compatgate.canary.protocol import TOOLS, make_reader
from compatgate.canary.protocol.tool import ToolOutput
from compatgate.canary.run import Report
from compatgate.canary.workloads import Library
from compatgate.cli.canary.runs import print_runs
from compatgate.cli.gate import Operations, gate_of
from compatgate.core.stack import parse_stack_text
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.gate_client import ask
from compatgate.kit.cli.options import FORMAT, PLACE, add_workloads
from compatgate.kit.cli.output import format_cells, open_input, print_answer, write_output
from compatgate.kit.cli.terminal import say, strip_controls
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import parse_moment

_MOST = 256 << 20
_LONGEST = 2000
_LARGEST_SEED = 4_294_967_295


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


@action(
    "write the measurements of a run to files of JSON lines",
    """\
id: RUN               finished run
--step S              only this step, for example gemm-0
-o, --output DIR = .  folder to write to (default: this folder)
""",
    PLACE,
    FORMAT,
    epilog="""\
Writes DIR/RUN_STEP.jsonl for each sound step, as the program printed its env, metrics and checks:
canary judge and canary import read it. A failed, disturbed or incomplete step gives no file; the
reason is printed.
exit status: 0 files written, 1 no file, 2 bad input
""",
)
def run_sample(args: argparse.Namespace) -> int:
    """Ask for the samples and write them."""
    with gate_of(args) as gate:
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


@action(
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
    PLACE,
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
def run_import(args: argparse.Namespace) -> int:
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
    with gate_of(args) as gate:
        made = ask(gate, Operations.import_report, content, args.source, **body)["runs"]
    print_runs(made, "json" if args.json else "text")
    return 0
