"""``compatgate canary show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.cli.gate import add_place, ask, gate_of

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("run", metavar="ID", help="run id, as in canary list")
    add_place(parser)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="output format (default: text)"
    )


def run(args: argparse.Namespace) -> int:
    """Print a run.

    Raises:
        NotFound: there is none of that id.
    """
    from compatgate.cli.database import print_json

    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        found = ask(gate, Operations.show_run, args.run)
    if args.format == "json":
        print_json(found)
    else:
        _print(found)
    return 0


def _print(run: dict[str, Any]) -> None:
    from compatgate.cli.canary.waiting import line
    from compatgate.cli.canary.words import components
    from compatgate.cli.database import print_table, second
    from compatgate.cli.terminal import printable

    print(line(run))
    host = run["on_host"] or run["host"]
    facts = {
        "suite": run["suite"],
        "target": " / ".join(filter(None, (run["target"], run["pool"]))),
        "entry": run["entry"],
        "stack": components(run["stack"]),
        "image": run["image"],
        "gpu": run["gpu"],
        "driver": run["driver"],
        "nodes": run["nodes"] if run["nodes"] > 1 else None,
        "host": f"{host} ({run['worker']})" if host and run["worker"] else host,
        "attempt": f"{run['attempts']} of {run['max_attempts']}" if run["attempts"] else None,
        "asked for": f"{second(run['created_at'])} by {run['asked_by']}",
        "started": second(run["started_at"]),
        "finished": second(run["finished_at"]),
    }
    for name, value in facts.items():
        if value:
            print(f"  {name:<10} {printable(str(value))}")
    if run["steps"]:
        print()
        rows = [
            (s["name"], s["outcome"], s["exit_code"], printable(s["reason"])) for s in run["steps"]
        ]
        print_table(("step", "outcome", "exit", "reason"), rows, empty="")
    _print_peaks(run["steps"])


def _print_peaks(steps: list[dict[str, Any]]) -> None:
    """Metrics beside published peaks; a server from before they were known says none."""
    from compatgate.cli.terminal import printable

    found = [(step["name"], one) for step in steps for one in step.get("peaks", ())]
    if found:
        print()
    for step, one in found:
        print(f"  {step} {one['metric']}: {printable(one['words'])}")
        print(f"    source: {printable(one['source']['title'])}, {one['source']['confidence']}")
