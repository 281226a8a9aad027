"""Finding things by part of their name, and the list of keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.core.rules import RULES
from compatgate.web.ui.links import link
from compatgate.web.ui.nav import NAVIGATION
from compatgate.web.ui.page import Ask, Goto, Shown, page

_MOST = 6
_VERDICT = re.compile(r"vd_[0-9a-f]{32}")
_RUN = re.compile(r"run_[0-9a-z]+")


class Words(Struct, frozen=True, forbid_unknown_fields=True):
    """What is looked for."""

    q: Annotated[str, Meta(max_length=200)] = ""


class Found(Struct, frozen=True):
    """Something of that name."""

    name: str
    kind: str
    href: str


@page("/search", query=Words)
def find(ask: Ask[Words]) -> Shown | Goto:
    """Pages, targets, entries, waivers, nodes, runs, verdicts and rules."""
    word = ask.query.q.strip()
    found = list(_matching(ask, word)) if word else []
    return Shown("search.html", "Search", {"word": word, "found": found})


def _matching(ask: Ask[Any], word: str) -> Iterator[Found]:
    if _VERDICT.fullmatch(word):
        yield Found(word, "verdict", link("verdicts", word))
    if _RUN.fullmatch(word):
        yield Found(word, "run", link("runs", word))
    folded = word.casefold()
    snapshot = ask.gate.snapshot()
    pages = [
        Found(item.label, "page", link(item.path) if item.path else link())
        for group in NAVIGATION
        for item in group.items
        if ask.principal.may(item.scope)
    ]
    yield from _first((one for one in pages if folded in one.name.casefold()), _MOST)
    for kind, names in (
        ("targets", snapshot.documents),
        ("entries", snapshot.entries),
        ("waivers", snapshot.waivers),
    ):
        matching = sorted(name for name in names if folded in name.casefold())
        matching.sort(key=lambda name: not name.casefold().startswith(folded))
        for name in matching[:_MOST]:
            yield Found(name, {"entries": "entry"}.get(kind, kind[:-1]), link(kind, name))
    for view in ask.gate.nodes.list(search=word, limit=_MOST).items:
        place = link("nodes", view.row.name, cluster=view.row.cluster)
        yield Found(view.row.name, f"node of {view.row.cluster}", place)
    rules = (
        Found(f"{rule.id} {rule.name}", "rule", link("rules", rule.id))
        for rule in RULES
        if folded in f"{rule.id} {rule.name}".casefold()
    )
    yield from _first(rules, _MOST)


def _first(found: Iterable[Found], most: int) -> list[Found]:
    return [one for one, _ in zip(found, range(most), strict=False)]


@page("/keys", scope=None)
def show_keys(ask: Ask[Any]) -> Shown:
    """Which keys do what."""
    return Shown("keys.html", "Keys")
