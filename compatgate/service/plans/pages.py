"""Show the plan of an upgrade on a target."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.core.request import parse_changes_text
from compatgate.errors import CompatgateError
from compatgate.kit.http.links import link
from compatgate.service.plans.sections import arrange
from compatgate.service.plans.service import plan_upgrade
from compatgate.service.web.page import HtmlPage, PageRequest, page

_Text = Annotated[str, Meta(max_length=256)]


class PlanQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The upgrade to plan."""

    driver: _Text = ""
    cuda: _Text = ""
    set: _Text = ""
    pool: _Text = ""

    def body(self) -> dict[str, Any]:
        """Return the question: ``newest`` and a branch are upgrades, a release is a change.

        Raises:
            BadInput: an item of ``set`` is not ``name=value``.
        """
        upgrades, changes = [], parse_changes_text(self.set)
        for name in ("driver", "cuda"):
            value = getattr(self, name).strip()
            if value == "newest":
                upgrades.append(name)
            elif value and (name == "cuda" or value.isdigit()):
                upgrades.append(f"{name}={value}")
            elif value:
                changes[name] = value
        body = {"set": changes, "upgrade": upgrades, "pool": self.pool or None}
        return {key: value for key, value in body.items() if value}


@page("/targets/<name>/plan", scope="plan", nav="targets", query=PlanQuery)
def show_plan(ask: PageRequest[PlanQuery]) -> HtmlPage:
    """Show what an upgrade breaks, required canary runs, and the order of pools and waves."""
    name, query, gate = ask.args["name"], ask.query, ask.gate
    row = gate.matrix.get("Target", name)
    plan: dict[str, Any] | None = None
    problem: CompatgateError | None = None
    if query.driver or query.cuda or query.set:
        try:
            plan = plan_upgrade(gate, name, query.body())
        except CompatgateError as error:
            problem = error
    target = gate.snapshot().targets.get(name)
    context = {
        "row": row,
        "query": query,
        "plan": plan,
        "problem": problem,
        "pools": [pool.name for pool in target.pools] if target else [],
        "branches": [
            str(branch.branch)
            for branch in gate.facts.driver_branches.branches.values()
            if branch.last is not None
        ],
        "sections": arrange(plan) if plan else [],
        "upgrade": _upgrade_link(ask, name, plan) if plan else None,
    }
    status = problem.status if problem else 200
    return HtmlPage("plan.html", f"{name}: plan an upgrade", context, None, status)


def _upgrade_link(ask: PageRequest[PlanQuery], target: str, plan: dict[str, Any]) -> str | None:
    """Return the form that makes a plan an upgrade; None: the caller may not, or nothing rolls."""
    driver = plan["set"].get("driver")
    if not driver or len(plan["set"]) > 1 or not ask.principal.may("upgrade"):
        return None
    if not plan["order"]["waves"]:
        return None
    name = f"{target}-{driver}"[:128].rstrip(".-_")
    return link("new-upgrade", name=name, target=target, driver=driver, pool=ask.query.pool)
