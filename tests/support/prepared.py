"""Start ``python -m compatgate`` from a process that has loaded its modules already.

A command that opens a database imports a thousand modules, and tests start a thousand commands,
from a hundred places, most of them by `subprocess.run`. So the one function through which
`subprocess` makes a process, a private one, asks a prepared process to fork instead. It is worth
it: of 3.4 s of CPU time for `check --database`, on two cores that are busy, 0.4 s are left.
What comes of it is a child of this process as any other, with its own number, environment, folder,
files and signals: `subprocess` waits for it as ever. It runs `compatgate.cli.main.main`, or one of
`SCRIPTS`. A shell forks a command by `program`.

A helper that tests call in place of `subprocess` would need no such replacement, but would have to
offer again all that tests use of `subprocess.Popen`, and each test that forgot it would be slow.

A test that is about the start itself is in `FRESH`; what cannot be handed over (another Python,
another package, other encodings) is started as ever. ``COMPATGATE_TEST_FRESH=1`` starts every
process afresh.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NamedTuple

import pytest

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "compatgate"
FRESH = ("e2e/test_contributing.py",)
"""Files below ``tests`` whose commands are started afresh."""

SCRIPTS = (TESTS / "support" / "dying_worker.py",)
"""Programs of tests that run commands: they are forked, too."""
STAND_IN = TESTS / "support" / "prepared_program.py"

LOADED = (
    "alembic.command", "flask", "gunicorn.app.base", "httptools", "psycopg", "sqlalchemy.orm",
    "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite", "uvicorn.protocols.http",
    "uvicorn.protocols.http.httptools_impl", "uvicorn_worker", "yaml", "compatgate.cli.main",
    "compatgate.cli.serve", "compatgate.kit.database.tables",
)  # fmt: skip
PACKAGES = ("compatgate.service", "compatgate.web", "compatgate.cli")
"""The process imports every module of these, and what `LOADED` names."""
ENVIRONMENTAL = "prometheus_client"
"""Reads the environment when it is imported: neither it nor what needs it is imported before."""

_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "PROMETHEUS_")
_OURS = ("", str(PACKAGE.parent))
_HARMLESS = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})
_PR_SET_CHILD_SUBREAPER = 36

_by_exec: Any = subprocess._fork_exec  # type: ignore[attr-defined]
_libc = ctypes.CDLL(None, use_errno=True)
_adopting = threading.Lock()
_state: dict[str, Any] = {"fresh": False, "last": 0}


def pytest_configure() -> None:
    """Let `subprocess` start commands from the prepared process."""
    if not os.environ.get("COMPATGATE_TEST_FRESH") and hasattr(_libc, "prctl"):
        subprocess._fork_exec = _fork_or_exec  # type: ignore[attr-defined]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start afresh what the file of a test asks for."""
    _state["fresh"] = item.path.is_relative_to(TESTS) and (
        item.path.relative_to(TESTS).as_posix() in FRESH
    )


class _Started(NamedTuple):
    """What `subprocess` says of a process that it starts, in its order."""

    args: Any
    executables: Any
    close_fds: Any
    kept: Any
    cwd: Any
    env: Any
    p2cread: int
    p2cwrite: int
    c2pread: int
    c2pwrite: int
    errread: int
    errwrite: int
    errpipe_read: int
    errpipe_write: int
    restore_signals: Any
    session: Any
    group: Any
    gid: Any
    gids: Any
    uid: Any
    umask: Any
    preexec: Any
    vfork: Any


def was_forked(process: subprocess.Popen[Any]) -> bool:
    """Say whether a process, the last one that was started, was forked."""
    return bool(_state["last"] == process.pid)


