"""The rules, each documented by itself."""

from __future__ import annotations

from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from compatgate.core.rules import BY_ID, RULES
from compatgate.documents.names import did_you_mean
from compatgate.errors import NotFound
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty, make


@page("/rules", nav="rules", query=Listing)
def show_rules(ask: Ask[Listing]) -> Shown:
    """Every rule in one table."""
    columns = (
        Column("id", "Rule", "code"),
        Column("name", "Name"),
        Column("by", "Decided by"),
        Column("says", "Checks"),
    )
    rows = [
        (
            Cell(rule.id, link("rules", rule.id)),
            rule.name,
            "the vendors' facts" if rule.about_facts else "matrix, policy and evidence",
            _first_line(rule.documentation),
        )
        for rule in RULES
    ]
    table = make("rules", columns, rows, Empty("No rules."), sort=ask.query.sort, label="rules")
    return Shown("listing.html", "Rules", table=table)


@page("/rules/<id>", nav="rules")
def show_rule(ask: Ask[Any]) -> Shown:
    """What a rule checks, why, and how to mend what it finds."""
    rule = BY_ID.get(ask.args["id"].upper())
    if rule is None:
        hint = did_you_mean(ask.args["id"].upper(), BY_ID)
        name = ask.args["id"]
        raise NotFound(f"there is no rule {name}", field="id", value=name, hint=hint)
    context = {"rule": rule, "text": Markup(_markdown().render(rule.documentation))}  # noqa: S704
    return Shown("rule.html", f"{rule.id} {rule.name}", context)


@cache
def _markdown() -> MarkdownIt:
    """Markdown without HTML in it: our own docstrings, but escaped all the same."""
    return MarkdownIt("commonmark", {"html": False})


def _first_line(text: str) -> str:
    lines = [line.strip(" #*") for line in text.splitlines() if line.strip()]
    return lines[0] if lines else ""
