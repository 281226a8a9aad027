"""Compute expensive answers in a process of their own, within a budget.

In the process that serves the gate, they would hold its interpreter lock while pipelines and API
servers wait. A child of a fork server that has read the facts already computes them. The kernel
limits its processor time and memory, and it is killed as soon as its client has left. A child that
has answered answers the next question as well, because it has evaluated much of it before.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import pickle
import resource
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from io import BytesIO
from math import ceil
from multiprocessing.connection import Connection
from time import monotonic, process_time
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.errors import CompatgateError, Unavailable, quote_error
from compatgate.kit.http.replies import TooBusy
from compatgate.kit.http.wsgi import CLIENT_GONE
from compatgate.service.matrix.snapshots.snapshot import Snapshot

P = ParamSpec("P")
T = TypeVar("T")
_OVERLAYS = "COMPATGATE_COMPUTING_OVERLAYS"
"""Environment variable of the fork server: the operator's fact files, as JSON."""
_NICE = 3
_LOOK_SECONDS = 0.1
_MAX_WAITING = 8
_MAX_SHARED = 4
"""Snapshots and matrices that stay in their pickled form."""
_MAX_ANSWERS = 100
"""Questions that a child answers; its part of the memory may have grown until then."""
_LEAN = 4
"""A child that used this part of its memory, or more, answers no other question."""
_TABLES = (
    "cuda_driver",
    "driver_branches",
    "forward_compat",
    "gpus",
    "arch",
    "cudnn",
    "nccl",
    "known_issues",
)
_MODULES = (
    "compatgate.cli.main",
    "compatgate.core.compare.backtest",
    "compatgate.core.compare.plan",
    "compatgate.core.solve",
    "compatgate.service.changes.comparison.service",
)
"""Modules that a child would import at each call."""
_log = logging.getLogger("compatgate.computing")
_Shared = OrderedDict[int, tuple[object, bytes]]
"""Values that many calls share, each with its pickled form."""


class OverBudget(CompatgateError):
    """A question needs more processor time or memory than one may use."""

    status = 422
    exit_code = 3
    slug = "over-budget"


class Budget(Struct, frozen=True):
    """The most that one question may use: seconds of processor time, bytes of memory and answer.

    ``patience``: seconds until the answer, waiting for other questions included.
    """

    seconds: int = 20
    patience: float = 60.0
    memory: int = 2 * 1024**3
    answer: int = 32 * 1024**2


class ComputingProcess:
    """Computes one answer at a time, in a process that ends with a question it could not answer."""

    def __init__(self, overlays: Sequence[str] | None, budget: Budget = Budget()) -> None:  # noqa: B008
        self._overlays = overlays
        self._budget = budget
        self._turn = threading.Lock()
        self._waiting = 0
        self._context: Any = None
        self._shared: _Shared = OrderedDict()
        self._idle: tuple[Any, Connection] | None = None
        """A child that waits for a question."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function."""
        if self._waiting >= _MAX_WAITING:
            what = f"{self._waiting} expensive questions wait already"
            raise TooBusy(what, hint="retry in a moment")
        until = monotonic() + self._budget.patience
        self._waiting += 1
        try:
            while not self._turn.acquire(timeout=_LOOK_SECONDS):
                self._require_client(until)
        finally:
            self._waiting -= 1
        try:
            self._require_client(until)
            answer: T = self._run((function, args, kwargs), until)
            return answer
        finally:
            self._turn.release()

    def _run(self, call: Any, until: float) -> Any:
        process, ours = self._take_child()
        stays = False
        try:
            ours.send_bytes(_Pickler(self._shared).pickle(call))
            while not ours.poll(_LOOK_SECONDS):
                self._require_client(until)
            kind, value, stays = pickle.loads(ours.recv_bytes())  # noqa: S301 - of our own process
        except (EOFError, ConnectionError):
            raise self._over_budget("processor time or memory") from None
        finally:
            if stays:
                self._idle = process, ours
            else:
                ours.close()
                process.kill()
                process.join()
        if kind == "result":
            return value
        if kind == "problem":
            error_type, arguments, members = value
            problem: CompatgateError = error_type.__new__(error_type, *arguments)
            problem.__dict__.update(members)
            raise problem
        if kind == "budget":
            raise self._over_budget(value)
        _log.error("an expensive question failed:\n%s", value)
        raise Unavailable("the question could not be computed", hint="the log of the gate says why")

    def _take_child(self) -> tuple[Any, Connection]:
        child, self._idle = self._idle, None
        if child and child[0].is_alive():
            return child
        ours, theirs = multiprocessing.Pipe()
        if self._context is None:
            overlays = None if self._overlays is None else [*self._overlays]
            os.environ[_OVERLAYS] = json.dumps(overlays)
            self._context = multiprocessing.get_context("forkserver")
            self._context.set_forkserver_preload([__name__, *_MODULES])
        process = self._context.Process(
            target=_serve, args=(theirs, self._budget, self._overlays), daemon=True
        )
        try:
            process.start()
        except (OSError, EOFError) as error:
            what = f"no process can be started for the question: {quote_error(error)}"
            raise Unavailable(what, hint="try again; look for memory and processes") from None
        theirs.close()
        return process, ours

    def _over_budget(self, what: str) -> OverBudget:
        seconds, memory = self._budget.seconds, self._budget.memory // 1024**2
        return OverBudget(
            f"the question needs more {what} than one may use ({seconds} s, {memory} MiB)",
            hint="ask about one pool, fewer entries or a shorter period",
        )

    def _require_client(self, until: float) -> None:
        gone = CLIENT_GONE.get()
        if gone is not None and gone.is_set():
            raise Unavailable("the client has left")
        if monotonic() > until:
            raise TooBusy("the answer takes too long", hint="retry later, or ask for less")


