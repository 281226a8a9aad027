"""Log requests and refused tokens.

A request has one line, in the format of the log: who asked what, the answer, how long it took, and
for a decision its verdict, target and deciding rules. A refused token has a line of its own, so
many a second at most. No line has a token, a path or a body.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any, Literal

from compatgate.errors import Unauthorized
from compatgate.kit import logs
from compatgate.kit.http.limits import Rate, RateLimiter

if TYPE_CHECKING:
    from compatgate.kit.tracing import RequestNote
    from compatgate.web.metrics import Metrics

AccessLevel = Literal["off", "errors", "all"]
_NAME = "compatgate.access"
_FIRST_DEFECT = 500
_LOWEST_STATUS: dict[AccessLevel, float] = {"all": 0, "errors": 400, "off": math.inf}
_log = logging.getLogger("compatgate.auth")
_REFUSED = Rate(20, 10.0)
"""Lines about refused tokens: so many at once, then two a second."""


class AccessLog:
    """The lines of ended requests; safe for any number of threads.

    ``errors`` shows requests that are refused or fail.

    ``lowest_status``: of the requests that have a line.
    """

    def __init__(self, shows: AccessLevel, metrics: Metrics) -> None:
        self.lowest_status = _LOWEST_STATUS[shows]
        self._metrics = metrics
        self._limiter = RateLimiter(_REFUSED)
        self._skipped = 0

    def end(self, note: RequestNote, seconds: float) -> None:
        """Note the end of a request that has a line or an error, and how long it took.

        A refused token counts whatever the status: a hook may answer errors with 200.
        """
        if isinstance(note.error, Unauthorized):
            self._refused(note, note.error)
        if note.status >= self.lowest_status and (form := logs.current_format()) is not None:
            logs.writer.put(request_line(note, seconds, form))

    def _refused(self, note: RequestNote, error: Unauthorized) -> None:
        self._metrics.refused(error.reason)
        if error.reason == "missing":
            return
        if self._limiter.take(_NAME):
            self._skipped += 1
            return
        skipped, self._skipped = self._skipped, 0
        if skipped:
            _log.warning("%d more refused tokens have no line", skipped)
        extra = logs.fields(
            reason=error.reason,
            token=error.token,
            peer=note.peer,
            route=note.route,
            request_id=note.number,
        )
        _log.warning("refused: %s", error.problem, extra=extra)


def request_line(note: RequestNote, seconds: float, form: logs.LogFormat) -> bytes:
    """Return the line of a request."""
    now, level = time.time(), "error" if note.status >= _FIRST_DEFECT else "info"
    message = f"{note.method} {note.route} {note.status}"
    fields: dict[str, Any] = {
        "duration_ms": round(seconds * 1000, 3),
        "identity": note.identity or "-",
        "peer": note.peer or "-",
        "request_id": note.number,
    }
    if (verdict := note.deciding_verdict) is not None:
        fields["verdict"], fields["allowed"] = verdict.verdict, verdict.allowed
        fields["target"], fields["rules"] = verdict.target or "-", verdict.deciding_rules
        if len(note.verdicts) > 1:
            fields["decisions"] = len(note.verdicts)
    if note.error is not None:
        fields["error"] = note.error.slug
    if form == "json":
        fields = {"method": note.method, "route": note.route, "status": note.status, **fields}
    line = logs.format_line(form, now, level, _NAME, message, fields)
    return f"{line}\n".encode("utf-8", "backslashreplace")
