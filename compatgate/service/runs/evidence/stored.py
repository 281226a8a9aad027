"""Read which evidence counts, for snapshots of the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from compatgate.core.binding import SuiteDefinition
from compatgate.core.matrix import Evidence
from compatgate.service.matrix.snapshots.reader import StateNumbers
from compatgate.service.runs.evidence import discards, evidence


def _define() -> Mapping[str, SuiteDefinition]:
    """Return the definitions of the suites; only a run that is bound to one needs them."""
    from compatgate.service.runs.queue.service import define_suites, load_library

    return define_suites(load_library)


class StoredEvidence:
    """The evidence of one database, as `EvidenceSource` describes it."""

    def __init__(self, define: Callable[[], Mapping[str, SuiteDefinition]] = _define) -> None:
        self._define = define

    def latest_state(self, session: Session) -> StateNumbers:
        """Return the numbers of the last revision, run and discard."""
        return evidence.latest_state(session)

    def state_at(self, session: Session, moment: datetime) -> tuple[int, int]:
        """Return the numbers of the last run and discard before a moment."""
        number = evidence.latest_number_at(session, moment)
        return number, discards.latest_discard(session, until=moment)

    def read(
        self, session: Session, *, after: int = 0, until: int | None = None, discarded: int | None
    ) -> Iterator[Evidence]:
        """Yield the runs that count, oldest first."""
        left_out = discards.load_discarded(session, until=discarded)
        for run in evidence.load_evidence(session, after=after, until=until):
            if run.id not in left_out:
                yield run

    def suites(self) -> Mapping[str, SuiteDefinition]:
        """Return the definitions of the suites now."""
        return self._define()
