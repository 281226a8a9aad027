"""Make the waves of a new upgrade from a plan, ready to store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, Conflict
from compatgate.kit.principal import Authorship
from compatgate.service.changes.upgrades.models import UpgradeRecord
from compatgate.service.changes.upgrades.repository import MAX_SOAK, split_key
from compatgate.service.changes.upgrades.schemas import UpgradeRequest

_PLAN = ("set", "verdict", "allowed", "mode", "summary", "groups", "edits", "owed", "remarks")
"""Members of the plan that stay with the upgrade."""


def make_upgrade(
    request: UpgradeRequest, plan: Mapping[str, Any], by: Authorship, at: datetime
) -> UpgradeRecord:
    """Return a new upgrade; refuse one without nodes, and a soak too long."""
    soak_s = int(parse_duration(request.soak, field="soak").total_seconds())
    if soak_s > MAX_SOAK.total_seconds():
        raise BadInput("is too long", field="soak", value=request.soak, hint="at most 90d")
    order = plan["order"]
    if not order["waves"]:
        held = [f"{one['pool']}: {one['held']}" for one in order["pools"] if one["held"]]
        why = "; ".join([*held, *order["remarks"]]) or "no node of the target is reported"
        raise Conflict(
            f"no node of {request.target} would take driver {plan['set']['driver']}: {why}",
            field="driver", value=request.driver,
            hint=f"compatgate plan --target {request.target} shows the reasons",
        )  # fmt: skip
    about = {"pools": order["pools"], "order_remarks": order["remarks"]}
    return UpgradeRecord(
        name=request.name,
        target=request.target,
        driver=str(plan["set"]["driver"]),
        state="proposed",
        soak_s=soak_s,
        health=request.health,
        accepts=request.accepts,
        reason=by.reason,
        why="",
        author=by.author,
        identity=by.identity,
        made_at=at,
        plan={name: plan[name] for name in _PLAN} | about,
    )


def list_nodes(
    plan: Mapping[str, Any], drivers: Mapping[str, str | None]
) -> Iterator[dict[str, Any]]:
    """Yield the columns of each node of a plan; ``drivers``: what nodes have now, by key."""
    for wave in plan["order"]["waves"]:
        for domain in wave["domains"]:
            label = f"{domain['kind']} {domain['name']}"
            for key in domain["nodes"]:
                cluster, name = split_key(key)
                yield {
                    "cluster": cluster,
                    "name": name,
                    "wave": wave["number"],
                    "domain": label,
                    "driver": drivers.get(key),
                    "left_out": None,
                }
