"""Gunicorn, embedded: its settings, its parent process, and when it is ready."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from socket import socket
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]
from msgspec import Struct

from compatgate.web.tls import Pair, Reloading
from compatgate.web.worker import Worker

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    from compatgate.gate.service import Gate

STOP_SECONDS = 30
_LONGEST_LINE = 8190


class ServerOptions(Struct, frozen=True):
    """How to serve.

    Attributes:
        listener: bound and listening.
        workers: processes.
        threads: of each process; so many requests are answered at once.
        log_level: as gunicorn names it.
        tls: None: plain HTTP.
    """

    listener: socket
    workers: int
    threads: int
    log_level: str
    tls: Pair | None = None


def serve(
    options: ServerOptions,
    make_gate: Callable[[], Gate],
    make_app: Callable[[Gate], WSGIApplication],
    announce: Callable[[], None],
) -> int:
    """Serve until a signal ends it.

    Args:
        options: how.
        make_gate: called in each worker process.
        make_app: likewise.
        announce: called once, when the first worker accepts connections.

    Returns:
        0, or another status when the workers could not start.
    """
    server = _Server(options, make_gate, make_app, announce)
    gc.collect()
    gc.freeze()  # what is loaded now stays shared between the processes
    parent = os.getpid()
    try:
        _Arbiter(server).run()
    except SystemExit as stop:
        status = int(stop.code or 0)
        if os.getpid() != parent:  # a worker ends here; what follows is its parent's to do
            os._exit(status)
        return status
    return 0


class _Server(BaseApplication):  # type: ignore[misc]
    """Gunicorn's view of the application; the gate is opened after the fork."""

    def __init__(
        self,
        options: ServerOptions,
        make_gate: Callable[[], Gate],
        make_app: Callable[[Gate], WSGIApplication],
        announce: Callable[[], None],
    ) -> None:
        self._options = options
        self._make_gate = make_gate
        self._make_app = make_app
        self._announce = announce
        self._gate: Gate | None = None
        self._once = _Once()
        self._bind = f"fd://{options.listener.detach()}"
        super().__init__()

    def load_config(self) -> None:
        options = self._options
        settings: dict[str, Any] = {
            "bind": self._bind,
            "worker_class": Worker,
            "workers": options.workers,
            "threads": options.threads,
            "loglevel": options.log_level,
            "timeout": 120,
            "graceful_timeout": STOP_SECONDS,
            "keepalive": 75,
            "limit_request_line": _LONGEST_LINE,
            "limit_request_field_size": _LONGEST_LINE,
            "post_worker_init": self._ready,
            "worker_exit": self._end,
            "child_exit": _forget_figures,
            "control_socket_disable": True,
        }
        if tls := options.tls:
            settings |= {"certfile": tls.certificate, "keyfile": tls.key}
            settings["ssl_context"] = _context_of(Reloading(tls))
        for name, value in settings.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> WSGIApplication:
        self._gate = self._make_gate()
        app = self._make_app(self._gate)
        gc.freeze()  # it lives as long as the process: no collection need walk it
        return app

    def _ready(self, worker: Worker) -> None:
        if self._once.is_first():
            self._announce()

    def _end(self, arbiter: object, worker: object) -> None:
        if self._gate is not None:
            self._gate.close()


class _Arbiter(Arbiter):  # type: ignore[misc]
    """The parent process; Ctrl-C stops as gracefully as SIGTERM, a second one at once."""

    def handle_int(self) -> None:
        self.handle_term()


class _Once:
    """Of many processes, one is the first: it takes the only byte out of a pipe."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.write(write, b"!")
        os.close(write)

    def is_first(self) -> bool:
        return os.read(self._read, 1) == b"!"


def _context_of(reloading: Reloading) -> Callable[[Any, Any], Any]:
    """As gunicorn takes it: a function of two arguments."""
    return lambda config, factory: reloading()


def _forget_figures(arbiter: object, worker: Any) -> None:
    """A worker has ended: its counters stay, what was true of it only goes."""
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
