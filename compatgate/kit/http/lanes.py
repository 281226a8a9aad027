"""Call functions in threads for an event loop: few threads for short calls, more for long ones.

Threads that compute share one interpreter lock, so each further one makes all of them slower: a
few are enough for calls that compute. A call that lasts waits for somebody else (a database, a
registry), needs no lock meanwhile, and must not hold up the next call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple

from compatgate.kit import tracing
from compatgate.kit.http.replies import TooBusy

MAX_WAITING = 512
"""Requests that may wait for a thread of a lane."""
SHORT_THREADS = 3
"""Threads for short calls."""
_LONG_SECONDS = 0.02
"""A call that lasts longer counts no more among the short ones."""
_IDLE_SECONDS = 30
"""A thread ends after so long without a call."""


class _Call(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


def _run(call: _Call) -> None:
    if call.future.cancelled():
        return
    result, error = None, None
    try:
        result = call.function(*call.arguments)
    except BaseException as raised:
        error = raised  # the caller gets it
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        call.loop.call_soon_threadsafe(_settle, call.future, result, error)
    del call, error  # the error knows this frame: together they would wait for the collector


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class Lane:
    """Threads for requests of one kind; requests of another kind do not wait for them."""

    def __init__(self, name: str, threads: int, short: int = SHORT_THREADS) -> None:
        self._name = name
        self._most = threads
        self._short = short
        self._running = 0
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._began: dict[threading.Thread, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call a function in a thread; return the future of its result, on the running loop."""
        if self._running >= self._most + MAX_WAITING:
            what = f"{self._running} requests wait already"
            raise TooBusy(what, hint="retry in a moment; serve --threads allows more")
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._running += 1
        future.add_done_callback(self._end)
        self._calls.put(_Call(tracing.carry(function), arguments, future, loop))
        self._add_threads(loop)
        return future

    def _end(self, _: object) -> None:
        self._running -= 1

    def _add_threads(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start threads for waiting calls, where the limits allow; look again later otherwise."""
        with self._lock:
            while waits := self._calls.qsize() > len(self._threads) - len(self._began):
                alive = len(self._threads)
                if alive >= self._most or alive - self._long_calls() >= self._short:
                    break
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()
        if waits and self._timer is None and len(self._threads) < self._most:

            def look_again() -> None:
                self._timer = None
                self._add_threads(loop)

            self._timer = loop.call_later(_LONG_SECONDS, look_again)

    def _long_calls(self) -> int:
        since = perf_counter() - _LONG_SECONDS
        return sum(began < since for began in tuple(self._began.values()))

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            try:
                call = self._calls.get(timeout=_IDLE_SECONDS)
            except Empty:
                if self._may_leave(thread, idle=True):
                    return
                continue
            self._began[thread] = perf_counter()
            _run(call)
            del self._began[thread], call  # nothing of a call is kept until the next one
            if len(self._threads) > self._short and self._may_leave(thread):
                return

    def _may_leave(self, thread: threading.Thread, *, idle: bool = False) -> bool:
        """Let a thread end: it was idle, or the long calls that it stood in for end."""
        with self._lock:
            if idle:
                leaves = self._calls.empty()
            else:
                leaves = len(self._threads) - self._long_calls() > self._short
            if leaves:
                self._threads.discard(thread)
        return leaves
