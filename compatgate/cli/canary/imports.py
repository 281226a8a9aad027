"""Run ``compatgate canary import``: store the report of another tool with its source."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatgate.cli.gate.opening import Operations, add_place, gate_of
from compatgate.errors import BadInput, quote_error
from compatgate.gate_client import ask

if TYPE_CHECKING:
    import argparse

_FORMATS = ("auto", "dcgm", "nccl-tests", "jsonl")
_EPILOG = """\
formats:
  dcgm         JSON of dcgmi diag -j
  nccl-tests   output of all_reduce_perf and its siblings, or the JSON of -J
  jsonl        lines of env, metric and check, as canary programs print them
An imported result is shown with its source. No policy counts it unless the target's
canary.imported names FORMAT@SOURCE for a suite.
exit status: 0 stored, whatever the result; 2 bad input; 3 the gate cannot be reached
"""


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("file", metavar="FILE", help="report file; - for standard input")
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="auto",
        help="report format (default: auto-detect)",
    )
    add(
        "--source",
        required=True,
        metavar="WHO",
        help="measuring party, for example acceptance-lab; on a server the name of the token",
    )
    add("--target", metavar="T", help="target that the result applies to")
    add("--pool", metavar="P", help="pool of the target")
    add("--sku", metavar="GPU", help="measured GPU, if the report names no product")
    add("--driver", metavar="V", help="driver of the hosts, if the report does not state a driver")
    add("--host", metavar="H", help="measured host, if the report does not state a host")
    add("--stack", metavar="LIST", help="measured components, for example cuda=12.4,nccl=2.21.5")
    add(
        "--measured-at",
        metavar="TIME",
        help="end time of the measurement, if the report states no time",
    )
    add("--json", action="store_true", help="print the stored runs as JSON")
    add_place(parser)


def run_import(args: argparse.Namespace) -> int:
    """Import the report."""
    body = _body(args)
    with gate_of(args) as gate:
        from compatgate.cli.canary.runs import print_runs

        content, source = body.pop("content"), body.pop("source")
        made = ask(gate, Operations.import_report, content, source, **body)["runs"]
    print_runs(made, "json" if args.json else "text")
    return 0


def _body(args: argparse.Namespace) -> dict[str, Any]:
    names = ("source", "target", "pool", "sku", "driver", "host")
    body = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    body["format"] = args.format
    body["file"] = "standard input" if args.file == "-" else Path(args.file).name
    body["content"] = _read(args.file)
    if args.stack is not None:
        from compatgate.core.stack import parse_stack_text

        body["stack"] = parse_stack_text(args.stack)
    if args.measured_at is not None:
        from compatgate.kit.clock import parse_moment

        body["measured_at"] = parse_moment(args.measured_at, field="--measured-at").isoformat()
    return body


def _read(path: str) -> str:
    """Return the text of a report."""
    from compatgate.canary.imports import MAX_BYTES

    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = quote_error(error)
        raise BadInput(f"cannot read '{path}'", field="FILE", value=path, hint=hint) from None
    if len(data) > MAX_BYTES:
        hint = f"at most {MAX_BYTES} bytes"
        raise BadInput("the report is too large", field="FILE", value=path, hint=hint)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        problem = f"is no UTF-8 text, byte {error.start}"
        raise BadInput(problem, field="FILE", value=path) from None