def get_ready(snapshot: Snapshot) -> None:
    """Have a child and the snapshot there before the first question, which else waits for both."""


class _Pickler(pickle.Pickler):
    """Leaves out the facts, which the other process has, and pickles shared values once."""

    def __init__(self, shared: _Shared | None) -> None:
        self._file = BytesIO()
        self._shared = shared
        super().__init__(self._file, protocol=pickle.HIGHEST_PROTOCOL)

    def pickle(self, value: object) -> bytes:
        self.dump(value)
        return self._file.getvalue()

    def persistent_id(self, value: Any) -> Any:
        """Return how to find a value that is not pickled here; None: it is."""
        if isinstance(value, Facts):
            return "facts", value.digest, value.measured_records
        if self._shared is None or not isinstance(value, Snapshot | Matrix):
            return None
        known = self._shared.get(id(value))
        if known is None:
            known = self._shared[id(value)] = value, _Pickler(None).pickle(value)
            while len(self._shared) > _MAX_SHARED:
                self._shared.popitem(last=False)
        return "shared", known[1]


class _Unpickler(pickle.Unpickler):
    """Finds the facts of a call: those of the fork server, or read for this call alone."""

    def __init__(self, data: bytes, overlays: Sequence[str] | None) -> None:
        super().__init__(BytesIO(data))
        self._overlays = overlays

    def persistent_load(self, place: Any) -> Any:
        kind, value, *rest = place
        if kind == "shared":
            return _load_shared(value, None if self._overlays is None else tuple(self._overlays))
        facts = _FACTS
        if facts is None or facts.digest != value:  # the server was started for other facts
            from compatgate.catalog import load_facts

            facts = load_facts(self._overlays)
        if facts.digest != value:
            hint = "restart the gate"
            raise Unavailable("the fact files have changed since the gate started", hint=hint)
        return facts.with_measured(rest[0]) if rest[0] else facts


@lru_cache(maxsize=2)
def _load_shared(data: bytes, overlays: tuple[str, ...] | None) -> Any:
    """Return a value that many calls share, with what earlier ones have computed of it."""
    return _Unpickler(data, overlays).load()


def _serve(connection: Connection, budget: Budget, overlays: Sequence[str] | None) -> None:
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_AS, (budget.memory, budget.memory))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    for left in reversed(range(_MAX_ANSWERS)):
        try:
            call = connection.recv_bytes()
        except EOFError:  # the gate has ended
            return
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(process_time()) + budget.seconds, most))
        kind, value = _compute(call, overlays)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        stays = left > 0 and kind != "budget" and used * _LEAN < budget.memory
        data = pickle.dumps((kind, value, stays), protocol=pickle.HIGHEST_PROTOCOL)
        if len(data) > budget.answer:
            data = pickle.dumps(("budget", f"room ({len(data) // 1024**2} MiB)", False))
        connection.send_bytes(data)


def _compute(call: bytes, overlays: Sequence[str] | None) -> tuple[str, Any]:
    try:
        function, args, kwargs = _Unpickler(call, overlays).load()
        return "result", function(*args, **kwargs)
    except CompatgateError as error:
        return "problem", (type(error), error.args, error.__dict__)
    except MemoryError:
        return "budget", "memory"
    except Exception:
        return "failure", traceback.format_exc()


def preload(facts: Facts) -> None:
    """Read every table now, so that processes forked from here on share them."""
    for name in _TABLES:
        getattr(facts, name)
    for name in facts.framework_names:
        facts.framework(name)


def _read_facts() -> Facts | None:
    """Read the facts where this module is imported by the fork server."""
    stated = os.environ.get(_OVERLAYS)
    if stated is None:
        return None
    from compatgate.catalog import load_facts

    try:
        facts = load_facts(json.loads(stated))
        preload(facts)
    except CompatgateError:  # each call reads the facts for itself, and says why it cannot
        return None
    return facts


_FACTS = _read_facts()
