"""Run ``compatgate nodes`` and ``upgrade``: list and report nodes, show drift, upgrade drivers."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from compatgate.catalog import load_facts
from compatgate.cli.commands import Body, Group, Row, columns, declared_rows, format_rows
from compatgate.cli.gate import Client, Operations, asking, gate_of
from compatgate.discovery.probe import probe_machine, read_probe
from compatgate.errors import BadInput, quote_error
from compatgate.gate_client import ask
from compatgate.kit.cli.options import AUTHOR, FORMAT, PLACE, repeat
from compatgate.kit.cli.output import (
    format_fields,
    format_json_time,
    print_answer,
    read_text,
    strip_controls,
)
from compatgate.kit.cli.usage import action
from compatgate.kit.sections import shorten
from compatgate.service.nodes.schemas import CLUSTER, MAX_NODES
from compatgate.strict_json import DECODE_ERRORS

_NONE = "no nodes yet; report them with: compatgate k8s nodes --report"
EXIT = {"start": 0, "done": 0, "roll back": 1, "wait": 3}
"""Exit status by answer; ``done`` of a wave means that nothing is left to do."""
_WAVES = columns(
    *("wave: number", "answer", "nodes", "upgraded", "excluded: left_out"),
    ("domains", lambda wave: shorten([one["name"] for one in wave["domains"]], 2)),
    *("started: started_at", "finished: finished_at"),
)


def format_gpus(node: Body) -> str:
    """Format GPUs as ``8 x A100-SXM4-80GB``."""
    return ", ".join(f"{kind['count']} x {kind['gpu']}" for kind in node["gpus"])


def _remarks(node: Body) -> str:
    remarks = ["stale"] if node["stale"] else []
    remarks += [one["message"] for one in node["drift"]]
    return "; ".join([*remarks, *node["disagreements"], *node["notes"]])


def _seen(node: Body) -> str:
    return f"{format_json_time(node['seen_at'])}{' (stale)' if node['stale'] else ''}"


_COLUMNS = columns(
    *("cluster", "node: name", "driver", ("gpus", format_gpus), "targets"),
    *("driver is: driver_state", "seen: seen_at", ("remarks", _remarks)),
)
_DRIFT = columns(
    *("cluster", "node: name", "target", "what", ("has", lambda one: one["have"] or "not known")),
    *("declared", "since", ("seen", _seen)),
)


@action(
    "report driver, GPUs, parts and settings of a node",
    """\
--probe FILE              output of compatgate probe (default: probe this machine)
--root DIR = /            root folder of the node, if this runs in a container
--name NAME               name of the node (default: host name)
--cluster NAME = default  cluster of the node
--every DURATION          repeat at this interval, for example 10m
""",
    PLACE,
    FORMAT,
)
def _report(args: argparse.Namespace) -> int:
    def report_once() -> int:
        body = own_report(args.probe, args.name, root=args.root)
        with gate_of(args) as gate:
            (node,) = ask(gate, Operations.report_nodes, [body], cluster=args.cluster)["nodes"]
        return print_answer(args.format, node, lambda: format_node(node))

    return repeat(report_once, args.every)


@asking(
    "report nodes from a file",
    """\
