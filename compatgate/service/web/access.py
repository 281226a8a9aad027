"""Log requests and refused tokens.

A request has one line, in the format of the log: who asked what, the answer, how long it took, and
for a decision its verdict, target and deciding rules. A refused token has a line of its own, so
many a second at most. No line has a token, a path or a body.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from compatgate.errors import Unauthorized
from compatgate.kit import logs

if TYPE_CHECKING:
    from compatgate.core.rule import Verdict
    from compatgate.kit.http.notes import RequestNote
    from compatgate.service.web.metrics import Metrics

AccessLevel = Literal["off", "errors", "all"]
ACCESS_LEVELS: tuple[AccessLevel, ...] = ("off", "errors", "all")
_NAME = "compatgate.access"
_FIRST_DEFECT = 500
_LOWEST_STATUS: dict[AccessLevel, float] = {"all": 0, "errors": 400, "off": math.inf}
_log = logging.getLogger("compatgate.auth")
_encode = msgspec.json.Encoder().encode
_TEXT_FIELDS = (
    "duration_ms",
    "identity",
    "peer",
    "request_id",
    "verdict",
    "allowed",
    "target",
    "rules",
    "decisions",
    "error",
)


class AccessLog:
    """The lines of ended requests; safe for any number of threads.

    Args:
        shows: which requests have a line; ``errors``: those that are refused or fail.
        metrics: counts refused tokens.

    Attributes:
        lowest_status: of the requests that have a line.
    """

    def __init__(self, shows: AccessLevel, metrics: Metrics) -> None:
        self.lowest_status = _LOWEST_STATUS[shows]
        self._metrics = metrics
        self._bound = RateBound()

    def end(self, note: RequestNote, seconds: float) -> None:
        """Note the end of a request that has a line or an error.

        A refused token counts whatever the status: a hook may answer errors with 200.

        Args:
            note: of the request.
            seconds: in which it was answered.
        """
        if isinstance(note.error, Unauthorized):
            self._refused(note, note.error)
        if note.status >= self.lowest_status and (form := logs.current_format()) is not None:
            logs.writer.put(request_line(note, seconds, form))

    def _refused(self, note: RequestNote, error: Unauthorized) -> None:
        self._metrics.refused(error.reason)
        if error.reason == "missing":
            return
        allowed, skipped = self._bound.take()
        if skipped:
            _log.warning("%d more refused tokens have no line", skipped)
        if allowed:
            said = logs.fields(
                reason=error.reason,
                token=error.token,
                peer=note.peer,
                route=note.route,
                request_id=note.number,
            )
            _log.warning("refused: %s", error.problem, extra=said)


class RateBound:
    """A bound on lines: so many at once, and so many a second after that."""

    def __init__(self, at_once: int = 20, per_second: float = 2.0) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._lock = threading.Lock()
        self._left = float(at_once)
        self._at = time.monotonic()
        self._skipped = 0

    def take(self) -> tuple[bool, int]:
        """Return whether a line may be written, and how many were skipped before it."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self._at_once, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < 1:
                self._skipped += 1
                return False, 0
            self._left -= 1
            skipped, self._skipped = self._skipped, 0
            return True, skipped


class RequestLine(Struct):
    """The line of a request as JSON; fields of a decision only where there is one."""

    time: str
    level: str
    logger: str
    message: str
    method: str
    route: str
    status: int
    duration_ms: float
    identity: str
    peer: str
    request_id: str
    verdict: str | UnsetType = UNSET
    allowed: bool | UnsetType = UNSET
    target: str | UnsetType = UNSET
    rules: list[str] | UnsetType = UNSET
    decisions: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


def request_line(note: RequestNote, seconds: float, form: logs.LogFormat) -> bytes:
    """Return the line of a request."""
    now = time.time()
    line = RequestLine(
        logs.utc_time(now),
        "error" if note.status >= _FIRST_DEFECT else "info",
        _NAME,
        f"{note.method} {note.route} {note.status}",
        note.method,
        note.route,
        note.status,
        round(seconds * 1000, 3),
        note.identity or "-",
        note.peer or "-",
        note.number,
    )
    if note.verdicts:
        _add_decision(line, note.verdicts)
    if note.error is not None:
        line.error = note.error.slug
    return _encode(line) + b"\n" if form == "json" else _to_text(line, now)


def _to_text(line: RequestLine, now: float) -> bytes:
    said = {name: getattr(line, name) for name in _TEXT_FIELDS}
    shown = {name: value for name, value in said.items() if value is not UNSET}
    start = logs.text_start(now, line.level.upper(), _NAME)
    text = f"{start}: {line.message}{logs.text_fields(shown)}\n"
    return text.encode("utf-8", "backslashreplace")


def _add_decision(line: RequestLine, verdicts: tuple[Verdict, ...]) -> None:
    """Add the first decision that was denied, else the first."""
    shown = next((one for one in verdicts if not one.allowed), verdicts[0])
    line.verdict, line.allowed = shown.verdict, shown.allowed
    line.target, line.rules = shown.target or "-", shown.deciding_rules
    if len(verdicts) > 1:
        line.decisions = len(verdicts)
