"""Errors out of problem+json (RFC 9457): the same objects that the gate raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from compatgate import errors
from compatgate.documents.problems import DocumentProblem
from compatgate.errors import BadInput, CompatgateError, ManyProblems, Unavailable
from compatgate.not_json import NOT_JSON

_BY_SLUG: dict[str, type[CompatgateError]] = {
    kind.slug: kind
    for kind in (
        errors.BadInput,
        errors.Unauthorized,
        errors.Forbidden,
        errors.NotFound,
        errors.Gone,
        errors.Conflict,
        errors.PreconditionFailed,
        errors.TooLarge,
        errors.Unavailable,
        errors.TimedOut,
        errors.Damaged,
        errors.Inconclusive,
    )
}
_BY_STATUS: dict[int, type[CompatgateError]] = {
    **{kind.status: kind for kind in _BY_SLUG.values() if kind.status < 500},
    **dict.fromkeys((408, 425, 429), Unavailable),
}
"""Statuses of refusals without a name of their own; 408, 425 and 429 say "not now"."""
_NO_TOKEN = "give an access token, or set COMPATGATE_TOKEN"  # noqa: S105 - a sentence


def refused(
    status: int, headers: Mapping[str, str], body: bytes, base: str, *, token: bool
) -> CompatgateError:
    """The error that an answer means.

    Args:
        status: not one of success.
        headers: of the answer.
        body: problem+json, or whatever a proxy sends.
        base: of the gate.
        token: one was sent.
    """
    problem = _problem(body)
    error = _told(problem, status) if problem else _untold(status, headers, base)
    error.status = status
    if status == errors.Unauthorized.status and not token:
        error.hint = _NO_TOKEN
    if number := headers.get("X-Request-Id"):
        error.add_note(f"request {number} in the gate's log")
    return error


def _problem(body: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except NOT_JSON:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("detail"), str) else None


def _told(problem: dict[str, Any], status: int) -> CompatgateError:
    if several := problem.get("problems"):
        return ManyProblems(problem["detail"], [_one(item) for item in several])
    slug = str(problem.get("type", "")).rpartition("/")[2]
    kind = _BY_SLUG.get(slug) or _kind(status)
    field, hint = _text(problem, "field"), _text(problem, "hint") or ""
    sentence = problem["detail"]
    if field:
        sentence = sentence.removeprefix(f"{field}: ")
    if hint:
        sentence = sentence.removesuffix(f" ({hint})")
    return kind(sentence, field=field, value=problem.get("value"), hint=hint)


def _untold(status: int, headers: Mapping[str, str], base: str) -> CompatgateError:
    if 300 <= status < 400:
        where = headers.get("Location", "another place")
        hint = f"give the address that is meant: {where}"
        return Unavailable(f"the gate answered {status}: a redirection", field=base, hint=hint)
    kind = _kind(status)
    if issubclass(kind, Unavailable):
        return kind(f"the gate answered {status}", field=base)
    return kind(f"the request was refused with status {status}; is it a gate?", field=base)


def _kind(status: int) -> type[CompatgateError]:
    return _BY_STATUS.get(status) or (BadInput if status < 500 else Unavailable)


def _one(item: Any) -> CompatgateError:
    told: dict[str, Any] = item if isinstance(item, dict) else {}
    problem = DocumentProblem(
        _text(told, "problem") or "is wrong",
        file=_text(told, "file"),
        line=told.get("line"),
        document=_text(told, "document") or "",
        value=told.get("value"),
        hint=_text(told, "hint") or "",
    )
    problem.field = _text(told, "field")
    return problem


def _text(problem: dict[str, Any], name: str) -> str | None:
    found = problem.get(name)
    return found if isinstance(found, str) else None
