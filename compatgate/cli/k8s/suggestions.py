"""What to label and taint, for people and for kubectl."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compatgate.cli.database import print_json
from compatgate.cli.terminal import printable
from compatgate.gate.cluster.suggest import commands, json_patch, summary, too_many

if TYPE_CHECKING:
    from compatgate.gate.cluster.suggest import Cap, Plan


def print_plans(plans: Sequence[Plan], cap: Cap, form: str) -> int:
    """Print what would be changed, as commands of kubectl or as JSON patches.

    Returns:
        The exit status: 1 where more would be tainted than may be; nothing is printed to run then.
    """
    refused = too_many(plans, cap)
    changing = [one for one in plans if one.changes]
    if form == "json":
        print_json({
            "refused": refused,
            "nodes": [] if refused else [_as_json(one) for one in changing],
        })  # fmt: skip
    elif not refused:
        for one in changing:
            print(f"# {printable(one.node.name)}: {printable(one.decided.why)}")
            for command in commands(one):
                print(command)
    tell(plans, refused)
    return 1 if refused else 0


def tell(plans: Sequence[Plan], refused: Sequence[str]) -> None:
    """The sum, what is left alone, and what is refused, on standard error."""
    counts = ", ".join(f"{count} {state}" for state, count in summary(plans).items())
    changing = sum(one.changes for one in plans)
    print(f"{len(plans)} GPU nodes ({counts or 'none'}), {changing} to change", file=sys.stderr)
    for one in plans:
        for note in one.notes:
            print(printable(f"note: {one.node.name}: {note}"), file=sys.stderr)
    for why in refused:
        print(printable(f"error: {why}"), file=sys.stderr)
    if refused:
        hint = "look at the entries and at 'compatgate nodes list' first"
        print(f"nothing is changed, not even labels: {hint}", file=sys.stderr)


def _as_json(one: Plan) -> dict[str, Any]:
    return {
        "node": one.node.name,
        "driver": one.decided.driver,
        "driver_state": one.decided.state,
        "why": one.decided.why,
        "patch": json_patch(one),
    }
