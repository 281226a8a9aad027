"""Answers as they leave."""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.verdict import Verdict
from compatgate.store.decisions import NewDecision

_MARK = b'"decided_at":"'


class Answer(Struct, frozen=True, gc=False):
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


class Decided(Struct, frozen=True, gc=False):
    """An answer, and what the decision log must hold before it leaves."""

    answer: Answer
    decision: NewDecision

    @property
    def row(self) -> tuple[NewDecision, str]:
        """What `compatgate.gate.decisions.DecisionLog` takes."""
        return self.decision, self.answer.body.decode()