FILE       JSON file, as the body of POST /nodes ("-": standard input)
--dry-run  print the result without storing it
""",
)
def _import(args: argparse.Namespace, gate: Client) -> int:
    document = _read_report(args.file)
    nodes, cluster = document["nodes"], document.get("cluster", CLUSTER)
    reported: list[Body] = []
    for start in range(0, len(nodes), MAX_NODES):
        part = nodes[start : start + MAX_NODES]
        answer = ask(gate, Operations.report_nodes, part, cluster=cluster, dry_run=args.dry_run)
        reported += answer["nodes"]
    return print_nodes(args.format, reported, _NONE)


def _read_report(path: str) -> Body:
    """Read a report of nodes; the gate checks its nodes."""
    hint = 'like {"cluster": "prod-eu", "nodes": [{"name": "gpu-17", "probe": {...}}]}'
    try:
        document = msgspec.json.decode(read_text(path, "FILE"))
    except DECODE_ERRORS as error:
        raise BadInput(f"is not JSON: {quote_error(error)}", field=path, hint=hint) from None
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list) or not nodes:
        raise BadInput("lists no nodes", field=path, hint=hint)
    if unknown := sorted(set(document) - {"cluster", "nodes"}):
        raise BadInput("unknown key", field=f"{path}: {unknown[0]}", hint=hint)
    return dict(document)


def own_report(probe: str | None, name: str | None, *, root: str = "/") -> Body:
    """Make a node report from the driver's own report.

    ``probe`` is a file of ``compatgate probe``, ``-`` for standard input; without one this machine
    is probed, whose files lie under ``root`` where this process runs in a container.
    """
    if probe is None:
        document: Mapping[str, Any] = probe_machine(load_facts(), root=root).to_json()
        name = name or socket.gethostname().lower()
    else:
        document = read_probe(read_text(probe, "--probe"), origin=probe)
    if not name:
        hint = "--name is required: a probe does not name its node"
        raise BadInput("name the node that the probe describes", field="--name", hint=hint)
    return {"name": name, "probe": driver_report(document)}


def driver_report(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the driver, GPUs, platform and parts of the node of a probe document."""
    host = document.get("host")
    gpus = host.get("gpus") if isinstance(host, dict) else None
    if not isinstance(host, dict) or not isinstance(gpus, list):
        raise BadInput("does not describe a host", field="--probe", hint="create it with probe -o")
    if any(not isinstance(gpu, dict) or "nodes" in gpu for gpu in gpus):
        hint = "report nodes by their labels: compatgate k8s nodes --report"
        raise BadInput("describes several nodes", field="--probe", hint=hint)
    counts = [{"gpu": gpu.get("product"), "count": gpu.get("devices", 1)} for gpu in gpus]
    stated = {name: host[name] for name in ("driver", "platform", "node") if host.get(name)}
    return {"gpus": counts, **stated}


def print_nodes(form: str, nodes: Sequence[Body], empty: str) -> int:
    """Print a line for each node, or JSON; return exit status 0."""
    return print_answer(form, nodes, format_rows(nodes, _COLUMNS) if nodes else empty)


def format_node(node: Body) -> str:
    """Return every detail of a node as lines."""
    facts = {
        "driver": f"{node['driver'] or 'not known'}, {node['driver_state']}: {node['driver_why']}",
        "GPUs": format_gpus(node) or "none known",
        "platform": node["platform"],
        "node": _format_parts(node["node"] or {}),
        "targets": ", ".join(node["targets"]) or "none",
        "since": format_json_time(node["since"]),
        "seen": f"{_seen(node)}, by {node['reported_by']}",
    }
    lines = [f"{node['cluster']}/{node['name']}", format_fields(facts, "  ", 8)]
    for title, texts in (
        ("drift", [one["message"] for one in node["drift"]]),
        ("sources disagree", node["disagreements"]),
        ("notes", node["notes"]),
        ("witnesses", [*map(_source_text, node["witnesses"])]),
    ):
        lines += [title, *(f"  - {strip_controls(text)}" for text in texts)] if texts else []
    return "\n".join(lines)


