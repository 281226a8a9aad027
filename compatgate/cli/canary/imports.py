"""Run ``compatgate canary import``: store the report of another tool with its source."""

from __future__ import annotations

import argparse
from pathlib import Path

from compatgate.canary.imports import MAX_BYTES
from compatgate.cli.canary.runs import print_runs
from compatgate.cli.gate.opening import Operations, gate_of
from compatgate.core.stack import parse_stack_text
from compatgate.errors import BadInput
from compatgate.gate_client import ask
from compatgate.kit.cli.options import PLACE
from compatgate.kit.cli.output import open_input
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import parse_moment


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
  nccl-tests   output of all_reduce_perf and its siblings, or the JSON of -J
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
