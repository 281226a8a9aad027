"""Show the palette: one field, on every page, that answers a question and finds objects.

A text may be a question in words, an id or its beginning, a name or a part of it, or an error. The
verdict on a question is not logged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any

from flask import request
from msgspec import Meta, Struct

from compatgate.core.performance import near_names
from compatgate.core.rules import RULES
from compatgate.core.stack import format_stack, parse_stack
from compatgate.core.triage import FoundCause
from compatgate.core.worded_question import (
    MAX_QUESTION,
    WordedQuestion,
    is_image,
    names_component,
    read_question,
)
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.service.app import Rooms
from compatgate.service.gate.advice.api import name_causes
from compatgate.service.gate.advice.cells import PlaceAnswers, answer_places
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.web.page import NAVIGATION, HtmlPage, PageRequest, Redirect, page
from compatgate.web.pages.ask import LONGEST_PASTE, fill_question, read_text
from compatgate.web.pages.cells import TONES
from compatgate.web.pages.question_links import Question

MAX_HITS = 6
"""Hits of one kind."""
_MAX_TARGETS = 12
"""Targets that a question without one is answered for."""
_MAX_OTHERS = 6
_SHORTEST_ID, _SHORTEST_ERROR = 4, 12
_VERDICT = re.compile(r"(?:vd_)?([0-9a-f]{4,32})")
_RUN = re.compile(r"run_[0-9a-z]*")
_Word = Annotated[str, Meta(max_length=MAX_QUESTION)]


class Hit(Struct, frozen=True):
    """An object that the text names; ``exact``: by name, id or the only beginning of an id."""

    name: str
    kind: str
    href: str
    exact: bool = False


class OtherAnswer(Struct, frozen=True):
    """The verdict on another release of a series, or on another target."""

    name: str
    verdict: str
    allowed: bool
    href: str


class PaletteAnswer(Struct, frozen=True):
    """The answer to a question in words, with the question in its exact form.

    The verdict is None where the question names no place, and ``others`` are the targets, without
    ``more`` of them; ``places`` are the fleet's pools with the GPU, where no driver is named.
    """

    question: Question
    verdict: dict[str, Any] | None
    assumptions: tuple[str, ...] = ()
    others: tuple[OtherAnswer, ...] = ()
    more: int = 0
    places: PlaceAnswers | None = None


class Findings(Struct, frozen=True):
    """The meaning of a text; ``problem``: why it is no question, where it nearly is one."""

    answer: PaletteAnswer | None = None
    problem: CompatgateError | None = None
    causes: tuple[FoundCause, ...] = ()
    hits: tuple[Hit, ...] = ()
    near: tuple[Hit, ...] = ()


def find(rooms: Rooms, text: str, may: Callable[[str], bool]) -> Findings:
    """Return what a text means, as it was typed; ``may`` tells whether the caller has a scope."""
    word = text.strip()
    if not word:
        return Findings()
    hits = tuple(find_names(rooms, word, may))
    if not may("gate"):
        return Findings(hits=hits, near=() if hits else tuple(find_near(rooms, word)))
    if image := _find_image(rooms, word):
        return Findings(hits=(*image, *hits))
    answer, problem = None, None
    try:
        answer = answer_question(rooms, word)
    except CompatgateError as error:
        problem = error
    causes = () if answer else find_causes(rooms, word)
    near = () if hits or answer or problem or causes else tuple(find_near(rooms, word))
    return Findings(answer, None if causes else problem, causes, hits, near)


def find_causes(rooms: Rooms, text: str) -> tuple[FoundCause, ...]:
    """Return the causes that an error text shows."""
    is_long = len(text) >= _SHORTEST_ERROR
    return name_causes(rooms.gate, text, {}).causes[:MAX_HITS] if is_long else ()


def answer_question(rooms: Rooms, text: str) -> PaletteAnswer | None:
    """Return the answer to a question in words; None: the text asks nothing."""
    if not names_component(text):
        return None
    targets = rooms.gate.snapshot().targets
    read = read_question(text, rooms.gate.facts, targets)
    if not read.stack or read.image:
        return None
    question = to_question(read)
    assumptions = tuple(one.message for one in read.assumptions)
    if question.asks_pools and question.gpu:
        snapshot, parsed = rooms.gate.snapshot(), parse_stack(question.stack_body())
        places = answer_places(snapshot, parsed, question.gpu, clock.now(), _MAX_TARGETS)
        if places.places:
            return PaletteAnswer(question, None, assumptions, places=places)
    if question.target or question.gpu or question.driver:
        verdict = rooms.gate.preview(question.body()).to_json()
        others = []  # the other releases of each series
        for assumed in read.assumptions:
            taken = str(read.stack[assumed.component]).removeprefix(assumed.taken)
            for other in assumed.others[:_MAX_OTHERS]:
                stack = {**read.stack, assumed.component: other + taken}
                asked = WordedQuestion(read.target, stack, driver=read.driver, gpu=read.gpu)
                name = f"{assumed.component} {other}"
                others.append(_answer(rooms, name, to_question(asked)))
        return PaletteAnswer(question, verdict, assumptions, tuple(others))
    answers = tuple(
        _answer(rooms, name, Question(target=name, stack=question.stack))
        for name in sorted(targets)[:_MAX_TARGETS]
    )
    return PaletteAnswer(question, None, assumptions, answers, len(targets) - len(answers))


def _answer(rooms: Rooms, name: str, question: Question) -> OtherAnswer:
    verdict = rooms.gate.preview(question.body())
    return OtherAnswer(name, verdict.verdict, verdict.allowed, question.link())


def to_question(read: WordedQuestion) -> Question:
    """Return a question in words as the page Ask takes it."""
    stack = format_stack(read.stack)
    if not read.target:
        return Question(stack=stack, image=read.image, driver=read.driver, gpu=read.gpu)
    if read.gpu:
        hint = "name the target, or a GPU with its driver"
        raise BadInput("name a target or a GPU, not both", field="gpu", value=read.gpu, hint=hint)
    changes = f"driver={read.driver}" if read.driver else ""
    return Question(target=read.target, stack=stack, image=read.image, set=changes)


def _find_image(rooms: Rooms, word: str) -> tuple[Hit, ...]:
    """Return what can be asked about an image; it is read only when that is chosen."""
    image, _, target = word.partition(" @ ")
    image, target = image.strip(), target.strip()
    if not is_image(image):
        return ()
    known = rooms.gate.snapshot().targets
    names = [target] if target in known else sorted(known)[:MAX_HITS]
    asks = (
        Hit(f"{image} on {name}", "ask", Question(target=name, image=image).link())
        for name in names
    )
    decided = Hit(f"decisions on {image}", "decisions", link("decisions", image=image))
    return (*asks, decided)


def find_names(rooms: Rooms, word: str, may: Callable[[str], bool]) -> Iterator[Hit]:
    """Yield pages and objects whose name contains a text, or whose id begins with it."""
    folded = word.casefold()
    yield from _find_ids(rooms, folded)
    snapshot = rooms.gate.snapshot()
    pages = [
        Hit(item.label, "page", link(item.path) if item.path else link())
        for group in NAVIGATION
        for item in group.items
        if may(item.scope)
    ]
    yield from islice((one for one in pages if folded in one.name.casefold()), MAX_HITS)
    for kind, label, names in _named_documents(snapshot):
        for name in _matching(names, folded):
            yield Hit(name, label, link(kind, name), name == word)
    for view in rooms.nodes.list(search=word, limit=MAX_HITS).items:
        place = link("nodes", view.row.name, cluster=view.row.cluster)
        yield Hit(view.row.name, f"node of {view.row.cluster}", place)
    for name in rooms.upgrades.find_names(word, limit=MAX_HITS):
        yield Hit(name, "upgrade", link("upgrades", name), name == word)
    for name in _matching([host.name for host in rooms.runs.hosts().items], folded):
        yield Hit(name, "staging host", link("hosts", search=name))
    rules = (
        Hit(f"{rule.id} {rule.name}", "rule", link("rules", rule.id), rule.id.casefold() == folded)
        for rule in RULES
        if folded in f"{rule.id} {rule.name}".casefold()
    )
    yield from islice(rules, MAX_HITS)


def _named_documents(snapshot: Snapshot) -> tuple[tuple[str, str, Iterable[str]], ...]:
    return (
        ("targets", "target", snapshot.documents),
        ("entries", "entry", snapshot.entries),
        ("waivers", "waiver", snapshot.waivers),
    )


def _matching(names: Iterable[str], folded: str) -> list[str]:
    """Return the names that contain a text; those that begin with it come first."""
    matches = [name for name in names if folded in name.casefold()]
    matches.sort(key=lambda name: (not name.casefold().startswith(folded), name))
    return matches[:MAX_HITS]


def _find_ids(rooms: Rooms, folded: str) -> Iterator[Hit]:
    if (verdict := _VERDICT.fullmatch(folded)) and len(verdict[1]) >= _SHORTEST_ID:
        verdicts = rooms.decisions.find_verdict_ids(f"vd_{verdict[1]}", limit=MAX_HITS)
        for one in verdicts:
            yield Hit(one, "verdict", link("verdicts", one), len(verdicts) == 1)
    if _RUN.fullmatch(folded) and len(folded) >= _SHORTEST_ID:
        runs = rooms.runs.find_ids(folded, limit=MAX_HITS)
        for one in runs:
            yield Hit(one, "run", link("runs", one), len(runs) == 1)


def find_near(rooms: Rooms, word: str) -> Iterator[Hit]:
    """Yield objects whose names are near to a text that nothing contains."""
    rules = ("rules", "rule", [rule.id for rule in RULES])
    for kind, label, names in (*_named_documents(rooms.gate.snapshot()), rules):
        for name in near_names(word, list(names), most=3):
            yield Hit(name, label, link(kind, name))


class FindQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The text."""

    q: _Word = ""


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
    return _find_page(ask.query.q.strip(), found)


