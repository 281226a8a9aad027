"""Limit how often a caller may do something, in bounded memory.

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

from msgspec import Struct

from compatgate.errors import BadInput, TooManyRequests

MAX_KEYS = 16_384
_RATE = re.compile(r"([1-9][0-9]{0,6})/([smh])")
_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_IPV6_NETWORK = 64


class Rate(Struct, frozen=True):
    """A number of events in a period; so many may come at once."""

    count: int
    period_s: float


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
        """Return the seconds until the next event fits into the period."""
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
