"""Run the server: gunicorn keeps the processes, uvicorn answers in each."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from msgspec import Struct
from uvicorn_worker import UvicornWorker

from compatgate.kit.http.connection import CertificatePair, Connection, ReloadingCertificate

if TYPE_CHECKING:
    from compatgate.kit.http.wsgi import Application
    from compatgate.service.gate.service import Gate

STOP_SECONDS = 30
_IDLE_SECONDS = 75
"""Seconds after which an idle connection is closed."""
_STUCK_SECONDS = 120
"""Seconds after which a process with a blocked event loop is replaced."""


class ServerOptions(Struct, frozen=True):
    """The options of the server.

    Attributes:
        listener: bound and listening.
        workers: processes.
        log_level: as gunicorn names it.
        tls: None: plain HTTP.
    """

    listener: socket.socket
    workers: int
    log_level: str
    tls: CertificatePair | None = None


def serve(
    options: ServerOptions,
    make_gate: Callable[[], Gate],
    make_app: Callable[[Gate], Application],
    announce: Callable[[], None],
) -> int:
    """Serve until a signal ends it.

    Args:
        options: how.
        make_gate: called in each worker process.
        make_app: called in each worker process; the application closes the gate at the end.
        announce: called once, when the first worker accepts connections.

    Returns:
        0, or another status when the workers could not start.
    """
    server = _Server(options, make_gate, make_app, announce)
    gc.collect()
    gc.freeze()  # what is loaded now stays shared between the processes
    parent = os.getpid()
    try:
        Arbiter(server).run()
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
        make_app: Callable[[Gate], Application],
        announce: Callable[[], None],
    ) -> None:
        self._options = options
        self._make_gate = make_gate
        self._make_app = make_app
        self._announce = announce
        self._once = _Once()
        self._bind = f"fd://{options.listener.detach()}"
        super().__init__()

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            "bind": self._bind,
            "worker_class": _worker(self._options.tls),
            "workers": self._options.workers,
            "loglevel": self._options.log_level,
            "timeout": _STUCK_SECONDS,
            "graceful_timeout": STOP_SECONDS,
            "keepalive": _IDLE_SECONDS,
            "when_ready": _stop_gracefully_on_interrupt,
            "post_worker_init": self._ready,
            "child_exit": _forget_figures,
            "control_socket_disable": True,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Application:
        app = self._make_app(self._make_gate())
        gc.freeze()  # it lives as long as the process: no collection need walk it
        return app

    def _ready(self, worker: object) -> None:
        if self._once.is_first():
            self._announce()


def _worker(tls: CertificatePair | None) -> type[UvicornWorker]:
    """Return the class of worker processes; uvicorn's settings are an attribute of it."""
    settings: dict[str, Any] = {
        "interface": "asgi3",
        "lifespan": "on",
        "http": Connection,
        "loop": "uvloop",
        "ws": "none",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": STOP_SECONDS,
    }
    if tls is not None:
        context = ReloadingCertificate(tls).context
        settings["ssl_context_factory"] = lambda config, default: context
    return type("Worker", (UvicornWorker,), {"CONFIG_KWARGS": settings})


def _stop_gracefully_on_interrupt(arbiter: object) -> None:
    """Treat Ctrl-C as SIGTERM, because gunicorn would stop at once."""
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


class _Once:
    """A marker of the first process: it takes the only byte out of a pipe."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.write(write, b"!")
        os.close(write)

    def is_first(self) -> bool:
        return os.read(self._read, 1) == b"!"


def _forget_figures(arbiter: object, worker: Any) -> None:
    """Drop the gauges of an ended worker; its counters stay."""
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
