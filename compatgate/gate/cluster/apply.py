"""Suggestions carried out on a live cluster, one node after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from compatgate.errors import CompatgateError
from compatgate.gate.cluster.connect import Api
from compatgate.gate.cluster.nodes import node_of
from compatgate.gate.cluster.suggest import Plan, json_patch, plan
from compatgate.kubernetes.errors import Missing, Taken

MANAGER = "compatgate"
"""Field manager of what is changed."""
_TRIES = 5


class Outcome(Struct, frozen=True):
    """What became of a node."""

    plan: Plan
    done: Literal["changed", "gone", "failed"]
    why: str = ""


def apply(api: Api, plans: Iterable[Plan]) -> Iterator[Outcome]:
    """Change what is to be changed; one node that cannot be does not keep the others from it."""
    for one in plans:
        if one.changes:
            yield _apply(api, one)


def _apply(api: Api, wanted: Plan) -> Outcome:
    try:
        for _ in range(_TRIES):
            try:
                body = json_patch(wanted)
                api.ask("core", "patch_node", wanted.node.name, body, field_manager=MANAGER)
                return Outcome(wanted, "changed")
            except Taken:  # the kubelet writes to its node all the time
                found = node_of(api.ask("core", "read_node", wanted.node.name))
                if found is None:
                    return Outcome(wanted, "gone")
                wanted = plan(found, wanted.decided)
                if not wanted.changes:
                    return Outcome(wanted, "changed")
    except Missing:
        return Outcome(wanted, "gone")
    except CompatgateError as error:
        return Outcome(wanted, "failed", error.detail)
    return Outcome(wanted, "failed", "it is changed by others all the time")
