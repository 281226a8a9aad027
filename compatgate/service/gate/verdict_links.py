"""Make and check links to one verdict that need no token.

The ``key`` of a link is ``<end>.<mac>``: seconds since the epoch, and HMAC-SHA-256 over
``compatgate verdict link v1``, the verdict's id and the end, cut to 128 bits as RFC 2104 allows
(section 5). The gate stores nothing about a link: it ends at its end, or with the key.
"""

from __future__ import annotations

import hmac
import math
import re
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from compatgate.errors import Forbidden, Gone
from compatgate.kit import clock
from compatgate.service.webhooks.signatures import Secret

VALID_FOR = timedelta(days=7)
SHORTEST, LONGEST = timedelta(minutes=5), timedelta(days=366)
_PURPOSE = "compatgate verdict link v1"
_MAC_BYTES = 16
_KEY = re.compile(r"([1-9][0-9]{0,11})\.([A-Za-z0-9_-]{22})")
_HOUR, _MINUTE = 3600, 60
_DAY = timedelta(days=1)
_HINT = "ask the sender of the link for a new one, or sign in"


class VerdictLinks(Struct, frozen=True):
    """The keys and the validity of links to verdicts.

    Attributes:
        secrets: the first one signs; each of them opens links.
        base: public URL of the gate, without a slash at the end.
        valid_for: validity of a link; its end is rounded up, so that links of one hour are equal
            (of one minute, where links are valid for less than a day).
    """

    secrets: tuple[Secret, ...]
    base: str
    valid_for: timedelta = VALID_FOR

    def link(self, verdict_id: str, now: datetime) -> str:
        """Return the link to a verdict."""
        return f"{self.base}/v/{verdict_id}?key={self.make_key(verdict_id, now)}"

    def make_key(self, verdict_id: str, now: datetime) -> str:
        """Return the key that opens a verdict."""
        step = _HOUR if self.valid_for >= _DAY else _MINUTE
        end = math.ceil((now + self.valid_for).timestamp() / step) * step
        return f"{end}.{_sign(self.secrets[0], verdict_id, end)}"

    def check(self, verdict_id: str, key: str, now: datetime) -> datetime:
        """Return the end of the link that a key opens.

        Every secret is tried, and compared in constant time.

        Args:
            verdict_id: as the address names it.
            key: as the address has it.
            now: the present time.

        Raises:
            Forbidden: no secret of this gate signed the key for this verdict.
            Gone: the link has ended.
        """
        parts = _KEY.fullmatch(key)
        if parts is None:
            raise _refuse()
        end, given = int(parts[1]), parts[2]
        known = [hmac.compare_digest(_sign(s, verdict_id, end), given) for s in self.secrets]
        if not any(known):
            raise _refuse()
        ended = datetime.fromtimestamp(end, UTC)
        if now >= ended:
            raise Gone(f"this link ended on {clock.readable(ended)}", hint=_HINT)
        return ended


def _refuse() -> Forbidden:
    return Forbidden("this link is not valid for this verdict", field="key", hint=_HINT)


def _sign(secret: Secret, verdict_id: str, end: int) -> str:
    signed = f"{_PURPOSE}\n{verdict_id}\n{end}".encode(errors="surrogatepass")
    mac = hmac.digest(secret.key, signed, "sha256")[:_MAC_BYTES]
    return urlsafe_b64encode(mac).decode().rstrip("=")
