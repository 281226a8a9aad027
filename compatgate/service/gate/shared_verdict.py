"""Show one verdict to whoever has its signed link: as a page, Markdown, a badge or a card.

These answers show the verdict, the steps to get it allowed, and nothing else of the gate. They need
no token, set no cookie, run no script, and are never stored by a cache.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flask import Response, request
from msgspec import Struct

from compatgate.check.formats import text
from compatgate.check.formats.markdown import render_section
from compatgate.check.reports import Answer
from compatgate.core.rule import EXIT_NO_DECISION, exit_code
from compatgate.errors import CompatgateError, NotFound
from compatgate.kit import clock
from compatgate.kit.http import replies
from compatgate.kit.http.replies import CSP
from compatgate.kit.ui.assets import BADGE_MEDIA, Badge, Look, draw_badge
from compatgate.kit.ui.cards import HEIGHT, WIDTH, Card, draw_card
from compatgate.kit.ui.preferences import current_preferences
from compatgate.service.gate.next_steps import Step, StepPlace, list_steps
from compatgate.service.gate.question_links import Question, format_stack
from compatgate.service.web.page import environment

if TYPE_CHECKING:
    from compatgate.service.gate.service import Gate
    from compatgate.service.gate.verdict_links import VerdictLinks
    from compatgate.service.web.call import Service

Json = dict[str, Any]
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_PRIVATE = {
    "Cache-Control": "no-store, private",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
}
_MARKDOWN = "text/markdown; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_WAIVER_DAYS = 7
_MAX_REASONS = 3
_LONGEST_PREVIEW = 300
_LOOKS: dict[str, Look] = {"allowed": "good", "denied": "bad", "unknown": "neutral"}


class SharedVerdict(Struct, frozen=True):
    """A verdict, and the links that show it.

    Attributes:
        link: address of the verdict for people.
        images: begin of the addresses of its pictures, and the query that opens them; None: only
            who signs in sees the verdict.
        ends: when the link ends; None: never.
    """

    verdict: dict[str, Any]
    link: str
    images: tuple[str, str] | None = None
    ends: datetime | None = None

    def image(self, name: str) -> str | None:
        """Return the address of a picture, ``badge.svg`` or ``card.svg``, for other sites."""
        return f"{self.images[0]}/{name}{self.images[1]}" if self.images else None

    def own_image(self, name: str) -> str | None:
        """Return the address of a picture for pages of this gate, whatever host they came from."""
        return f"{urlsplit(self.images[0]).path}/{name}{self.images[1]}" if self.images else None

    @property
    def markdown(self) -> str:
        """Return the verdict as Markdown, as a comment on a pull request has it."""
        return render_section(Answer(self.verdict, link=self.link))

    @property
    def badge_markdown(self) -> str | None:
        """Return Markdown that shows the badge, which leads to the verdict."""
        badge = self.image("badge.svg")
        if badge is None:
            return None
        return f"[![{_badge_of(self.verdict).title}]({badge})]({self.link})"


def share_verdict(verdict: dict[str, Any], links: VerdictLinks, key: str = "") -> SharedVerdict:
    """Return a verdict with links that need no token.

    Args:
        verdict: as JSON.
        links: make the key, and know when it ends.
        key: of the link that was followed; empty: a new one.
    """
    now = clock.now()
    key = key or links.make_key(verdict["id"], now)
    address, query = f"{links.base}/v/{verdict['id']}", f"?key={key}"
    ends = links.check(verdict["id"], key, now)
    return SharedVerdict(verdict, f"{address}{query}", (address, query), ends)


def steps_of(verdict: Json, gate: Gate, base: str) -> list[Step]:
    """Return the steps from a verdict to an allowed stack.

    Args:
        verdict: as JSON.
        gate: knows the owner of the target.
        base: URL of the gate, for commands.
    """
    expires = clock.today() + timedelta(days=_WAIVER_DAYS)
    document = gate.snapshot().documents.get(verdict["target"] or "")
    owner = (document.metadata.owner if document else None) or ""
    return list_steps(verdict, StepPlace(base, expires.isoformat(), owner))


def question_of(verdict: Json) -> Question:
    """Return the question of a verdict, as the page Ask takes it."""
    where: dict[str, Any] = {"target": verdict["target"]} if verdict["target"] else {}
    if not where and verdict["pools"]:
        pool = verdict["pools"][0]
        where = {key: pool[key] for key in ("driver", "gpu", "os", "cpu") if pool.get(key)}
    stack = format_stack({k: v for k, v in verdict["stack"].items() if k != "measured"})
    return Question(stack=stack, image=verdict["image"] or "", **where)


def decision_badge(verdict: Json) -> tuple[str, str]:
    """Return the decision of the policy: a badge and its text."""
    if verdict["allowed"]:
        return "allowed", "allowed"
    if exit_code(verdict["verdict"], allowed=False) == EXIT_NO_DECISION:
        return "unknown", "no decision"
    return "denied", "denied"


def open_link(verdict_id: str, key: str, service: Service, *, page: bool) -> Response:
    """Answer whoever follows a link: a page for a browser, Markdown for programs.

    Args:
        verdict_id: as the address names it.
        key: as the address has it.
        service: has the keys.
        page: a browser asks.
    """
    try:
        shared = _open(verdict_id, key, service)
        body = _render(shared, service) if page else f"{shared.markdown}\n"
        status = 200
    except CompatgateError as error:
        if not page:
            raise
        replies.note_error(error, request.environ)
        body, status = _render_problem(error, verdict_id), error.status
    made = Response(body, status=status, content_type=_HTML if page else _MARKDOWN)
    made.headers.update(_PRIVATE)
    made.headers["Vary"] = "Accept"
    if page:
        made.headers[CSP] = POLICY
    return made


def open_image(verdict_id: str, name: str, key: str, service: Service) -> Response:
    """Answer with a picture of a verdict.

    Raises:
        NotFound: the picture or the verdict does not exist.
        Forbidden: the key does not open the verdict.
    """
    drawings = {"badge.svg": _draw_badge, "card.svg": _draw_card}
    if name not in drawings:
        raise NotFound("unknown picture", hint=" or ".join(drawings))
    shared = _open(verdict_id, key, service)
    made = Response(drawings[name](shared.verdict), content_type=BADGE_MEDIA)
    made.headers.update(_PRIVATE)
    return made


def _open(verdict_id: str, key: str, service: Service) -> SharedVerdict:
    """Return the verdict that a key opens; the key is checked before anything is read."""
    links = service.settings.verdict_links
    if links is None:
        raise NotFound("unknown page")
    service.limits.take(service.nobody, request.environ.get("REMOTE_ADDR") or "")
    links.check(verdict_id, key, clock.now())
    return share_verdict(service.gate.show_verdict(verdict_id), links, key)


def _render(shared: SharedVerdict, service: Service) -> str:
    links = service.settings.verdict_links
    assert links is not None  # noqa: S101 - `_open` saw to it
    verdict = shared.verdict
    context = {
        "title": f"{_headline(verdict)}: {text.format_place(verdict)}",
        "about": _about(verdict),
        "shared": shared,
        "verdict": verdict,
        "answer": decision_badge(verdict),
        "steps": steps_of(verdict, service.gate, links.base),
        "fix": question_of(verdict).with_fix,
        "again": question_of(verdict).link(),
        "card": (shared.image("card.svg"), WIDTH, HEIGHT),
        "looks": current_preferences(),
    }
    return environment().get_template("shared-verdict.html").render(context)


def _render_problem(error: CompatgateError, verdict_id: str) -> str:
    context = {
        "title": "No verdict here",
        "error": error,
        "looks": current_preferences(),
        "verdict_id": verdict_id,
    }
    return environment().get_template("shared-problem.html").render(context)


def _headline(verdict: Json) -> str:
    word = decision_badge(verdict)[1]
    return f"{word[:1].upper()}{word[1:]}"


def _reasons(verdict: Json) -> list[str]:
    """Return the deciding findings as sentences, each with its first fix."""
    deciding = [f for f in verdict["findings"] if f["outcome"] == verdict["verdict"]]
    found = []
    for finding in deciding[:_MAX_REASONS]:
        fix = f" Fix: {finding['fixes'][0]['message']}." if finding["fixes"] else ""
        found.append(f"{finding['rule']}: {finding['message']}.{fix}")
    return found


def _about(verdict: Json) -> str:
    """Return the reasons, or the stack, as the preview of a link shows it."""
    return " ".join(_reasons(verdict))[:_LONGEST_PREVIEW] or text.format_stack(verdict["stack"])


def _badge_of(verdict: Json) -> Badge:
    badge, word = decision_badge(verdict)
    title = f"{text.format_stack(verdict['stack'])} on {text.format_place(verdict)}: {word}"
    look = "doubtful" if verdict["verdict"] != "pass" and verdict["allowed"] else _LOOKS[badge]
    return Badge(verdict["target"] or "compatgate", word, look, title)


def _draw_badge(verdict: Json) -> bytes:
    return draw_badge(_badge_of(verdict))


def _draw_card(verdict: Json) -> bytes:
    badge = _badge_of(verdict)
    decided = clock.from_iso(verdict["decided_at"])
    return draw_card(
        Card(
            _headline(verdict),
            badge.look,
            text.format_stack(verdict["stack"]),
            text.format_place(verdict),
            tuple(_reasons(verdict)) or ("No rule objects.",),
            f"compatgate, {clock.readable(decided)}, {verdict['id'][:15]}",
        )
    )
