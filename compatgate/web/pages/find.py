"""Show the palette: one field that answers questions and finds objects, on every page."""

from __future__ import annotations

from typing import Annotated, Any

from flask import request
from msgspec import Meta, Struct

from compatgate.core.worded_question import MAX_QUESTION, names_component, read_question
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.http.links import link
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page
from compatgate.web.pages.ask import LONGEST_PASTE, fill_question, read_text
from compatgate.web.pages.cells import TONES
from compatgate.web.pages.finder import Findings, find, find_causes

_Text = Annotated[str, Meta(max_length=MAX_QUESTION)]


class FindQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The text."""

    q: _Text = ""


@page("/find", query=FindQuery)
def show_find(ask: PageRequest[FindQuery]) -> HtmlPage | Redirect:
    """Answer a question in words, and find pages, objects, ids and causes of errors.

    A text that is the name or id of one object leads to it; what is found while one types does
    not.
    """
    found = find(ask.rooms, ask.query.q, ask.principal.may)
    exact = [hit for hit in found.hits if hit.exact]
    if len(exact) == 1 and not found.answer and not request.headers.get("HX-Request"):
        return Redirect(exact[0].href)
    return _page(ask.query.q.strip(), found)


@page("/search", query=FindQuery)
def show_search(ask: PageRequest[FindQuery]) -> Redirect:
    """Redirect links to the former address of the palette."""
    return Redirect(link("find", q=ask.query.q))


@page("/find/paste", scope="gate", method="POST")
def paste_text(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Read pasted text: a question in several lines, an error, or what the page Ask reads.

    Nothing is stored or logged.
    """
    text = ask.form.get("text", "")[:LONGEST_PASTE]
    if _is_question(ask, text):
        return Redirect(link("find", q=" ".join(text.split())))
    causes = find_causes(ask.rooms, text)
    if any(cause.confidence == "certain" for cause in causes):
        return _page("", Findings(causes=causes), text)
    try:
        found = read_text(ask, text)
    except CompatgateError as error:
        if causes:
            return _page("", Findings(causes=causes), text)
        problem = BadInput(
            "this text is not recognised",
            field="text",
            hint="paste an error, the output of nvidia-smi, a lockfile, an SBOM, an image or"
            " versions" + (f"; {error.problem}" if error.field != "pasted" else ""),
        )
        return _page("", Findings(problem=problem), text)
    return fill_question({}, found)


def _is_question(ask: PageRequest[Any], text: str) -> bool:
    if len(text) > MAX_QUESTION or not names_component(text):
        return False
    try:
        read = read_question(text, ask.gate.facts, ask.gate.snapshot().targets)
    except CompatgateError:
        return False
    return bool(read.stack) and not read.image


def _page(word: str, found: Findings, pasted: str = "") -> HtmlPage:
    context = {"word": word, "found": found, "pasted": pasted, "tones": TONES}
    return HtmlPage("find.html", "Find", context, error=found.problem if pasted else None)
