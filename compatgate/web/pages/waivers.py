"""Show, create and end waivers."""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate.core.rules import RULES
from compatgate.documents.convert import to_waiver
from compatgate.documents.specs import WaiverDoc, decode
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.http.schemas import Filter, Search
from compatgate.kit.ui.tables import Act, Cell, TableQuery, make_table
from compatgate.service.matrix.documents.waivers import (
    Countdown,
    count_down,
    end_document,
    list_countdowns,
)
from compatgate.web.page import (
    HtmlPage,
    PageRequest,
    Redirect,
    choices,
    expected_revision,
    listing,
    page,
)

MAX_REVISIONS = 20
_MAX_ENDED = 100
_STATE_TEXTS = {"active": "holds", "soon": "ends soon", "expired": "ended"}
_STATE_TONES = {"active": "pass", "soon": "warn", "expired": "muted"}


class WaiverQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of waivers."""

    search: Search | None = None
    target: Filter | None = None
    owner: Filter | None = None


@page("/waivers", nav="waivers", query=WaiverQuery)
def show_waivers(ask: PageRequest[WaiverQuery]) -> HtmlPage:
    """Show active waivers, the next to end first, and a list of ended waivers."""
    query, snapshot = ask.query, ask.gate.snapshot()
    found = list_countdowns(
        snapshot.waivers.values(),
        clock.today(),
        target=query.target or "",
        owner=query.owner or "",
        search=query.search or "",
    )
    over = [one for one in found if one.state == "expired"][::-1]
    held = [one for one in found if one.state != "expired"]
    wanted = [*held, *over] if query.format else held
    may_end = ask.principal.may("bless")

    def cells(one: Countdown) -> dict[str, Any]:
        waiver, can_end = one.waiver, may_end and one.state != "expired"
        end = Act("End…", f"{link('waivers', waiver.name)}#end")
        versions = " · ".join(f"{name} {text}" for name, text in waiver.components.items())
        return {
            "state": Cell(_STATE_TEXTS[one.state], tone=_STATE_TONES[one.state]),
            "acts": Cell(None, acts=(end,) if can_end else ()),
            "for": waiver.image or versions or None,
        }

    ended = listing("waivers").without("left", "acts", name="ended", label="waivers")
    context = {
        "over": make_table(ended, over[:_MAX_ENDED], cells, filtered=True),
        "over_total": len(over),
        "targets": choices(snapshot.documents),
        "owners": choices(waiver.owner for waiver in snapshot.waivers.values()),
    }
    table = make_table(listing("waivers"), wanted, cells, sort=query.sort, filtered=True)
    return HtmlPage("waivers.html", "Waivers", context, table)


@page("/waivers/<name>", nav="waivers", query=TableQuery)
def show_waiver(ask: PageRequest[Any]) -> HtmlPage:
    """Show a waiver."""
    row = ask.rooms.matrix.get("Waiver", ask.args["name"])
    document = decode("Waiver", msgspec.json.encode(row.document))
    assert isinstance(document, WaiverDoc)  # noqa: S101 - what was asked for
    context = {
        "row": row,
        "one": count_down(to_waiver(document), clock.today()),
        "rule_names": {rule.id: rule.name for rule in RULES},
        "history": ask.rooms.matrix.list_changes("Waiver", row.name, limit=MAX_REVISIONS),
    }
    return HtmlPage("waiver.html", row.name, context)


@page("/waivers/<name>/end", scope="bless", method="POST", nav="waivers", refused=show_waiver)
def end_waiver(ask: PageRequest[Any]) -> Redirect:
    """End or delete a waiver; its history stays."""
    name, matrix = ask.args["name"], ask.rooms.matrix
    row = matrix.get("Waiver", name)
    expected, by = expected_revision(ask.form), ask.by()
    if ask.form.get("how") == "delete":
        revision = matrix.delete("Waiver", name, by, expected=expected)
        return Redirect(link("waivers"), f"Deleted {name} in revision {revision}.")
    matrix.change("Waiver", name, end_document(row.document, clock.today()), by, expected=expected)
    return Redirect(link("waivers", name), f"Ended {name}.")
