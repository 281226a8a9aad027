"""Show, create and end waivers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from compatgate.core.rules import RULES
from compatgate.documents.convert import to_waiver
from compatgate.documents.specs import WaiverDoc, decode
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.http.schemas import Filter, Search
from compatgate.kit.ui.tables import (
    NO_MATCHES,
    Act,
    Cell,
    Column,
    EmptyNotice,
    Table,
    TableQuery,
    is_narrowed,
    make_table,
)
from compatgate.service.matrix.documents.models import StoredDocument
from compatgate.service.matrix.waivers.service import (
    Countdown,
    count_down,
    end_document,
    list_countdowns,
)
from compatgate.web.page import (
    MAX_CHOICES,
    HtmlPage,
    PageRequest,
    Redirect,
    choices,
    expected_revision,
    page,
)

MAX_REVISIONS = 20
_MAX_ENDED = 100
_COLUMNS = (
    Column("name", "Waiver"),
    Column("left", "Days left", "number"),
    Column("state", "State", "badge"),
    Column("acts", "Actions", "acts"),
    Column("expires", "Last day", "code"),
    Column("rules", "Rules", "code"),
    Column("targets", "Targets"),
    Column("for", "Match", "code"),
    Column("owner", "Owner", "name"),
    Column("reason", "Reason"),
)
_EMPTY = EmptyNotice(
    "No waivers.",
    "A waiver accepts a finding until a date, with an owner and a reason. "
    "Import it with the matrix, or create it with the button above.",
    "compatgate matrix import waiver.yaml --reason 'until the move'",
)
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
    names = snapshot.documents
    context = {
        "query": query,
        "over": _waiver_table("ended", over[:_MAX_ENDED]),
        "over_total": len(over),
        "targets": choices(names),
        "owners": sorted({waiver.owner for waiver in snapshot.waivers.values()})[:MAX_CHOICES],
    }
    may_end = ask.principal.may("bless")
    table = _waiver_table("waivers", wanted, query.sort, may_end=may_end)
    return HtmlPage("waivers.html", "Waivers", context, table=table)


def _waiver_table(
    name: str, found: Iterable[Countdown], sort: str | None = None, *, may_end: bool = False
) -> Table:
    lines = [_waiver_row(one, may_end=may_end) for one in found]
    return make_table(
        name, _COLUMNS, lines, NO_MATCHES if is_narrowed() else _EMPTY, sort=sort, label="waivers"
    )


def _waiver_row(one: Countdown, *, may_end: bool) -> tuple[Any, ...]:
    waiver = one.waiver
    acts = (Act("End…", f"{link('waivers', waiver.name)}#end"),)
    return (
        Cell(waiver.name, href=link("waivers", waiver.name)),
        one.days,
        Cell(_STATE_TEXTS[one.state], tone=_STATE_TONES[one.state]),
        Cell(None, acts=acts if may_end and one.state != "expired" else ()),
        waiver.expires,
        ", ".join(waiver.rules),
        ", ".join(waiver.targets),
        waiver.image or " · ".join(f"{k} {v}" for k, v in waiver.components.items()) or None,
        waiver.owner,
        waiver.reason,
    )


@page("/waivers/<name>", nav="waivers", query=TableQuery)
def show_waiver(ask: PageRequest[Any]) -> HtmlPage:
    """Show a waiver."""
    return _waiver_page(ask, ask.rooms.matrix.get("Waiver", ask.args["name"]))


def _waiver_page(
    ask: PageRequest[Any], row: StoredDocument, error: CompatgateError | None = None
) -> HtmlPage:
    document = decode("Waiver", msgspec.json.encode(row.document))
    assert isinstance(document, WaiverDoc)  # noqa: S101 - what was asked for
    history = ask.rooms.matrix.list_changes("Waiver", row.name, limit=MAX_REVISIONS)
    context = {
        "row": row,
        "one": count_down(to_waiver(document), clock.today()),
        "rule_names": {rule.id: rule.name for rule in RULES},
        "history": history,
        "error": error,
        "typed": ask.form,
    }
    return HtmlPage("waiver.html", row.name, context, status=error.status if error else 200)


@page("/waivers/<name>/end", scope="bless", method="POST", nav="waivers")
def end_waiver(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """End or delete a waiver; its history stays."""
    name, matrix = ask.args["name"], ask.rooms.matrix
    row = matrix.get("Waiver", name)
    try:
        expected, by = expected_revision(ask.form), ask.by()
        if ask.form.get("how") == "delete":
            revision = matrix.delete("Waiver", name, by, expected=expected)
            done = f"Deleted {name} in revision {revision}."
            return Redirect(link("waivers"), done=done)
        matrix.change(
            "Waiver", name, end_document(row.document, clock.today()), by, expected=expected
        )
    except CompatgateError as error:
        return _waiver_page(ask, matrix.get("Waiver", name), error)
    return Redirect(link("waivers", name), done=f"Ended {name}.")
