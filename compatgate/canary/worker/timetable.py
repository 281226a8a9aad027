"""What a worker does now and then, whatever runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from compatgate.errors import CompatgateError

_log = logging.getLogger(__name__)
_JITTER_S = 60


@contextmanager
def timetable(jobs: Mapping[Callable[[], object], int]) -> Iterator[None]:
    """Do each job every so many seconds while the block runs, and once soon after it began.

    A job that is still running is not begun again; one that fails is logged and done next time.

    Args:
        jobs: what is to be done, to the seconds between two times.
    """
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(2)}, timezone="UTC")
    for job, seconds in jobs.items():
        scheduler.add_job(_careful(job))
        jitter = min(_JITTER_S, seconds // 10)
        scheduler.add_job(
            _careful(job),
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


def _careful(job: Callable[[], object]) -> Callable[[], None]:
    def done() -> None:
        try:
            job()
        except CompatgateError as error:
            _log.warning("%s: %s", getattr(job, "__name__", "a job"), error.detail)
        except Exception:
            _log.exception("a defect in %s", getattr(job, "__name__", "a job"))

    return done
