"""Waivers: what is excepted, for how long, by whom; made and ended here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from compatgate.core.rules import RULES
from compatgate.documents.convert import to_waiver
from compatgate.documents.specs import WaiverDoc, decode
from compatgate.errors import CompatgateError
from compatgate.gate.waiving import Countdown, countdown, countdowns, ended, from_form
from compatgate.store import clock
from compatgate.store.rows import Stored
from compatgate.web.paging import Filter, Search
from compatgate.web.ui.forms import MOST_CHOICES, choices, expected_revision
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing, is_narrowed
from compatgate.web.ui.page import Ask, Goto, Shown, page
from compatgate.web.ui.tables import NOTHING_FITS, Cell, Column, Empty, Table, make

REVISIONS = 20
USUAL_DAYS = 7
"""What the form proposes as the end."""
_MOST_ENDED = 100
_COLUMNS = (
    Column("name", "Waiver"),
    Column("left", "Days left", "number"),
    Column("state", "State", "badge"),
    Column("expires", "Last day", "code"),
    Column("rules", "Rules", "code"),
    Column("targets", "Targets"),
    Column("for", "Match", "code"),
    Column("owner", "Owner"),
    Column("reason", "Reason"),
)
_EMPTY = Empty(
    "No waivers.",
    "A waiver excepts a finding until a date, with an owner and a reason. "
    "Import it with the matrix, or create it with the button above.",
    "compatgate matrix import waiver.yaml --reason 'until the move'",
)
_WORDS = {"active": "holds", "soon": "ends soon", "expired": "ended"}
_TONES = {"active": "pass", "soon": "warn", "expired": "muted"}


class WaiverQuery(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which waivers."""

    search: Search | None = None
    target: Filter | None = None
    owner: Filter | None = None


@page("/waivers", nav="waivers", query=WaiverQuery)
def listing(ask: Ask[WaiverQuery]) -> Shown:
    """Waivers that hold, those that end first before others; those that ended apart."""
    query, snapshot = ask.query, ask.gate.snapshot()
    found = countdowns(
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
        "over": _table("ended", over[:_MOST_ENDED], None),
        "over_total": len(over),
        "targets": choices(names),
        "owners": sorted({waiver.owner for waiver in snapshot.waivers.values()})[:MOST_CHOICES],
    }
    return Shown("waivers.html", "Waivers", context, table=_table("waivers", wanted, query.sort))


def _table(name: str, found: Iterable[Countdown], sort: str | None) -> Table:
    lines = [_line(one) for one in found]
    return make(
        name, _COLUMNS, lines, NOTHING_FITS if is_narrowed() else _EMPTY, sort=sort, label="waivers"
    )


def _line(one: Countdown) -> tuple[Any, ...]:
    waiver = one.waiver
    return (
        Cell(waiver.name, href=link("waivers", waiver.name)),
        one.days,
        Cell(_WORDS[one.state], tone=_TONES[one.state]),
        waiver.expires,
        ", ".join(waiver.rules),
        ", ".join(waiver.targets),
        waiver.image or " · ".join(f"{k} {v}" for k, v in waiver.components.items()) or None,
        waiver.owner,
        waiver.reason,
    )


@page("/waivers/<name>", nav="waivers", query=Listing)
def show(ask: Ask[Any]) -> Shown:
    """One waiver."""
    return _shown(ask, ask.gate.matrix.get("Waiver", ask.args["name"]))


def _shown(ask: Ask[Any], row: Stored, error: CompatgateError | None = None) -> Shown:
    document = decode("Waiver", msgspec.json.encode(row.document))
    assert isinstance(document, WaiverDoc)  # noqa: S101 - what was asked for
    history = ask.gate.matrix.list_changes("Waiver", row.name, limit=REVISIONS)
    context = {
        "row": row,
        "one": countdown(to_waiver(document), clock.today()),
        "rule_names": {rule.id: rule.name for rule in RULES},
        "history": history,
        "error": error,
        "typed": ask.form,
    }
    return Shown("waiver.html", row.name, context, status=error.status if error else 200)


_Word = Annotated[str, Meta(max_length=2000)]


class Begun(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the form begins with: a verdict's page knows the rules, the target and the stack."""

    rules: _Word = ""
    targets: _Word = ""
    image: _Word = ""
    components: _Word = ""


@page("/new-waiver", scope="bless", nav="waivers", query=Begun)
def begin(ask: Ask[Begun]) -> Shown:
    """The form that makes a waiver."""
    query = ask.query
    begun = {
        "rules": query.rules,
        "targets": query.targets,
        "image": query.image,
        "components": query.components,
        "expires": (clock.today() + timedelta(days=USUAL_DAYS)).isoformat(),
    }
    return _form(ask, begun)


def _form(ask: Ask[Any], typed: dict[str, str], error: CompatgateError | None = None) -> Shown:
    context = {
        "typed": typed,
        "error": error,
        "today": clock.today().isoformat(),
        "rules": RULES,
        "targets": sorted(ask.gate.snapshot().documents)[:MOST_CHOICES],
    }
    return Shown("new-waiver.html", "New waiver", context, status=error.status if error else 200)


@page("/new-waiver", scope="bless", method="POST", nav="waivers")
def create(ask: Ask[Any]) -> Shown | Goto:
    """Make a waiver."""
    try:
        made = ask.gate.matrix.create("Waiver", from_form(ask.form), ask.by())
    except CompatgateError as error:
        return _form(ask, ask.form, error)
    return Goto(link("waivers", made.name), done=f"Created {made.name}.")


@page("/waivers/<name>/end", scope="bless", method="POST", nav="waivers")
def end(ask: Ask[Any]) -> Shown | Goto:
    """End a waiver today, or delete it; its history stays either way."""
    name, matrix = ask.args["name"], ask.gate.matrix
    row = matrix.get("Waiver", name)
    try:
        expected, by = expected_revision(ask.form), ask.by()
        if ask.form.get("how") == "delete":
            revision = matrix.delete("Waiver", name, by, expected=expected)
            done = f"{name} is deleted by revision {revision}; what it was stays there."
            return Goto(link("waivers"), done=done)
        matrix.change("Waiver", name, ended(row.document, clock.today()), by, expected=expected)
    except CompatgateError as error:
        return _shown(ask, matrix.get("Waiver", name), error)
    return Goto(link("waivers", name), done=f"Ended {name}.")
