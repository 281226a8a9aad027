"""PostgreSQL in a cluster of the tests' own, which may also be killed."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from compatgate.kit.database import tables
from compatgate.kit.database.database import Database, resolve_url

ADDRESS = "127.0.0.1"
_PATIENCE = 30.0
_COMMITTING = """
SELECT pid, state FROM pg_stat_activity
WHERE application_name = 'compatgate' AND query = 'COMMIT' AND pid <> pg_backend_pid()
ORDER BY state
"""


def programs() -> Path | None:
    """The folder of PostgreSQL's programs; None where it is not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(installed, key=lambda path: float(path.parts[-3]), default=None)
    return newest.parent if newest else None


class Cluster:
    """A server on a free port, with a copy of files; settings are those of its command line.

    Attributes:
        url: of its database ``postgres``.
    """

    def __init__(self, folder: Path, binaries: Path, settings: dict[str, str], files: Path) -> None:
        self._folder = folder
        if os.getuid() == 0:
            shutil.chown(folder, _user())
        self._data = folder / "data"
        self._binaries = binaries
        self._port = _free_port()
        self._settings = settings
        self.url = f"postgresql://compatgate@{ADDRESS}:{self._port}/postgres"
        _run("cp", "--archive", files, self._data)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self._port} -c listen_addresses={ADDRESS} -k {self._folder}"
        options += "".join(f" -c {name}={value}" for name, value in self._settings.items())
        self._control("-l", self._folder / "log", "-o", options, "start")

    def stop(self) -> None:
        """Stop it as a crash would: nothing in its memory is written."""
        self._control("-m", "immediate", "stop")

    def shut_down(self) -> None:
        """Stop it in order: all is written."""
        self._control("-m", "fast", "stop")

    def kill(self) -> None:
        """Kill the server's first process; the others end by themselves."""
        server, *others = self._processes()
        os.kill(server, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE
        while any(_is_running(pid) for pid in (server, *others)):
            assert time.monotonic() < deadline, "processes of the server go on"
            time.sleep(0.05)

    def freeze(self) -> None:
        """Stop every process of it: it keeps its connections, and is silent."""
        for pid in self._processes():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let its processes go on."""
        for pid in self._processes():
            os.kill(pid, signal.SIGCONT)

    def _processes(self) -> list[int]:
        parent = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [parent, *map(int, children)]

    def kill_committing(self) -> None:
        """Kill the backend that is committing decisions, and wait until the server is back."""
        os.kill(self._committing(), signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            time.sleep(0.05)
            with suppress(OperationalError):
                self.ask("SELECT 1")
                return
        raise AssertionError("the server did not come back")

    def _committing(self) -> int:
        """The process in COMMIT; after a while, the one whose last statement that was."""
        rows: list[tuple[int, str]] = []
        for _ in range(200):
            rows = self.ask(_COMMITTING)
            if rows and rows[0][1] == "active":
                break
            time.sleep(0.01)
        return rows[0][0]

    def ask(self, statement: str) -> list[tuple[int, str]]:
        """The rows of a statement, on a connection of its own."""
        engine = create_engine(resolve_url(self.url), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                return [tuple(row) for row in connection.execute(text(statement))]
        finally:
            engine.dispose()

    def _control(self, *arguments: object) -> None:
        _run(self._binaries / "pg_ctl", "-D", self._data, "-w", *arguments)


@cache
def _initialised(binaries: Path) -> Path:
    """Make the files of an empty cluster, once in a process: each test's server has a copy."""
    folder = _new_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if os.getuid() == 0:
        shutil.chown(folder, _user())
    _run(binaries / "initdb", "-D", folder / "data", "-U", "compatgate", "-A", "trust",
         "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync")  # fmt: skip
    return folder / "data"


@cache
def _with_schema(binaries: Path) -> Path:
    """Make the files of a cluster whose database has the schema, likewise."""
    folder = _new_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    cluster = Cluster(folder, binaries, {"fsync": "off"}, _initialised(binaries))
    cluster.start()
    database = Database.open(cluster.url)
    tables.migrate_schema(database)
    database.close()
    cluster.shut_down()
    return folder / "data"


def _new_folder() -> Path:
    place = os.environ.get("PYTEST_DEBUG_TEMPROOT")  # a server that recovers syncs every file
    return Path(tempfile.mkdtemp(prefix="compatgate-postgresql-", dir=place))


def _user() -> str:
    """The user of the server, which root cannot be."""
    return "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name


def _run(*command: object) -> None:
    prefix = ["runuser", "-u", _user(), "--"] if os.getuid() == 0 else []
    subprocess.run(
        [*prefix, *map(str, command)],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=60,
        cwd="/",
    )


@contextmanager
def running(binaries: Path, *, schema: bool = False, **settings: str) -> Iterator[Cluster]:
    """A running cluster, with the schema or empty; it is removed at the end."""
    files = (_with_schema if schema else _initialised)(binaries)
    folder = _new_folder()
    try:
        cluster = Cluster(folder, binaries, settings, files)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class DroppingProxy:
    """Stands before a server, and can lose the answer to a COMMIT of decisions with its connection.

    Attributes:
        url: by which the server is reached through it.
        drops: how many answers it is still to lose.
        flows: while it is not set, nothing passes, and no connection ends.
    """

    def __init__(self, url: str) -> None:
        there = make_url(url)
        self._server = (there.host or ADDRESS, there.port or 5432)
        self._listener = socket.create_server((ADDRESS, 0))
        port = self._listener.getsockname()[1]
        self.url = there.set(host=ADDRESS, port=port).render_as_string(hide_password=False)
        self.drops = 0
        self.flows = threading.Event()
        self.flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.flows.wait()
                server = socket.create_connection(self._server)
                lose = threading.Event()
                for one, other in ((client, server), (server, client)):
                    pumping = (one, other, client, lose)
                    threading.Thread(target=self._pump, args=pumping, daemon=True).start()

    def _pump(
        self, one: socket.socket, other: socket.socket, client: socket.socket, lose: threading.Event
    ) -> None:
        decides = False
        with suppress(OSError):
            while data := one.recv(65536):
                decides = decides or b"INSERT INTO decisions" in data
                if one is client and decides and self.drops and b"COMMIT\0" in data:
                    self.drops -= 1
                    lose.set()
                if one is not client and lose.is_set():
                    break
                self.flows.wait()
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port: int = probe.getsockname()[1]
        return port