def _format_parts(parts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def _source_text(witness: dict[str, Any]) -> str:
    said = [f"driver {witness['driver']}"] if witness.get("driver") else []
    said += [format_gpus(witness)] if witness.get("gpus") else []
    said += [f"platform {witness['platform']}"] if witness.get("platform") else []
    said += [_format_parts(witness["node"])] if witness.get("node") else []
    said += [f"{name}: {count}" for name, count in witness.get("resources", {}).items()]
    what = ", ".join(said) or "nothing"
    return f"{witness['witness']}, {format_json_time(witness['seen_at'])}: {what}"


_STALE = "--stale {yes,no}\n..."
DRIFT = Row(
    "list_drift",
    f"--what PROPERTY\n{_STALE}",
    _DRIFT,
    "no reported node differs from its target (nodes list shows all)",
    items=lambda nodes, args: [
        {**node, **one}
        for node in nodes
        for one in node["differences"]
        if args.what in (None, one["what"])
    ],
)
run = Group(
    {
        "list": Row("list_nodes", _STALE, _COLUMNS, _NONE),
        "drift": DRIFT,
        "show": Row("show_node", text=format_node),
        "remove": Row("remove_node", text="removed {cluster}/{name}"),
        **declared_rows("nodes"),
        "report": _report,
        "import": _import,
    }
)


def _list_lines(upgrade: Body) -> Iterator[str]:
    state = f"{upgrade['state']}: {upgrade['why']}" if upgrade["why"] else upgrade["state"]
    yield f"{upgrade['name']}: driver {upgrade['driver']} on {upgrade['target']}, {state}"
    yield f"proposed by {upgrade['author']}: {upgrade['reason']}"
    yield upgrade["plan"]["summary"]
    if not upgrade["health"]:
        yield "without health reports: GPU errors on upgraded nodes go unnoticed"
    waves = upgrade["wave_list"]
    yield format_rows(waves, _WAVES)
    for wave in waves:
        if wave["answer"] in ("wait", "roll back"):
            for reason in wave["reasons"]:
                yield f"wave {wave['number']}, {wave['answer']}: {reason}"
    for need in upgrade["needs"]:
        yield f"{'required' if need['required'] else 'advised'}: {need['text']}"
    for rate in upgrade["rates"]:
        yield f"{'ALARM ' if rate['alarm'] else ''}{rate['text']}"
    for event in upgrade["events"]:
        which = f" wave {event['wave']}" if event["wave"] else ""
        text = f": {event['text']}" if event["text"] else ""
        what = f"{event['actor'] or 'compatgate'}: {event['action']}{which}{text}"
        yield f"{format_json_time(event['at'])}  {what}"


def _format_upgrade(upgrade: Body) -> str:
    return strip_controls("\n".join(_list_lines(upgrade)))


def _format_answer(answer: Body) -> str:
    lines = [f"{answer['answer'].upper()}: {reason}" for reason in answer["reasons"]]
    if answer["answer"] == "start":
        lines += answer["nodes"]
        if answer["held_until"]:
            until = format_json_time(answer["held_until"])
            lines.append(f"held for {answer['holder']} until {until}; ask again before")
    if good := answer["known_good"]:
        drivers = ", ".join(f"{pool} {driver}" for pool, driver in good["drivers"].items())
        lines.append(f"known good: revision {good['revision']}, drivers {drivers}")
    return strip_controls("\n".join(lines))


_UPGRADES = columns(
    *("upgrade: name", "target", "driver", "state"),
    ("waves", lambda one: f"{one['finished']}/{one['waves']}"),
    *("nodes", "author", "made: made_at", "why"),
)


def _make_body(args: argparse.Namespace) -> Body:
    return {
        "upgrade": {
            **{name: getattr(args, name) for name in ("name", "target", "driver", "pool", "soak")},
            "health": not args.without_health,
            "accepts": args.accept,
            "rack_labels": args.rack_label,
        }
    }


_NAME = "name: UPGRADE\n"


def _change(operation: str, usage: str = _NAME) -> Row:
    action = operation.rpartition("_")[0].replace("_", "-")
    return Row(operation, usage, text=_format_upgrade, reason=f"upgrade {action} {{name}}")


run_upgrade = Group(
    {
        "list": Row("list_upgrades", columns=_UPGRADES),
        "show": Row("show_upgrade", _NAME, text=_format_upgrade),
        "may-start": Row(
            "may_start",
            f"{_NAME}{AUTHOR}--wave N\n--by NAME\n--dry-run",
            text=_format_answer,
            status=lambda answer, _: EXIT[answer["answer"]],
        ),
        "approve": Row("approve_upgrade", _NAME + AUTHOR, text=_format_upgrade),
        "retract": Row("retract_upgrade", _NAME + AUTHOR, text=_format_upgrade),
        "stop": _change("stop_upgrade"),
        "resume": _change("resume_upgrade"),
        "roll-back": _change("roll_back_upgrade"),
        "leave-out": _change(
            "leave_out_nodes", _NAME + "nodes: NODE ...  CLUSTER/NAME, or a unique name"
        ),
        "create": Row(
            "create_upgrade",
            """\
name: UPGRADE             name of the upgrade
--target NAME (required)  target to upgrade
--driver VERSION (required)  driver release, or a branch for its newest release
--pool NAME               only this pool (default: every pool)
--soak DURATION = 24h     time between waves
--without-health          do not wait for health reports of upgraded nodes; GPU errors go unnoticed
--accept ENTRY ...        entry that the upgrade may retire
--rack-label LABEL ...    node label whose value names a rack (default: known topology labels)
""",
            text=_format_upgrade,
            reason="upgrade {target} to driver {driver}",
            values=_make_body,
        ),
    },
    epilog="""\
exit status of may-start: 0 start (or done: nothing is left of the wave), 1 roll back, 2 bad input,
3 wait, or no answer.
""",
)
