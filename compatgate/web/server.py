"""Run the server: gunicorn keeps the processes, and uvicorn answers in each.

Both run as they are, by their documented settings. This module binds the address before anything
starts, so that a port in use is an error, and a reload loses no connection.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import ipaddress
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from msgspec import Struct
from uvicorn_worker import UvicornWorker

from compatgate.errors import BadInput, quote_error
from compatgate.kit import logs
from compatgate.kit.http.certificates import CertificatePair, ReloadingCertificate
from compatgate.service.app import Rooms

if TYPE_CHECKING:
    from compatgate.kit.http.wsgi import Application

BACKLOG = 256
"""Connections that wait to be accepted.

They are accepted together, and each may have a burst to parse while the others wait.
"""
STOP_SECONDS = 30
_UNREAD_MS = 60_000
"""The kernel ends the connection of a client that reads nothing of its answer for so long."""
_ARRIVED_BYTES = 4096
"""What the kernel lets a client send ahead until it is read: some 120 requests of 35 bytes.

The server parses it at once, after each answer, while everybody waits: 0.6 ms, and 1.6 ms with
twice as much. With less, a client on an ordinary network sends two segments in turn, and each waits
for an answer.
"""
_IDLE_SECONDS = 75
"""Seconds after which an idle connection is closed."""
_STUCK_SECONDS = 120
"""Seconds after which a process with a blocked event loop is replaced."""
_NO_PROXY = "255.255.255.255"
"""An address that no connection comes from; an empty setting means the default."""
_OPEN_FILES = 65_536
_M_ARENA_MAX = -8
"""The option of ``mallopt`` for the number of heaps, as in glibc's malloc.h."""
_HEAPS = 2


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    if not host:
        raise BadInput("no host is given", field="--host", hint="use 0.0.0.0 for every address")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        what = f"{host!r} is not an address of this machine: {quote_error(error)}"
        raise BadInput(what, field="--host") from None
    family, kind, protocol, _, address = min(found, key=lambda item: item[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":  # connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ARRIVED_BYTES)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise _cannot_listen(host, port, error) from None
    return listener


def _cannot_listen(host: str, port: int, error: Exception) -> BadInput:
    code = getattr(error, "errno", None)
    if code == errno.EADDRINUSE:
        hint = "choose another, or --port 0 for a free one"
        return BadInput(f"port {port} on {host} is in use", field="--port", hint=hint)
    if code == errno.EACCES:
        hint = "ports below 1024 need privileges"
        return BadInput(f"port {port} is not allowed", field="--port", hint=hint)
    reason = quote_error(error)
    return BadInput(f"cannot listen on {host}, port {port}: {reason}", field="--host")


def url_of(listener: socket.socket, host: str, *, secure: bool = False) -> str:
    """Return the URL of a listener, with the host as given."""
    port = listener.getsockname()[1]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Return whether a listener accepts only local connections."""
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


class ServerOptions(Struct, frozen=True):
    """The options of the server; without ``tls``, plain HTTP.

    ``proxies``: addresses and networks whose ``X-Forwarded-For`` and ``-Proto`` count.
    """

    listener: socket.socket
    workers: int
    log_level: str
    tls: CertificatePair | None = None
    proxies: Sequence[str] = ("127.0.0.1", "::1")


def serve(
    options: ServerOptions,
    make_rooms: Callable[[], Rooms],
    make_app: Callable[[Rooms], Application],
    announce: Callable[[], None],
) -> int:
    """Serve until a signal ends it; return 0, or another status when the workers cannot start.

    Each worker process calls ``make_rooms`` and ``make_app``, whose application closes the gate.
    ``announce`` is called once, when the first worker accepts connections.
    """
    server = _Server(options, make_rooms, make_app, announce)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # each connection is an open file
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc; with a heap for each thread, each keeps what it freed
        libc.mallopt(_M_ARENA_MAX, _HEAPS)
    gc.collect()
    gc.freeze()  # what is loaded now stays shared between the processes
    parent = os.getpid()
    try:
        server.run()
    except SystemExit as stop:
        status = int(stop.code or 0)
        if os.getpid() != parent:  # a worker ends here; what follows is its parent's to do
            logs.writer.flush()
            os._exit(status)
        return status
    return 0


class _Server(BaseApplication):  # type: ignore[misc]
    """Gunicorn's view of the application; the gate is opened after the fork."""

    def __init__(
        self,
        options: ServerOptions,
        make_rooms: Callable[[], Rooms],
        make_app: Callable[[Rooms], Application],
        announce: Callable[[], None],
    ) -> None:
        self._options = options
        self._make_rooms = make_rooms
        self._make_app = make_app
        self._announce = announce
        self._bind = f"fd://{options.listener.detach()}"
        self._first, write = os.pipe()  # the first process that is ready reads the only byte
        os.write(write, b"!")
        os.close(write)
        super().__init__()

    def load_config(self) -> None:
        options = self._options
        settings: dict[str, Any] = {
            "bind": self._bind,
            "backlog": BACKLOG,  # both servers listen once more
            "worker_class": _worker(options),
            "workers": options.workers,
            "loglevel": options.log_level,
            "logger_class": ServerLogger,
            "timeout": _STUCK_SECONDS,
            "graceful_timeout": STOP_SECONDS,
            "keepalive": _IDLE_SECONDS,
            "when_ready": lambda arbiter: signal.signal(signal.SIGINT, _terminate),
            "post_worker_init": self._ready,
            "child_exit": _drop_figures,
            "control_socket_disable": True,
            "forwarded_allow_ips": ",".join(options.proxies) or _NO_PROXY,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Application:
        app = self._make_app(self._make_rooms())
        gc.freeze()  # it lives as long as the process: no collection need walk it
        return app

    def _ready(self, worker: Any) -> None:
        worker.wsgi.listeners = [one.fileno() for one in worker.sockets]
        if os.read(self._first, 1):
            self._announce()


class ServerLogger(Logger):  # type: ignore[misc]
    """The logger of gunicorn, and so of uvicorn, whose lines look like all others."""

    def setup(self, cfg: Any) -> None:
        """Use the handlers of the root logger."""
        super().setup(cfg)
        if configured := logs.handlers():
            self.error_log.handlers = configured


def _worker(options: ServerOptions) -> type[UvicornWorker]:
    """Return the class of worker processes; uvicorn's settings are an attribute of it."""
    settings: dict[str, Any] = {
        "interface": "asgi3",
        "lifespan": "on",
        "http": "httptools",
        "loop": "uvloop",
        "ws": "none",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": STOP_SECONDS,
    }
    if options.tls is not None:
        context = ReloadingCertificate(options.tls).context
        settings["ssl_context_factory"] = lambda config, default: context
    return type("Worker", (UvicornWorker,), {"CONFIG_KWARGS": settings})


def _terminate(*_: object) -> None:
    """Treat Ctrl-C as SIGTERM, because gunicorn would stop at once."""
    os.kill(os.getpid(), signal.SIGTERM)


def _drop_figures(arbiter: object, worker: Any) -> None:
    """Drop the gauges of an ended worker; its counters stay."""
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
