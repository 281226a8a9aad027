"""Limit how often peers and callers may do something, each process by itself, in bounded memory.

The generic cell rate algorithm (GCRA): one number for each key, no timers and no windows to sweep.
Libraries for this keep a counter for each address that ever came; here the oldest keys are dropped.
"""

from __future__ import annotations

import ipaddress
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from compatgate.errors import BadInput, Forbidden, TooManyRequests, Unauthorized

if TYPE_CHECKING:
    from compatgate.kit.principal import Principal

MAX_KEYS = 16_384
_RATE = re.compile(r"([1-9][0-9]{0,6})/([smh])")
_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_IPV6_NETWORK = 64


class Rate(Struct, frozen=True):
    """A number of events in a period; so many may come at once."""

    count: int
    period_s: float


FAILED = Rate(30, 60.0)
"""Failed authentications of a peer; a forgotten script tries once a minute."""


def parse_rate(text: str, *, field: str = "rate") -> Rate:
    """Read a rate like ``100/s``, ``30/m`` or ``1000/h``; an error names the field."""
    match = _RATE.fullmatch(text)
    if match is None:
        hint = "a number for each s, m or h, like 100/s or 30/m"
        raise BadInput(f"{text!r} is not a rate", field=field, value=text, hint=hint)
    return Rate(int(match[1]), _PERIODS[match[2]])


class RateLimiter:
    """Counts events by key; safe for any number of threads.

    Beyond ``most_keys`` it forgets the keys that were quiet the longest.
    """

    def __init__(self, rate: Rate, most_keys: int = MAX_KEYS) -> None:
        self._interval = rate.period_s / rate.count
        self._period = rate.period_s
        self._most = most_keys
        self._arrivals: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of remembered keys."""
        return len(self._arrivals)

    def wait(self, key: str) -> float:
        """Return the seconds until an event of a key is allowed; 0: now. Count nothing."""
        return self._wait(self._arrivals.get(key, 0.0), time.monotonic())

    def take(self, key: str) -> float:
        """Count an event if it is allowed, and return 0; else return the seconds to wait."""
        present = time.monotonic()
        with self._lock:
            arrival = self._arrivals.get(key, 0.0)
            wait = self._wait(arrival, present)
            if not wait:
                self._arrivals[key] = max(arrival, present) + self._interval
            if key in self._arrivals:
                self._arrivals.move_to_end(key)
            while len(self._arrivals) > self._most:
                self._arrivals.popitem(last=False)
        return wait

    def _wait(self, arrival: float, present: float) -> float:
        late = arrival + self._interval - present - self._period
        return late if late > 1e-9 else 0.0


def refuse_for(wait_s: float, problem: str, hint: str) -> TooManyRequests:
    """Return the error for an event that must wait."""
    error = TooManyRequests(problem, hint=hint)
    error.retry_after_s = max(1, math.ceil(wait_s))
    return error


def peer_key(address: str) -> str:
    """Return the key of a peer's address: an IPv6 host has a whole /64 network of addresses."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_NETWORK), strict=False))


def peer_address() -> str:
    """Return the address that the request came from: the client's, behind a trusted proxy."""
    from flask import request

    return request.environ.get("REMOTE_ADDR") or ""


class Holders(Protocol):
    """Those whom secrets belong to: tokens, or people and jobs that an issuer vouches for."""

    def verify(self, secret: str) -> Principal:
        """Return the holder of a secret."""

    def was_valid(self, secret: str) -> bool:
        """Return whether this process has found the secret valid before."""


class RequestLimits:
    """The limits of one application.

    Failed authentications count by peer, requests by caller, questions by an anonymous caller's
    address; None: no limit.
    """

    def __init__(
        self,
        failed: Rate | None = None,
        requests: Rate | None = None,
        questions: Rate | None = None,
    ) -> None:
        self._failed = RateLimiter(failed) if failed else None
        self._requests = RateLimiter(requests) if requests else None
        self._questions = RateLimiter(questions) if questions else None

    def verify(self, secret: str, holders: Holders, peer: str) -> Principal:
        """Return the holder of a secret, and count a failure.

        A peer that has failed too often is refused without a look at the database, unless its
        secret was valid before: somebody behind the same address must not lock others out.
        """
        with self.counted_failures(peer, checks=not holders.was_valid(secret)):
            return holders.verify(secret)

    @contextmanager
    def counted_failures(self, peer: str | None = None, *, checks: bool = True) -> Iterator[None]:
        """Count an authentication that fails, and refuse a peer that has failed too often."""
        key = peer_key(peer_address() if peer is None else peer)
        if checks and self._failed is not None and (wait := self._failed.wait(key)):
            hint = "check the token; a token that was valid before is still accepted"
            raise refuse_for(wait, "too many failed authentications from this address", hint)
        try:
            yield
        except (Unauthorized, Forbidden):
            if self._failed is not None:
                self._failed.take(key)
            raise

    def take(self, caller: Principal, peer: str) -> None:
        """Count a request."""
        if self._requests is None or caller.kind == "local":
            return
        key = f"token:{caller.name}" if caller.kind == "token" else caller.identity
        key = f"peer:{peer_key(peer)}" if caller.is_anonymous else key
        if wait := self._requests.take(key):
            hint = "spread the requests, or ask the operator: serve --rate"
            raise refuse_for(wait, f"{caller.name} sends too many requests", hint)

    def take_question(self, caller: Principal, peer: str) -> None:
        """Count a question whose verdict is stored."""
        if self._questions is None or not caller.is_anonymous:
            return
        if wait := self._questions.take(peer_key(peer)):
            hint = "ask with a token, or ask the operator: serve --anonymous-rate"
            raise refuse_for(wait, "too many questions without a token from this address", hint)
