"""Draft an upgrade from a plan: waves, nodes and failure domains, ready to store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, Conflict
from compatgate.service.matrix.service import Authorship
from compatgate.service.upgrades.repository import MAX_SOAK, split_key
from compatgate.service.upgrades.schemas import UpgradeRequest

_KEPT = ("set", "verdict", "allowed", "mode", "summary", "groups", "edits", "owed", "remarks")
_encode = msgspec.json.Encoder(order="deterministic").encode


class Draft(Struct, frozen=True):
    """The rows of an upgrade that is not stored yet."""

    values: dict[str, Any]
    waves: list[dict[str, Any]]
    nodes: list[dict[str, Any]]


def make_question(request: UpgradeRequest) -> dict[str, Any]:
    """Return the question to the plan; a driver without a dot is a branch."""
    body: dict[str, Any] = {"rack_labels": request.rack_labels}
    if "." in request.driver:
        body["set"] = {"driver": request.driver}
    else:
        body["upgrade"] = [f"driver={request.driver}"]
    if request.pool:
        body["pool"] = request.pool
    return body


def draft_upgrade(
    request: UpgradeRequest, plan: Mapping[str, Any], by: Authorship, at: datetime,
    drivers: Mapping[str, str | None],
) -> Draft:  # fmt: skip
    """Return the rows of a new upgrade.

    Args:
        request: of the author.
        plan: of the driver, with nodes named by key.
        by: author and reason.
        at: now.
        drivers: of the nodes, by key.

    Raises:
        BadInput: the soak is not a duration.
        Conflict: no node would take the driver.
    """
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
    waves: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    for wave in order["waves"]:
        waves.append({"number": wave["number"], "pools": _encode(wave["pools"]).decode()})
        for domain in wave["domains"]:
            label = f"{domain['kind']} {domain['name']}"
            for key in domain["nodes"]:
                cluster, name = split_key(key)
                nodes.append({
                    "cluster": cluster, "name": name, "wave": wave["number"], "domain": label,
                    "driver": drivers.get(key), "left_out": None,
                })  # fmt: skip
    kept = {name: plan[name] for name in _KEPT}
    kept["pools"] = order["pools"]
    kept["order_remarks"] = order["remarks"]
    values = {
        "name": request.name,
        "target": request.target,
        "driver": str(plan["set"]["driver"]),
        "state": "proposed",
        "soak_s": soak_s,
        "health": request.health,
        "accepts": _encode(request.accepts).decode(),
        "reason": by.reason,
        "why": "",
        "author": by.author,
        "identity": by.identity,
        "made_at": at,
        "plan": _encode(kept).decode(),
    }
    return Draft(values, waves, nodes)
