"""Nodes for people: tables and lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from compatgate.cli.database import print_table, second
from compatgate.cli.terminal import printable

_HEAD = ("cluster", "node", "driver", "gpus", "targets", "driver is", "seen", "remarks")
_DRIFT = ("cluster", "node", "target", "what", "has", "declared", "since", "seen")


def print_nodes(nodes: Sequence[dict[str, Any]], empty: str) -> None:
    """A line for each node."""
    rows = [
        (
            node["cluster"],
            node["name"],
            node["driver"],
            gpus(node),
            ", ".join(node["targets"]),
            node["driver_state"],
            second(node["seen_at"]),
            printable("; ".join(_remarks(node))),
        )
        for node in nodes
    ]
    print_table(_HEAD, rows, empty=empty)


def print_drift(nodes: Sequence[dict[str, Any]]) -> None:
    """A line for each difference."""
    rows = [
        (
            node["cluster"],
            node["name"],
            one["target"],
            one["what"],
            printable(one["have"] or "not known"),
            ", ".join(one["declared"]),
            second(node["since"]),
            f"{second(node['seen_at'])}{' (stale)' if node['stale'] else ''}",
        )
        for node in nodes
        for one in node["differences"]
    ]
    print_table(
        _DRIFT,
        rows,
        empty="no node that was reported differs from its target (nodes list shows all)",
    )


def print_node(node: dict[str, Any]) -> None:
    """All that is known of a node."""
    print(f"{node['cluster']}/{node['name']}")
    facts = {
        "driver": f"{node['driver'] or 'not known'}, {node['driver_state']}: {node['driver_why']}",
        "GPUs": gpus(node) or "none known",
        "targets": ", ".join(node["targets"]) or "none",
        "since": second(node["since"]),
        "seen": f"{second(node['seen_at'])}{', stale' if node['stale'] else ''}"
        f", by {node['reported_by']}",
    }
    for name, value in facts.items():
        print(f"  {name:<8} {printable(str(value))}")
    for title, texts in (
        ("drift", [one["message"] for one in node["drift"]]),
        ("witnesses disagree", node["disagreements"]),
        ("notes", node["notes"]),
        ("witnesses", list(map(_witness, node["witnesses"]))),
    ):
        if texts:
            print(title)
            for text in texts:
                print(f"  - {printable(text)}")


def gpus(node: dict[str, Any]) -> str:
    """``8 x A100-SXM4-80GB``."""
    return printable(", ".join(f"{kind['count']} x {kind['gpu']}" for kind in node["gpus"]))


def _remarks(node: dict[str, Any]) -> Iterator[str]:
    if node["stale"]:
        yield "stale"
    yield from (one["message"] for one in node["drift"])
    yield from node["disagreements"]
    yield from node["notes"]


def _witness(witness: dict[str, Any]) -> str:
    said = [f"driver {witness['driver']}"] if witness.get("driver") else []
    said += [gpus(witness)] if witness.get("gpus") else []
    said += [f"{name}: {count}" for name, count in witness.get("resources", {}).items()]
    what = ", ".join(said) or "nothing"
    return f"{witness['witness']}, {second(witness['seen_at'])}: {what}"
