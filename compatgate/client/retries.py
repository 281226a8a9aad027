"""Whether and when a request is tried again."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from msgspec import Struct

Outcome = httpx.Response | httpx.HTTPError
TOO_MANY_REQUESTS = 429
UNAVAILABLE = 503


class Retries(Struct, frozen=True):
    """How often, and after which pauses.

    Attributes:
        most: times that a request is tried again; 0: never.
        first_s: longest first pause; it doubles each time.
        longest_s: longest pause; a gate that asks for more (``Retry-After``) is not waited for.
    """

    most: int = 3
    first_s: float = 0.25
    longest_s: float = 30.0

    def pause(self, number: int, outcome: Outcome, *, repeatable: bool) -> float | None:
        """Seconds until a request is tried again; None: what came of it stands.

        Args:
            number: times that it was tried.
            outcome: of the last.
            repeatable: it may have been carried out, and may be once more.
        """
        if number > self.most or not _may_pass(outcome, repeatable=repeatable):
            return None
        backoff = min(self.first_s * 2.0 ** (number - 1), self.longest_s)
        asked = _asked_for(outcome)
        if asked is not None and asked > self.longest_s:
            return None
        jittered = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - to spread clients in time
        return max(jittered, asked or 0.0)


def _may_pass(outcome: Outcome, *, repeatable: bool) -> bool:
    """Whether trying again may help, and can do no harm."""
    if isinstance(outcome, httpx.Response):
        refused = outcome.status_code == TOO_MANY_REQUESTS
        return refused or (repeatable and outcome.status_code == UNAVAILABLE)
    if isinstance(outcome, httpx.ConnectError):
        return "[SSL" not in str(outcome)
    if isinstance(outcome, httpx.ConnectTimeout | httpx.PoolTimeout):
        return True
    broken = httpx.TimeoutException | httpx.NetworkError | httpx.RemoteProtocolError
    return repeatable and isinstance(outcome, broken)


def _asked_for(outcome: Outcome) -> float | None:
    """The pause that ``Retry-After`` asks for: seconds, or a date."""
    headers = getattr(outcome, "headers", {})
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
