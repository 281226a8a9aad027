"""Evaluate entries on pools by the vendors' facts alone, and cache the results."""

from __future__ import annotations

from datetime import datetime
from functools import cache

from msgspec import Struct

from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, Pool, Target
from compatgate.core.representative import represent
from compatgate.core.stack import Stack
from compatgate.core.verdict import Outcome

_MOST = 200_000
Key = tuple[str, int, str, str, str, str]


class Fit(Struct, frozen=True):
    """The outcome by facts.

    Attributes:
        outcome: of the newest stack that the entry allows; None: the entry allows no known stack.
        why: the first finding of that outcome.
    """

    outcome: Outcome | None
    why: str = ""


class Fits:
    """A cache of outcomes for one catalog and one day; any number of threads may use it."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[Key, Fit] = {}
        self._stacks: dict[tuple[str, int], tuple[Stack | None, str]] = {}
        self._day = ""

    def cached(self, entry: Entry, pool: Pool) -> Fit | None:
        """Return the outcome if it is cached."""
        return self._known.get(_key(entry, pool))

    def evaluate(self, entry: Entry, pool: Pool, now: datetime) -> Fit:
        """Return the outcome, and cache it."""
        if (day := now.date().isoformat()) != self._day or len(self._known) > _MOST:
            self._known, self._stacks, self._day = {}, {}, day
        key = _key(entry, pool)
        if found := self._known.get(key):
            return found
        stack, why = self._stack(entry)
        fit = self._evaluate(stack, pool, now) if stack else Fit(None, why)
        self._known[key] = fit
        return fit

    def _stack(self, entry: Entry) -> tuple[Stack | None, str]:
        key = (entry.name, entry.revision)
        if key not in self._stacks:
            found = represent(entry, self._facts)
            self._stacks[key] = (found.stacks[0] if found.stacks else None, "; ".join(found.open))
        return self._stacks[key]

    def _evaluate(self, stack: Stack, pool: Pool, now: datetime) -> Fit:
        where = Target("", (pool,))
        verdict = evaluate(stack, where, facts=self._facts, now=now, with_fixes=False)
        said = verdict.failing[0].message if verdict.failing else ""
        return Fit(verdict.verdict, said)


@cache
def fits_of(facts: Facts) -> Fits:
    """Return the shared cache of a catalog."""
    return Fits(facts)


def _key(entry: Entry, pool: Pool) -> Key:
    sku = pool.gpu.sku if pool.gpu else ""
    driver = pool.driver.text if pool.driver else ""
    return (entry.name, entry.revision, sku, driver, pool.os, pool.cpu)
