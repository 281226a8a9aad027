"""Define the tour of a first visit: a few pages, each with a word on what it is for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

OVER = -1
"""The step of whoever ended the tour, or did not want it."""


class TourStep(Struct, frozen=True):
    """A page of the tour.

    Attributes:
        nav: item of the navigation; its page is the step.
        scope: that the page needs.
        title: of the panel.
        text: what the page is for.
        task: what to do there, to see it.
    """

    nav: str
    scope: str
    title: str
    text: str
    task: str


STEPS = (
    TourStep(
        "home", "read", "Home: what needs attention",
        "Broken things come first, then drift, then what ends soon. Each incident has an owner, "
        "and can be snoozed or resolved.",
        "Open an incident to see its cause and when it began.",
    ),
    TourStep(
        "matrix", "read", "Matrix: what runs where",
        "Rows are blessed stacks, columns are targets. Each cell is decided by the vendors' facts, "
        "then by the matrix, then by evidence of canary runs.",
        "Choose a cell to see the reason and the nearest fix.",
    ),
    TourStep(
        "ask", "gate", "Ask: may this stack run on this target?",
        "The same question that CI and Kubernetes ask. The answer names each rule, what is there, "
        "what is needed, and the source of the statement.",
        "Ask torch=2.4.1+cu124 on a target, or type it into the search field of any page.",
    ),
    TourStep(
        "drift", "read", "Drift: nodes that are not as declared",
        "Nodes report their drivers and GPUs. What differs from the target is here, with the "
        "verdicts that no longer hold.",
        "See which node has another driver, and since when.",
    ),
    TourStep(
        "decisions", "read", "Decisions: every answer that was given",
        "Every answer is kept, with its reasons, in a log that shows when it was changed.",
        "Choose a bar to narrow the time, or group denials by cause.",
    ),
)  # fmt: skip


class TourPlace(Struct, frozen=True):
    """A reader's place in the tour.

    Attributes:
        step: of the tour; None: the tour is offered, or goes on, on another page.
        number: of the step, from 1; 0: not begun.
        before: number of the step before; None: this is the first.
        after: number and title of the next step; None: this is the last.
    """

    step: TourStep | None
    number: int
    before: int | None
    after: tuple[int, str] | None


def find_place(step: int, nav: str, path: str, may: Sequence[str]) -> TourPlace | None:
    """Return where a reader is in the tour; None: this page says nothing of it.

    Args:
        step: that the reader has reached, from 1; 0: not begun; `OVER`.
        nav: item of the navigation of the page.
        path: of the page below ``/ui``.
        may: scopes that the reader has.
    """
    numbers = [n for n, one in enumerate(STEPS, 1) if one.scope in may]
    if step == OVER or "read" not in may:
        return None
    if step not in numbers:
        return TourPlace(None, 0, None, (numbers[0], STEPS[0].title)) if nav == "home" else None
    here = STEPS[step - 1]
    if nav != here.nav or path not in ("/", f"/{here.nav}"):
        return TourPlace(None, step, None, (step, here.title)) if path == "/" else None
    at = numbers.index(step)
    before = numbers[at - 1] if at else None
    after = numbers[at + 1] if numbers[at + 1 :] else None
    following = (after, STEPS[after - 1].title) if after is not None else None
    return TourPlace(here, step, before, following)