@page("/find/paste", scope="gate", method="POST")
def paste_text(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Read pasted text: a question in several lines, an error, or what the page Ask reads.

    Nothing is stored or logged.
    """
    text = ask.form.get("text", "")[:LONGEST_PASTE]
    if len(text) <= MAX_QUESTION and names_component(text):
        with suppress(CompatgateError):
            read = read_question(text, ask.gate.facts, ask.gate.snapshot().targets)
            if read.stack and not read.image:
                return Redirect(link("find", q=" ".join(text.split())))
    causes = find_causes(ask.rooms, text)
    if any(cause.confidence == "certain" for cause in causes):
        return _find_page("", Findings(causes=causes), text)
    try:
        found = read_text(ask, text)
    except CompatgateError as error:
        if causes:
            return _find_page("", Findings(causes=causes), text)
        problem = BadInput(
            "this text is not recognised",
            field="text",
            hint="paste an error, the output of nvidia-smi, a lockfile, an SBOM, an image or"
            " versions" + (f"; {error.problem}" if error.field != "pasted" else ""),
        )
        return _find_page("", Findings(problem=problem), text)
    return fill_question({}, found)


def _find_page(word: str, found: Findings, pasted: str = "") -> HtmlPage:
    context = {"word": word, "found": found, "pasted": pasted, "tones": TONES}
    return HtmlPage("find.html", "Find", context, error=found.problem if pasted else None)
