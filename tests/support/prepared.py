"""Start ``python -m compatgate`` from a process that has loaded its modules already.

A command that opens a database imports a thousand modules, for more than a second of CPU time, and
tests start a thousand commands. So `subprocess.Popen` asks a process that has imported them to
fork: what it starts is a process as any other, with its own number, environment, folder, files and
signals, and runs `compatgate.cli.main.main`. A test that is about the start itself is in `FRESH`;
what cannot be handed over (another Python, another package, other encodings) is started as ever.
``COMPATGATE_TEST_FRESH=1`` starts every process afresh.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "compatgate"
FRESH = (
    "e2e/test_check_command.py",  # seconds of a start, and what it imports
    "e2e/test_contributing.py",
    "e2e/test_readme.py",
)
"""Files below ``tests`` whose commands are started afresh."""

LOADED = (
    "alembic.command", "flask", "gunicorn.app.base", "httptools", "psycopg", "sqlalchemy.orm",
    "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite", "uvicorn.protocols.http",
    "uvicorn.protocols.http.httptools_impl", "uvicorn_worker", "yaml", "compatgate.cli.main",
    "compatgate.cli.serve", "compatgate.kit.database.tables",
)  # fmt: skip
"""What the process imports, beside every module of `compatgate.service`."""
ENVIRONMENTAL = "prometheus_client"
"""Reads the environment when it is imported: neither it nor what needs it is imported before."""

_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "PROMETHEUS_")
_HARMLESS = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})
_RealPopen = subprocess.Popen
_state: dict[str, Any] = {"fresh": False}


def pytest_configure() -> None:
    """Let `subprocess` start commands from the prepared process."""
    if not os.environ.get("COMPATGATE_TEST_FRESH"):
        subprocess.Popen = PreparedPopen  # type: ignore[misc]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start afresh what the file of a test asks for."""
    _state["fresh"] = item.path.is_relative_to(TESTS) and (
        item.path.relative_to(TESTS).as_posix() in FRESH
    )


class PreparedPopen(_RealPopen):  # type: ignore[type-arg]
    """A `subprocess.Popen` whose child is forked from the prepared process, where that can be."""

    _reply: socket.socket | None = None

    @property
    def is_forked(self) -> bool:
        """Whether the prepared process has started it."""
        return self._reply is not None

    def _execute_child(self, args: Any, executable: Any, *options: Any) -> None:
        (preexec_fn, close_fds, pass_fds, cwd, env, _, _, shell,
         p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, _,
         gid, gids, uid, umask, start_new_session, process_group) = options  # fmt: skip
        usual = (
            preexec_fn is None and close_fds and not pass_fds and not shell and executable is None
            and gid is None and gids is None and uid is None and umask < 0 and process_group == -1
        )  # fmt: skip
        folder = os.fspath(cwd or os.getcwd())
        environment = dict(os.environ if env is None else env)
        if usual and not _state["fresh"] and _can_fork(args, folder, environment):
            request = {
                "argv": [os.fspath(one) for one in args[3:]],
                "cwd": folder,
                "env": environment,
                "session": bool(start_new_session),
            }
            files = [p2cread, c2pwrite, errwrite]
            files = [number if one == -1 else one for number, one in enumerate(files)]
            forked = _fork(request, files)
            if forked is not None:
                self.pid, self._reply = forked
                self._child_created = True
                self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
                return
        super()._execute_child(args, executable, *options)  # type: ignore[misc]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._reply is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc, no-any-return]
        try:
            told = self._reply.recv(64, socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        self._reply.close()
        return self.pid, int(told or signal.SIGKILL)

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if self._reply is None:
            return super()._internal_poll(*arguments, **options)  # type: ignore[misc, no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _can_fork(args: Any, folder: str, environment: dict[str, str]) -> bool:
    """Say whether a command is one that the prepared process can run as a fresh one would."""
    if not isinstance(args, list | tuple) or list(args[:3]) != [sys.executable, "-m", "compatgate"]:
        return False
    other = Path(folder, "compatgate")
    return (
        os.path.isdir(folder)
        and (not other.is_dir() or other.samefile(PACKAGE))
        and all(isinstance(one, str) for pair in environment.items() for one in pair)
        and _of_interpreter(environment) == _of_interpreter(dict(os.environ))
    )


def _of_interpreter(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that a Python reads when it starts."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_INTERPRETER) and name not in _HARMLESS
    }


@cache
def _prepared(_variables: tuple[tuple[str, str], ...]) -> socket.socket:
    """Start the prepared process; the end at which it listens. It ends when this end is closed."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _RealPopen(
        [sys.executable, __file__, str(there.fileno())],
        stdin=subprocess.DEVNULL,
        pass_fds=[there.fileno()],
        cwd="/",
        env={name: value for name, value in os.environ.items() if name not in _HARMLESS},
    )
    there.close()
    return here


def _fork(request: dict[str, Any], files: list[int]) -> tuple[int, socket.socket] | None:
    """Ask for a process; its number, and the socket that will tell how it ended."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listening = _prepared(tuple(sorted(_of_interpreter(dict(os.environ)).items())))
        socket.send_fds(listening, [json.dumps(request).encode()], [its.fileno(), *files])
        its.close()
        return int(mine.recv(64)), mine
    except (OSError, ValueError):  # too much to say, a closed file, or it is gone
        its.close()
        mine.close()
        return None


def _serve(listening: socket.socket) -> list[str]:
    """Fork for each request; return in the child, with the arguments of its command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, files, _, _ = socket.recv_fds(listening, 1 << 20, 8)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            request = json.loads(data)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child = os.fork()
            if child == 0:
                return _become(request, files)
            _tell_end(child, files)
        for one in files:
            os.close(one)


def _tell_end(child: int, files: list[int]) -> None:
    """Tell the number of a process, and its status once it has ended."""
    reply, *others = files
    os.closerange(0, reply)
    for one in others:
        os.close(one)
    with socket.socket(fileno=reply) as told:
        with contextlib.suppress(OSError):
            told.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(OSError):
            told.send(str(status).encode())
    os._exit(0)


def _become(request: dict[str, Any], files: list[int]) -> list[str]:
    """Make this process the one that was asked for; the arguments of its command."""
    for number, one in enumerate(files[1:]):
        os.dup2(one, number)
    os.closerange(3, 1 << 16)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    sys.path[0] = request["cwd"]
    sys.argv = [str(PACKAGE / "__main__.py"), *request["argv"]]
    sys.orig_argv[1:] = ["-m", "compatgate", *request["argv"]]
    return request["argv"]  # type: ignore[no-any-return]


def _prepare() -> None:
    """Import what commands import."""
    import compatgate.service

    sys.modules[ENVIRONMENTAL] = None  # type: ignore[assignment]
    for name in LOADED:
        import_module(name)
    for found in walk_packages(compatgate.service.__path__, "compatgate.service."):
        with contextlib.suppress(ModuleNotFoundError):
            import_module(found.name)
    del sys.modules[ENVIRONMENTAL]
    import_module("sqlalchemy.orm").configure_mappers()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _prepare()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(import_module("compatgate.cli.main").main())
