"""Hosts that do not answer: they take no runs until they do, so that they use up no attempts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from compatgate.canary.engine.parts import Bench
from compatgate.canary.executors.interface import Executor
from compatgate.errors import CompatgateError

_log = logging.getLogger(__name__)


class Away:
    """Which hosts of a worker are away.

    Args:
        benches: by the hosts' names.
        every: seconds between two looks at a host that is away.
        on_return: called when one answers again.
    """

    def __init__(
        self, benches: Mapping[str, Bench], every: float, on_return: Callable[[], object]
    ) -> None:
        self._benches = benches
        self._every = every
        self._on_return = on_return
        self._names: set[str] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def __contains__(self, host: str) -> bool:
        return host in self._names

    def look(self, host: str) -> None:
        """Leave a host alone if it does not answer now."""
        if (why := _silence(self._benches[host].executor)) is None:
            return
        with self._lock:
            if host in self._names or self._ended.is_set():
                return
            self._names.add(host)
        _log.warning("host %s is left alone until it answers: %s", host, why)
        threading.Thread(target=self._await, args=(host,), daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    def _await(self, host: str) -> None:
        while not self._ended.wait(self._every):
            if _silence(self._benches[host].executor) is None:
                _log.info("host %s answers again", host)
                self._names.discard(host)
                self._on_return()
                return


def _silence(executor: Executor) -> str | None:
    """Why a host does not answer; None: it does."""
    try:
        executor.left()
    except CompatgateError as error:
        return error.detail
    return None