def _fork_or_exec(*told: Any) -> int:
    """Fork a command from the prepared process, or start it as ever; return its number."""
    asked = _Started(*told)
    usual = (
        asked.preexec is None and asked.close_fds and len(asked.kept) == 1
        and list(asked.executables) == [os.fsencode(asked.args[0])]
        and asked.gid is None and asked.gids is None and asked.uid is None
        and asked.umask < 0 and asked.group == -1
    )  # fmt: skip
    if usual and not _state["fresh"]:
        request = {
            "argv": [os.fsdecode(one) for one in asked.args],
            "cwd": os.fsdecode(asked.cwd or os.getcwd()),
            "env": _environment(asked.env),
            "session": bool(asked.session),
        }
        files = [asked.p2cread, asked.c2pwrite, asked.errwrite]
        forked = can_fork(request) and _fork(
            request, [number if one == -1 else one for number, one in enumerate(files)]
        )
        if forked:
            _state["last"] = forked
            return forked
    return int(_by_exec(*told))


def _environment(listed: list[bytes] | None) -> dict[str, str]:
    if listed is None:
        return dict(os.environ)
    pairs = (os.fsdecode(one).partition("=") for one in listed)
    return {name: value for name, _, value in pairs}


def can_fork(request: dict[str, Any]) -> bool:
    """Say whether a command is one that the prepared process can run as a fresh one would."""
    executable, *words = request["argv"]
    known = words[:2] == ["-m", "compatgate"] or words[:1] in [[str(one)] for one in SCRIPTS]
    other = Path(request["cwd"], "compatgate")
    return (
        executable == sys.executable
        and known
        and os.path.isdir(request["cwd"])
        and (not other.is_dir() or other.samefile(PACKAGE))
        and _of_interpreter(request["env"]) == _of_interpreter(dict(os.environ))
    )


