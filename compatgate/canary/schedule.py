"""Repeat a worker's periodic jobs, and select the blessed stacks that are due for verification."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from compatgate.errors import CompatgateError

_log = logging.getLogger(__name__)
_JITTER_S = 60


@contextmanager
def repeat_jobs(jobs: Mapping[Callable[[], object], int]) -> Iterator[None]:
    """Run each job periodically while the block runs, and first soon after the block begins.

    A job never runs twice at once. A job that fails is logged and runs again at its next time.

    Args:
        jobs: job to the seconds between two runs.
    """
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(2)}, timezone="UTC")
    for job, seconds in jobs.items():
        scheduler.add_job(_log_errors(job))
        jitter = min(_JITTER_S, seconds // 10)
        scheduler.add_job(
            _log_errors(job),
            "interval",
            seconds=seconds,
            jitter=jitter,
            coalesce=True,
            max_instances=1,
        )
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=True)


def _log_errors(job: Callable[[], object]) -> Callable[[], None]:
    def done() -> None:
        try:
            job()
        except CompatgateError as error:
            _log.warning("%s: %s", getattr(job, "__name__", "a job"), error.detail)
        except Exception:
            _log.exception("unexpected error in %s", getattr(job, "__name__", "a job"))

    return done


MONTH_S = 30 * 86400
PAUSE_S = 86400
"""Pause after an attempt that showed nothing, for example because the host was away."""
_SPREAD = 0.2


class EntryVerification(Struct, frozen=True):
    """Latest passed run of a blessed entry, for one suite on one SKU.

    Attributes:
        finished: end of the run, in seconds since the epoch.
        tried: time of the last request for another run, whatever its outcome; None if there was
            none.
        underway: a later run of the same kind is queued or running.
    """

    run: str
    entry: str
    suite: str
    sku: str
    finished: int
    tried: int | None = None
    underway: bool = False


def select_due(
    shown: Iterable[EntryVerification], now: int, *, every_s: int = MONTH_S
) -> list[EntryVerification]:
    """Return the verifications to run now, longest waiting first.

    Each is due between 0.8 and 1 times ``every_s`` after its last run. The point depends only on
    entry, suite and SKU, so a matrix that was blessed in one day is not verified in one day, and no
    verification is late.
    """
    waiting = [item for item in shown if _is_due(item, now, every_s)]
    return sorted(waiting, key=lambda item: (item.finished, item.run))


def _is_due(item: EntryVerification, now: int, every_s: int) -> bool:
    if item.underway or (item.tried is not None and now < item.tried + PAUSE_S):
        return False
    return now >= item.finished + _due_after(item, every_s)


def _due_after(item: EntryVerification, every_s: int) -> int:
    key = "\0".join((item.entry, item.suite, item.sku)).encode()
    share = int.from_bytes(hashlib.sha256(key).digest()[:4]) / 2**32
    return int(every_s * (1 - _SPREAD * share))
