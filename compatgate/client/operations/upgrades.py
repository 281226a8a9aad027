"""Propose upgrades, ask whether a wave may start, stop and roll back; keep freezes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from compatgate.client.request import (
    Listing,
    Moment,
    Operation,
    Request,
    delete,
    get,
    members,
    pages,
    post,
    put,
)
from compatgate.core.upgrade_state import State
from compatgate.kit.http.schemas import Page
from compatgate.service.nodes.schemas import HealthReport, HealthStored
from compatgate.service.upgrades.schemas import (
    FreezeBody,
    FreezeRequest,
    KnownGoodBody,
    LeaveOutRequest,
    MayStartBody,
    UpgradeBody,
    UpgradeRequest,
    UpgradeSummary,
)


@Listing
def list_upgrades(
    *, state: State | None = None, target: str | None = None
) -> Request[Page[UpgradeSummary]]:
    """List upgrades, newest first.

    Args:
        state: only these.
        target: only of this target.
    """
    return pages("/upgrades", UpgradeSummary, state=state, target=target)


@Operation
def create_upgrade(
    upgrade: UpgradeRequest | Mapping[str, Any], *, reason: str
) -> Request[UpgradeBody]:
    """Propose a driver upgrade of a target, with waves from its plan.

    Args:
        upgrade: name, target, driver, and how waves follow each other.
        reason: of the upgrade.
    """
    body = to_builtins(upgrade) if isinstance(upgrade, Struct) else dict(upgrade)
    body = {**members(**body), "reason": reason}
    return post("/upgrades", UpgradeBody, body=body, reads=UpgradeRequest)


@Operation
def show_upgrade(name: str) -> Request[UpgradeBody]:
    """Show an upgrade: its waves, the answer about each, and what it needs and has."""
    return get("/upgrades/{name}", UpgradeBody, name=name)


@Operation
def may_start(
    name: str,
    *,
    wave: int | None = None,
    by: str | None = None,
    dry_run: bool | None = None,
) -> Request[MayStartBody]:
    """Start a wave if allowed, and hold it for the caller.

    Args:
        name: of the upgrade.
        wave: its number; None: the next one.
        by: who would roll the wave; None: the caller's name.
        dry_run: report only; do not start the wave.
    """
    path = "/upgrades/{name}/may-start"
    return get(path, MayStartBody, name=name, wave=wave, by=by, dry_run=dry_run)


@Operation
def approve_upgrade(name: str) -> Request[UpgradeBody]:
    """Approve somebody else's upgrade."""
    return _change(name, "approve")


@Operation
def retract_upgrade(name: str) -> Request[UpgradeBody]:
    """Withdraw your approval of an upgrade."""
    return _change(name, "retract")


@Operation
def stop_upgrade(name: str, *, reason: str) -> Request[UpgradeBody]:
    """Stop an upgrade: every wave waits until somebody resumes it."""
    return _change(name, "stop", reason=reason)


@Operation
def resume_upgrade(name: str, *, reason: str) -> Request[UpgradeBody]:
    """Resume a stopped upgrade."""
    return _change(name, "resume", reason=reason)


@Operation
def roll_back_upgrade(name: str, *, reason: str) -> Request[UpgradeBody]:
    """Roll an upgrade back: `may_start` then answers ``roll back`` for every wave."""
    return _change(name, "roll-back", reason=reason)


@Operation
def leave_out_nodes(name: str, nodes: Sequence[str], *, reason: str) -> Request[UpgradeBody]:
    """Leave nodes out: no wave waits for them, and what they report is no trigger.

    Args:
        name: of the upgrade.
        nodes: ``cluster/name``, or a name that one cluster has.
        reason: why.
    """
    path = "/upgrades/{name}/leave-out"
    body = {"nodes": list(nodes), "reason": reason}
    return post(path, UpgradeBody, body=body, reads=LeaveOutRequest, name=name)


def _change(name: str, action: str, reason: str | None = None) -> Request[UpgradeBody]:
    return post(f"/upgrades/{{name}}/{action}", UpgradeBody, name=name, reason=reason)


@Listing
def list_freezes(
    *, target: str | None = None, ended: bool | None = None
) -> Request[Page[FreezeBody]]:
    """List freezes by their start.

    Args:
        target: only those that hold its waves.
        ended: those that are over, too.
    """
    return pages("/freezes", FreezeBody, target=target, ended=ended)


@Operation
def set_freeze(
    name: str,
    *,
    since: Moment,
    until: Moment,
    owner: str,
    targets: Sequence[str] = ("*",),
    reason: str,
) -> Request[FreezeBody]:
    """Create or replace a freeze: a period in which no wave starts.

    Args:
        name: of the freeze.
        since: its start, with a zone.
        until: its end, with a zone.
        owner: who answers for it.
        targets: names; ``*`` matches any characters.
        reason: why.
    """
    body = {
        "since": since, "until": until, "owner": owner, "targets": list(targets), "reason": reason,
    }  # fmt: skip
    path = "/freezes/{name}"
    return put(path, FreezeBody, body=body, reads=FreezeRequest, if_match=None, name=name)


@Operation
def delete_freeze(name: str, *, reason: str) -> Request[FreezeBody]:
    """Delete a freeze."""
    return delete("/freezes/{name}", FreezeBody, name=name, reason=reason)


@Listing
def list_known_good() -> Request[Page[KnownGoodBody]]:
    """List the known-good state of each target: what a rollback returns to."""
    return pages("/known-good", KnownGoodBody)


@Operation
def export_known_good(target: str) -> Request[list[dict[str, Any]]]:
    """Export the known-good state of a target, as documents to import."""
    return get("/known-good/{target}", list[dict[str, Any]], target=target)


@Operation
def report_health(report: HealthReport | Mapping[str, Any]) -> Request[HealthStored]:
    """Report the GPU errors of nodes in a period, also that there were none.

    Args:
        report: periods of nodes of one cluster.
    """
    return post("/nodes/health", HealthStored, body=report, reads=HealthReport, repeatable=True)