def _of_interpreter(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that a Python reads when it starts; this package is on its path."""
    found = {
        name: value
        for name, value in environment.items()
        if name.startswith(_INTERPRETER) and name not in _HARMLESS
    }
    others = [one for one in found.pop("PYTHONPATH", "").split(os.pathsep) if one not in _OURS]
    return {**found, "PYTHONPATH": os.pathsep.join(others)} if others else found


def of_interpreter() -> dict[str, str]:
    """Return the variables that a shell has to keep for its commands to be forked."""
    return _of_interpreter(dict(os.environ))


class _Prepared(NamedTuple):
    """The two ways to the prepared process: from here, and for programs."""

    asking: socket.socket
    program: Path


def program() -> Path:
    """Return a program that is ``compatgate`` for shells: it has the prepared process fork."""
    return _prepared(tuple(sorted(of_interpreter().items()))).program


@cache
def _prepared(_variables: tuple[tuple[str, str], ...]) -> _Prepared:
    """Start the prepared process. It ends when the end at which it is asked is closed."""
    folder = tempfile.TemporaryDirectory(prefix="prepared-")
    atexit.register(folder.cleanup)
    name, made = Path(folder.name, "socket"), Path(folder.name, "compatgate")
    afresh = f"exec {shlex.quote(sys.executable)} -m compatgate"
    if os.environ.get("COMPATGATE_TEST_FRESH"):
        made.write_text(f'#!/bin/sh\n{afresh} "$@"\n')
    else:
        words = shlex.join([sys.executable, "-IS", str(STAND_IN), str(name), sys.executable])
        made.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    made.chmod(0o755)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    programs = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    programs.bind(str(name))
    programs.listen(64)
    with there, programs:
        subprocess.Popen(
            [sys.executable, __file__, str(there.fileno()), str(programs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[there.fileno(), programs.fileno()],
            cwd="/",
            env={name: value for name, value in os.environ.items() if name not in _HARMLESS},
        )
    return _Prepared(here, made)


def _fork(request: dict[str, Any], files: list[int]) -> int | None:
    """Have a child of this process forked; its number.

    The prepared process forks one that forks it and ends: meanwhile this process adopts orphans.
    """
    asking = _prepared(tuple(sorted(of_interpreter().items()))).asking
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with mine, its, _adopting:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(asking, [json.dumps(request).encode()], [its.fileno(), *files])
            its.close()
            return int(mine.recv(64))
        except (OSError, ValueError):  # too much to say, a closed file, or it is gone
            return None
        finally:
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _serve(asked: socket.socket, programs: socket.socket) -> dict[str, Any]:
    """Fork for each request; return in the child, with what it has to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([asked, programs], [], [])
        for one in ready:
            if one is asked:
                data, files, _, _ = socket.recv_fds(asked, 1 << 20, 8)
                if not data:
                    os._exit(0)
                request = json.loads(data)
            else:
                connection, _ = programs.accept()
                data, files, _, _ = socket.recv_fds(connection, 1 << 20, 8)
                files.insert(0, connection.detach())
                request = json.loads(data) if data else None
            if request and os.fork() == 0:
                return _divide(request, files, told=one is programs)
            for number in files:
                os.close(number)


def _divide(request: dict[str, Any], files: list[int], *, told: bool) -> dict[str, Any]:
    """Fork again; return in the child, and tell its number, and to programs also its end."""
    reply = socket.socket(fileno=files[0])
    if told and not can_fork(request):
        reply.send(b"no")
        os._exit(0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    between = os.getpid()
    child = os.fork()
    if child == 0:
        while not told and os.getppid() == between:
            time.sleep(0.0002)  # its parent is about to end
        with contextlib.suppress(OSError):
            reply.send(str(os.getpid()).encode())
        reply.detach()
        return _become(request, files)
    if told:
        for one in files[1:]:
            os.close(one)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(OSError):
            reply.send(str(status).encode())
    os._exit(0)


def _become(request: dict[str, Any], files: list[int]) -> dict[str, Any]:
    """Make this process the one that was asked for."""
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
    words = request["argv"][1:]
    if words[0] == "-m":
        sys.path[0] = request["cwd"]
        sys.argv = [str(PACKAGE / "__main__.py"), *words[2:]]
    else:
        sys.path[0] = str(Path(words[0]).parent)
        sys.argv = words
    sys.orig_argv[1:] = words
    return request


def _prepare() -> None:
    """Import what commands import, and read the shipped facts."""
    sys.modules[ENVIRONMENTAL] = None  # type: ignore[assignment]
    for name in LOADED:
        import_module(name)
    for package in map(import_module, PACKAGES):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ModuleNotFoundError):
                import_module(found.name)
    del sys.modules[ENVIRONMENTAL]
    import_module("sqlalchemy.orm").configure_mappers()
    _compile_rules()
    import_module("compatgate.web.computing").preload(
        import_module("compatgate.catalog").load_facts(())
    )
    gc.collect()
    gc.freeze()


def _compile_rules() -> None:
    """Compile the addresses of the service, as a child knows them: it may import all there is."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        routes = import_module("compatgate.web.routes")
        links = import_module("compatgate.kit.http.links")
        rules = [links.API_PREFIX + route.flask_rule for route in routes.ROUTES]
        rules += [hook.prefix + hook.flask_rule for hook in routes.HOOKS]
        rules += [links.UI_PREFIX + page.path for page in routes.PAGES]
        with open(writing, "w", encoding="utf-8") as told:
            json.dump(rules, told)
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        rules = json.load(told)
    import_module("url_rules").pytest_configure()
    routing = import_module("werkzeug.routing")
    routing.Map([routing.Rule(rule) for rule in rules])


def _run(request: dict[str, Any]) -> int:
    """Run what was asked for; return the exit status, as the interpreter finds it."""
    try:
        if request["argv"][1] == "-m":
            return int(import_module("compatgate.cli.main").main() or 0)
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, int | None):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _leave(status: int) -> None:
    """End as the interpreter does, but for freeing what it shares with all that was forked."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)  # the interpreter has its own words for it
    os._exit(status)


if __name__ == "__main__":
    _prepare()
    _asked, _programs = (socket.socket(fileno=int(one)) for one in sys.argv[1:])
    _leave(_run(_serve(_asked, _programs)))
