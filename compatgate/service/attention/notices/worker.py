"""Survey and post incidents in threads of the server; a slow receiver never blocks a survey.

Every process has these threads. A lease lets one process survey at a time, and one post; the lease
of a process that was killed ends by itself.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from compatgate.errors import CompatgateError, quote_error
from compatgate.service.attention.notices.service import IncidentService
from compatgate.service.attention.notices.webhook import WebhookSender

_TICK_S = 1.0
_AWAY_S = 5.0
_PRUNE_S = 3600.0
_STOP_S = 2.0
_log = logging.getLogger("compatgate.notices")


class IncidentWorker:
    """The threads of one process: one surveys, one posts if there is a webhook."""

    def __init__(self, incidents: IncidentService, sender: WebhookSender | None) -> None:
        self._incidents = incidents
        self._sender = sender
        self._ending = threading.Event()
        self._pruned = -_PRUNE_S
        steps: dict[str, Callable[[], object]] = {"survey": self._survey}
        if sender is not None:
            steps["webhook"] = sender.send_due
        self._threads = [
            threading.Thread(
                target=self._repeat, args=(step,), name=f"incidents-{name}", daemon=True
            )
            for name, step in steps.items()
        ]

    def start(self) -> None:
        """Start; surveys of this process are up to its thread from now on."""
        self._incidents.is_watched = True
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop; an incident that is being posted is posted again later."""
        self._ending.set()
        for thread in self._threads:
            thread.join(_STOP_S)
        if self._sender is not None:
            self._sender.close()

    def _survey(self) -> None:
        self._incidents.survey_if_due()
        if time.monotonic() - self._pruned > _PRUNE_S:
            self._pruned = time.monotonic()
            self._incidents.prune()

    def _repeat(self, step: Callable[[], object]) -> None:
        """Repeat a step until the process ends; log an error once while it stays the same."""
        logged = ""
        while not self._ending.is_set():
            problem = ""
            try:
                step()
            except CompatgateError as error:  # the database is away
                problem = error.problem
            except Exception as error:
                problem = f"{type(error).__name__}: {quote_error(error)}"
            if problem and problem != logged:
                _log.warning("incidents wait: %s", problem)
            logged = problem
            pause = _AWAY_S if problem else _TICK_S
            self._ending.wait(pause * random.uniform(0.8, 1.2))  # noqa: S311 - to spread replicas
