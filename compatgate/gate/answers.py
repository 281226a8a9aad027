"""Answers as they leave, and the cache that gives a repeated question its answer again."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.verdict import Verdict
from compatgate.gate.snapshot import Snapshot

_SIZE = 4096
_LARGEST_QUESTION = 64 * 1024
_HOUR = 3600.0
_MARK = b'"decided_at":"'


class Answer(Struct, frozen=True):
    """What ``POST /gate`` answers.

    Attributes:
        verdict: as an object.
        body: as JSON.
        cached: the same question was asked before, of the same snapshot.
    """

    verdict: Verdict
    body: bytes
    cached: bool = False

    @classmethod
    def of(cls, verdict: Verdict) -> Answer:
        """The answer that carries a verdict."""
        return cls(verdict, msgspec.json.encode(verdict.to_json()))

    def at(self, moment: str) -> Answer:
        """The same answer, decided at another moment: its id does not depend on it."""
        start = self.body.rindex(_MARK) + len(_MARK)
        end = self.body.index(b'"', start)
        body = b"".join((self.body[:start], moment.encode(), self.body[end:]))
        return Answer(replace(self.verdict, decided_at=moment), body, cached=True)


def shown_moment(moment: datetime) -> str:
    """A time as answers carry it, ``2026-11-03T09:30:00.123Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class AnswerCache:
    """Answers by question, for one snapshot, no longer than they hold."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, tuple[Snapshot, float, Answer]] = OrderedDict()

    def get(self, question: bytes, snapshot: Snapshot) -> Answer | None:
        """The answer that was given to this question, if it still holds."""
        with self._lock:
            found = self._answers.get(question)
            if found is None:
                return None
            if found[0] is not snapshot or found[1] <= time.time():
                del self._answers[question]
                return None
            self._answers.move_to_end(question)
            return found[2]

    def put(self, question: bytes, snapshot: Snapshot, answer: Answer, now: datetime) -> None:
        """Keep an answer until the hour ends, or until a date that it rests on passes."""
        if len(question) > _LARGEST_QUESTION:
            return
        expires = _expiry(answer.verdict.valid_until, now)
        with self._lock:
            self._answers[question] = (snapshot, expires, answer)
            if len(self._answers) > _SIZE:
                self._answers.popitem(last=False)

    def clear(self, _: Any = None) -> None:
        """Forget everything; the snapshot was replaced."""
        with self._lock:
            self._answers.clear()


def _expiry(valid_until: str | None, now: datetime) -> float:
    """Dates end at midnight UTC, which is also the end of an hour; times may end sooner."""
    present = now.timestamp()
    hour_ends = present - present % _HOUR + _HOUR
    if valid_until is None or len(valid_until) <= len("2026-11-03"):
        return hour_ends
    moment = datetime.fromisoformat(valid_until)
    ends = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return min(ends, hour_ends) if ends > present else hour_ends
