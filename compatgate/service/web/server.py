"""Prepare the service, and run the server.

Preparing opens the address, the database and the matrix, and makes the first token. gunicorn then
keeps the processes, and uvicorn answers in each.
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
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from msgspec import Struct
from msgspec.structs import replace
from uvicorn_worker import UvicornWorker

from compatgate.canary.allowed_images import EVERY_IMAGE, AllowedImages
from compatgate.core.facts import Facts
from compatgate.documents.sources import Source, read_paths
from compatgate.errors import BadInput, Unavailable, quote_error
from compatgate.kit import clock, logs
from compatgate.kit.database.database import Database, display_url, resolve_url
from compatgate.kit.database.opening import Upgrade, prepare_to_serve
from compatgate.kit.database.tables import SchemaMismatch
from compatgate.kit.http.certificates import CertificatePair, ReloadingCertificate
from compatgate.kit.state import open_state_folder
from compatgate.service.gate.batch_store import CommitMode
from compatgate.service.gate.computing import ComputingProcess, preload
from compatgate.service.gate.images import ImageSettings
from compatgate.service.gate.last_known import LastKnown, LostMatrix, SnapshotFile
from compatgate.service.gate.outages import MAX_STALE, OutageOptions
from compatgate.service.gate.service import Gate
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.gate.spool import SPOOL_BYTES, SpoolOptions
from compatgate.service.gate.verdict_bodies import load_newest
from compatgate.service.gate.wheels import WheelSettings
from compatgate.service.matrix.imports import ImportResult
from compatgate.service.matrix.service import Authorship
from compatgate.service.tokens.service import NewToken

if TYPE_CHECKING:
    from compatgate.kit.http.wsgi import Application

BACKLOG = 2048
_UNREAD_MS = 60_000
"""The kernel ends the connection of a client that reads nothing of its answer for so long."""
AUTHOR = "serve"


class Prepared(Struct, frozen=True):
    """The prepared service.

    Attributes:
        facts: every table in memory.
        overlays: the operator's fact files, as given; so is the database.
        imported: what the import made; None: nothing was imported.
        revision: of the matrix.
        admin: the first token, at the first start only.
        snapshot: what answers rest on at the start; every process begins with it.
        outages: what each process keeps for outages of the database.
        confirmed_at: when the database last confirmed the snapshot.
        away: why the database does not answer; None: it does.
        seen_revision: a later revision that this replica saw before; 0: none.
        upgrade: of the schema; None: there was none.
    """

    facts: Facts
    overlays: Sequence[str] | None
    database: str | None
    imported: ImportResult | None
    revision: int
    admin: NewToken | None
    snapshot: Snapshot
    outages: OutageOptions
    confirmed_at: datetime
    away: str | None = None
    seen_revision: int = 0
    upgrade: Upgrade | None = None

    def open_gate(
        self,
        images: ImageSettings,
        *,
        under_test: AllowedImages = EVERY_IMAGE,
        commit: CommitMode = "sync",
        wheels: WheelSettings | None = None,
        spool_size: int = SPOOL_BYTES,
    ) -> Gate:
        """Open a gate on the same facts, for one process.

        Args:
            images: what is read of images that questions name.
            under_test: images that submitted canary runs may name.
            commit: whether an answer waits until PostgreSQL's disk has its decision.
            wheels: indexes whose wheels are measured.
            spool_size: bytes for decisions that wait for the database.
        """
        database = Database.open(self.database)
        if self.outages.file is not None:
            database.file.expect(self.outages.file)
        gate = Gate(
            database,
            self.facts,
            overlays=self.overlays,
            images=images,
            commit=commit,
            wheels=wheels,
            spool=SpoolOptions(self.outages.folder / "spool", spool_size),
        )
        gate.runs.under_test = under_test
        gate.snapshots.begin_with(self.snapshot)
        gate.keep_through_outages(self.outages, self.confirmed_at)
        gate.compute = ComputingProcess(self.overlays)
        return gate


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        BadInput: no such host, or the port is in use or not allowed.
    """
    if not host:
        raise BadInput("no host is given", field="--host", hint="use 0.0.0.0 for every address")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = quote_error(error)
        raise BadInput(
            f"{host!r} is not an address of this machine: {reason}", field="--host"
        ) from None
    family, kind, protocol, _, address = min(found, key=lambda item: item[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":  # connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise _cannot_listen(host, port, error) from None
    return listener


def _cannot_listen(host: str, port: int, error: Exception) -> BadInput:
    code = getattr(error, "errno", None)
    reason = quote_error(error)
    if code == errno.EADDRINUSE:
        hint = "choose another, or --port 0 for a free one"
        return BadInput(f"port {port} on {host} is in use", field="--port", hint=hint)
    if code == errno.EACCES:
        hint = "ports below 1024 need privileges"
        return BadInput(f"port {port} is not allowed", field="--port", hint=hint)
    return BadInput(f"cannot listen on {host}, port {port}: {reason}", field="--host")


def url_of(listener: socket.socket, host: str, *, secure: bool = False) -> str:
    """Return the URL of a listener, with the host as given."""
    port = listener.getsockname()[1]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Return whether a listener accepts only local connections."""
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


class StartOptions(Struct, frozen=True):
    """The input of a start.

    Attributes:
        database: URL or path; None: as `Gate.open`.
        matrix: files and folders, imported when the stored matrix is empty.
        overlays: the operator's fact files.
        state: folder of the replica's state; None: as `state_folder`.
        max_stale: as of `OutageOptions`.
        start_empty: accept a missing SQLite file although it had a matrix.
    """

    database: str | None = None
    matrix: Sequence[str] = ()
    overlays: Sequence[str] | None = None
    state: str | None = None
    max_stale: timedelta = MAX_STALE
    start_empty: bool = False


def prepare(options: StartOptions) -> Prepared:
    """Read the facts, open (and migrate) the database, import the first matrix.

    Without the database, the last-known-good snapshot of this replica takes its place.

    Raises:
        CompatgateError: whatever is wrong with any of them; nothing was imported then.
    """
    from compatgate.catalog import load_facts

    sources = read_paths(options.matrix)
    facts = load_facts(options.overlays)
    preload(facts)
    load_newest()
    url = resolve_url(options.database)
    folder = open_state_folder(url, options.state)
    file = SnapshotFile(folder, display_url(url))
    known = file.read()
    had = None if options.start_empty or known is None or not known.payload.revision else known
    if known is not None:
        clock.never_before(known.confirmed_at)
    if had is not None and url.drivername == "sqlite" and not _has_content(url.database):
        raise LostMatrix(str(url.database), had, file.path)
    outages = OutageOptions(folder, options.max_stale)
    try:
        prepared = _prepare_with_database(options, sources, facts, outages, had, file)
        if known is not None and prepared.revision < known.payload.revision:
            prepared = replace(prepared, seen_revision=known.payload.revision)
        return prepared
    except (SchemaMismatch, LostMatrix):
        raise
    except Unavailable as error:
        if known is None:
            raise
        if clock.now() - known.confirmed_at > options.max_stale:
            since = known.confirmed_at.strftime("%Y-%m-%d %H:%M:%S UTC")
            error.problem += f"; the last snapshot, of {since}, is older than --max-stale allows"
            raise
        return Prepared(
            facts,
            options.overlays,
            options.database,
            None,
            known.payload.revision,
            None,
            known.snapshot(facts),
            replace(outages, is_checked=False, file=Database(url).file.expect()),
            known.confirmed_at,
            error.problem,
        )


def _prepare_with_database(
    options: StartOptions,
    sources: Sequence[Source],
    facts: Facts,
    outages: OutageOptions,
    had: LastKnown | None,
    file: SnapshotFile,
) -> Prepared:
    opened = Database.open(options.database)
    upgrade = prepare_to_serve(opened)
    identity = opened.file.expect()
    gate = Gate(opened, facts, overlays=options.overlays)
    try:
        imported = None
        if had is not None and gate.snapshot().revision == 0:
            raise LostMatrix(opened.shown, had, file.path)
        if sources and _is_empty(gate):
            names = ", ".join(map(os.path.basename, options.matrix))
            by = Authorship(AUTHOR, f"first start: {names}")
            imported = gate.matrix.import_documents(sources, by)
        revision = gate.check_ready()["revision"]
        admin = gate.tokens.ensure_admin()
        return Prepared(
            facts,
            options.overlays,
            options.database,
            imported,
            revision,
            admin,
            gate.snapshot(),
            replace(outages, file=identity),
            clock.now(),
            upgrade=upgrade,
        )
    finally:
        gate.close()


def _has_content(path: str | None) -> bool:
    """Return whether a file exists and is not empty."""
    try:
        return os.stat(path or "").st_size > 0
    except OSError:
        return False


def _is_empty(gate: Gate) -> bool:
    matrix = gate.matrix
    lists = (matrix.list_targets, matrix.list_entries, matrix.list_waivers)
    return not any(found(limit=1).items for found in lists)


STOP_SECONDS = 30
_NO_PROXY = "255.255.255.255"
"""An address that no connection comes from; an empty setting means the default."""
_OPEN_FILES = 65_536
_IDLE_SECONDS = 75
"""Seconds after which an idle connection is closed."""
_STUCK_SECONDS = 120
"""Seconds after which a process with a blocked event loop is replaced."""
_M_ARENA_MAX = -8
"""The option of ``mallopt`` for the number of heaps, as in glibc's malloc.h."""
_HEAPS = 2


class ServerOptions(Struct, frozen=True):
    """The options of the server.

    Attributes:
        listener: bound and listening.
        workers: processes.
        log_level: as gunicorn names it.
        tls: None: plain HTTP.
        proxies: addresses and networks whose ``X-Forwarded-For`` and ``-Proto`` count.
    """

    listener: socket.socket
    workers: int
    log_level: str
    tls: CertificatePair | None = None
    proxies: Sequence[str] = ("127.0.0.1", "::1")


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
    _allow_many_files()
    _limit_heaps()
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


def _allow_many_files() -> None:
    """Raise the soft limit of open files, which the connections of two addresses would reach."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _limit_heaps() -> None:
    """Let all threads share a few heaps of glibc: each would keep what its own freed."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # musl has no such heaps
        libc.mallopt(_M_ARENA_MAX, _HEAPS)


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
        self._once = _FirstProcess()
        self._bind = f"fd://{options.listener.detach()}"
        super().__init__()

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            "bind": self._bind,
            "worker_class": _worker(self._options),
            "workers": self._options.workers,
            "loglevel": self._options.log_level,
            "logger_class": ServerLogger,
            "timeout": _STUCK_SECONDS,
            "graceful_timeout": STOP_SECONDS,
            "keepalive": _IDLE_SECONDS,
            "when_ready": _stop_gracefully_on_interrupt,
            "post_worker_init": self._ready,
            "child_exit": _drop_figures,
            "control_socket_disable": True,
            "forwarded_allow_ips": ",".join(self._options.proxies) or _NO_PROXY,
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


def _stop_gracefully_on_interrupt(arbiter: object) -> None:
    """Treat Ctrl-C as SIGTERM, because gunicorn would stop at once."""
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


class _FirstProcess:
    """A marker of the first process: it takes the only byte out of a pipe."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.write(write, b"!")
        os.close(write)

    def is_first(self) -> bool:
        return os.read(self._read, 1) == b"!"


def _drop_figures(arbiter: object, worker: Any) -> None:
    """Drop the gauges of an ended worker; its counters stay."""
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
