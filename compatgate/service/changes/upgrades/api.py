"""Serve upgrades: propose, start waves, stop and roll back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from flask import request
from msgspec import Meta, Struct

from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Route, Routes
from compatgate.kit.http.schemas import ReasonQuery
from compatgate.service.changes.upgrades.schemas import (
    UPGRADE_EXAMPLE,
    LeaveOutRequest,
    MayStartBody,
    UpgradeBody,
    UpgradeFilters,
    UpgradeRequest,
    UpgradeSummary,
    WaveNumber,
)
from compatgate.service.changes.upgrades.service import Upgrades, UpgradeView
from compatgate.service.changes.upgrades.views import describe, describe_answer

routes = Routes("upgrades", targets="checked", scope="upgrade")


class MayStartQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Wave to ask about, and the person or tool that would roll the wave."""

    wave: Annotated[WaveNumber, Meta(description="default: the next wave")] | None = None
    by: Annotated[
        Annotated[str, Meta(min_length=1, max_length=128)] | None,
        Meta(
            description="name of the person or tool that would roll the wave, for example a"
            " pipeline run; it holds the wave for 15 minutes after each request; default: the"
            " caller's name"
        ),
    ] = None
    dry_run: Annotated[bool, Meta(description="report only; do not start the wave")] = False


@routes.pages("/upgrades", UpgradeSummary, "A page of upgrades", query=UpgradeFilters)
def list_upgrades(call: Call[UpgradeFilters]) -> Reply:
    """List upgrades, newest first."""
    found = call.use(Upgrades).list(**call.query.filters(), within=call.principal)
    return page_reply(found)


@routes.post(
    "/upgrades",
    Returns(UpgradeBody, "The new upgrade", status=201),
    body=Body(UpgradeRequest, examples={"upgrade": UPGRADE_EXAMPLE}, argument="upgrade"),
    reason="body",
    errors=(404, 409),
)
def create_upgrade(call: Call[NoQuery]) -> Reply:
    """Propose a driver upgrade of a target, with waves from its plan.

    No wave starts. Nodes that are reported later are in no wave. The request is refused (409) if no
    node would take the driver, or if a node is in another open upgrade.
    """
    asked = to_struct(call.document(), UpgradeRequest)
    return _reply(call.use(Upgrades).propose(asked, call.by()), status=201)


def _reply(view: UpgradeView, *, status: int = 200) -> Reply:
    return Reply(describe(view), status=status)


@routes.shows("/upgrades/{name}", UpgradeBody, "The upgrade")
def show_upgrade(call: Call[NoQuery]) -> Reply:
    """Show an upgrade: waves with their answers, requirements and their state."""
    return _reply(call.use(Upgrades).show(call.args["name"], call.principal))


@routes.get(
    "/upgrades/{name}/may-start",
    Returns(MayStartBody, "The answer; wait and roll back also return 200"),
    scope="upgrade",
    query=MayStartQuery,
    errors=(404,),
)
def may_start(call: Call[MayStartQuery]) -> Reply:
    """Start a wave if allowed, and hold it for the caller.

    `start`: roll the wave, and ask again before the hold ends, to keep the wave and to see a
    trigger. `wait`: ask again later; `reasons` says why. `roll back`: stop, and reinstall the
    former driver. `done`: the wave is complete. The first `start` starts the wave; only the caller
    may roll it during the hold. Each request also makes the gate check for triggers. With
    `dry_run` the gate starts and records nothing.
    """
    query = call.query
    view = call.use(Upgrades).ask(
        call.args["name"],
        call.principal,
        wave=query.wave,
        holder=query.by,
        dry_run=query.dry_run or request.method == "HEAD",
    )
    after = view.decision.retry_after
    headers = {"Retry-After": str(after)} if after is not None else {}
    return Reply(describe_answer(view), headers=headers, secret=True)


def _change(
    action: str, returns: str, **fields: Any
) -> Callable[[Callable[[Call[Any]], Reply]], Route]:
    path, found = f"/upgrades/{{name}}/{action}", Returns(UpgradeBody, returns)
    return routes.post(path, found, errors=(404, 409), **fields)


@_change("approve", "The upgrade", scope="approve")
def approve_upgrade(call: Call[NoQuery]) -> Reply:
    """Approve another person's upgrade. The target's policy says how many people must agree."""
    return _reply(call.use(Upgrades).approve(call.args["name"], call.principal))


@_change("retract", "The upgrade without your approval", scope="approve")
def retract_upgrade(call: Call[NoQuery]) -> Reply:
    """Withdraw your approval of an upgrade. A wave that has started waits, too."""
    return _reply(call.use(Upgrades).retract(call.args["name"], call.principal))


@_change("stop", "The stopped upgrade", query=ReasonQuery, reason="query")
def stop_upgrade(call: Call[ReasonQuery]) -> Reply:
    """Stop an upgrade: every wave waits until someone resumes it."""
    return _reply(call.use(Upgrades).stop(call.args["name"], call.by()))


@_change("resume", "The upgrade", query=ReasonQuery, reason="query")
def resume_upgrade(call: Call[ReasonQuery]) -> Reply:
    """Resume a stopped upgrade. A rolled-back upgrade cannot be resumed (409)."""
    return _reply(call.use(Upgrades).resume(call.args["name"], call.by()))


@_change("roll-back", "The upgrade, which has ended", query=ReasonQuery, reason="query")
def roll_back_upgrade(call: Call[ReasonQuery]) -> Reply:
    """Roll an upgrade back: `may-start` then answers `roll back` for every wave."""
    return _reply(call.use(Upgrades).roll_back(call.args["name"], call.by()))


@_change(
    "leave-out",
    "The upgrade without these nodes",
    body=Body(LeaveOutRequest, examples={"node": {"nodes": ["gpu-17"], "reason": "in repair"}}),
    reason="body",
)
def leave_out_nodes(call: Call[NoQuery]) -> Reply:
    """Exclude nodes: no wave waits for them, and their reports trigger no rollback."""
    asked = to_struct(call.document(), LeaveOutRequest)
    return _reply(call.use(Upgrades).leave_out(call.args["name"], asked.nodes, call.by()))
