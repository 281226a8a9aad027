"""Gunicorn, embedded: worker processes with threads, and a stop that loses nothing."""

from __future__ import annotations

import gc
import os
import select
import signal
import time
from collections.abc import Callable
from functools import partial
from socket import SHUT_RD, SHUT_RDWR, socket
from ssl import SSLSocket
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]
from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]
from msgspec import Struct

from compatgate.web import streams
from compatgate.web.express import End
from compatgate.web.lane import EXTENSION
from compatgate.web.tls import Pair, Reloading

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    from compatgate.gate.service import Gate

RECEIVE_SECONDS = 30.0
"""A request must have arrived whole in this time; a thread waits for it no longer."""
ANSWER_SECONDS = 300.0
"""A request must have been answered in this time, however slowly the client reads."""
STOP_SECONDS = 30
_LONGEST_LINE = 8190
_LINGER_MILLISECONDS = 2


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


class Worker(ThreadWorker):  # type: ignore[misc]
    """A worker that waits for no slow client for ever."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._busy: dict[Any, float] = {}

    def init_signals(self) -> None:
        """Stop gracefully on Ctrl-C as well."""
        super().init_signals()
        signal.signal(signal.SIGINT, self.handle_exit)  # a terminal sends it to every process

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop gracefully; who follows a log is not waited for."""
        # A worker that is still starting has no application yet, and nobody who listens.
        listeners = getattr(getattr(self, "wsgi", None), "extensions", {}).get(streams.EXTENSION)
        if listeners is not None:
            listeners.ending = True
        super().handle_exit(sig, frame)

    def handle(self, conn: Any) -> Any:
        """Answer the requests of a connection, as long as they follow each other closely.

        Giving a connection back to the main thread and taking it again costs more than most
        answers, so its thread waits a moment for the next request, unless others are waiting.
        """
        while True:
            self._busy[conn] = time.monotonic()
            try:
                result = super().handle(conn)
                if result is not True or not self.alive:
                    return result
                end = self._go_on(conn)
            except OSError:
                return False
            finally:
                self._busy.pop(conn, None)
            if end is not End.OTHER:
                return end is End.IDLE

    def _go_on(self, conn: Any) -> End:
        """Answer plain questions; everything else is left to gunicorn."""
        unreader = conn.parser.unreader
        if unreader.buf.getvalue():
            return End.OTHER
        express = getattr(self.wsgi, "extensions", {}).get(EXTENSION)
        ready = partial(self._is_ready, conn)
        if express is None:
            return End.OTHER if ready() else End.IDLE
        end: End = express.serve(conn.sock, ready, unreader.unread)
        return end

    def _is_ready(self, conn: Any) -> bool:
        """Wait a moment for the next request, unless others are waiting for this thread."""
        self._busy.pop(conn, None)
        if self.tpool._work_queue.qsize() or not self.alive:
            return False
        if isinstance(conn.sock, SSLSocket) and conn.sock.pending():  # poll does not see it
            self._busy[conn] = time.monotonic()
            return True
        poll = select.poll()
        poll.register(conn.sock, select.POLLIN)
        if not poll.poll(_LINGER_MILLISECONDS):
            return False
        self._busy[conn] = time.monotonic()
        return True

    def notify(self) -> None:
        """Called every second at least: ends what took too long."""
        super().notify()
        now = time.monotonic()
        for conn, began in list(self._busy.items()):
            if now - began > RECEIVE_SECONDS:
                try:
                    late = now - began > ANSWER_SECONDS
                    # Not TLS's own shutdown, which would go on in plain text.
                    socket.shutdown(conn.sock, SHUT_RDWR if late else SHUT_RD)
                except OSError:
                    continue


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
