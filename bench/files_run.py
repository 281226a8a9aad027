"""Size of the package, and how many of its files an operation runs.

A file counts as run when one of its functions is called for the operation. What an import runs
(bodies of classes, decorators) does not count, nor do the gate's own threads, which work from time
to time whatever is asked. Loaded files are those that the process has imported by the end.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compatgate.service.app import open_rooms

PACKAGE = Path(__file__).parents[1] / "compatgate"
OWN_THREADS = (
    "notices",
    "anchor",
    "checkpoint",
    "database-watch",
    "outages",
    "refusals",
    "figures",
)
"""Names of threads that a gate begins for its own work."""
HEAD = "| operation | files run | files loaded |\n|---|---|---|"
POOL = "driver=535.104.05,gpu=A100-SXM4-80GB"
STACK = "torch=2.4.1+cu121,cudnn=9.1.0"
EARLIER = "torch=2.3.1+cu121,cudnn=8.9.2"
"""Asked before: tables of facts are built when a question first needs them."""
TARGET = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod}
spec: {pools: [{name: main, gpu: A100-SXM4-80GB, driver: 535.104.05, count: 1}]}
"""


def main() -> list[str]:
    """Markdown: the size of the package, and a row for each operation."""
    lines = [len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")]
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    rows = [
        f"Files {len(lines)}, lines {sum(lines):,}, median {statistics.median(lines):.0f}, "
        f"folders {len(folders)}.",
        "",
        HEAD,
    ]
    for title, name in (
        ("`check --pool`", "check"),
        ("`POST /gate`, a new question", "gate"),
        ("a canary run (`worker --once`)", "canary"),
    ):
        _measure(name)  # facts that have changed are compiled once
        run, loaded = _measure(name)
        rows.append(f"| {title} | {len(run)} | {loaded} |")
    return rows


def _measure(name: str) -> tuple[list[str], int]:
    """Return the files that an operation runs in a process of its own, and how many it loads."""
    command = [sys.executable, __file__, name]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    run, loaded = json.loads(printed.splitlines()[-1])
    return run, loaded


@contextmanager
def recording() -> Iterator[set[str]]:
    """Collect the files whose functions run, in this thread and in those that begin."""
    found: set[str] = set()
    thread = threading.local()

    def note(frame: Any, event: str, _: object) -> None:
        imports = frame.f_code.co_name == "<module>"
        if event == "call":
            thread.imports = getattr(thread, "imports", 0) + imports
            if not thread.imports and not threading.current_thread().name.startswith(OWN_THREADS):
                found.add(frame.f_code.co_filename)
        elif event == "return" and imports:
            thread.imports -= 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def run_check() -> set[str]:
    """Ask about a pool on the command line."""
    from compatgate.cli.main import main as compatgate

    with recording() as found:
        compatgate(["check", "--pool", POOL, "--stack", STACK])
    return found


def run_gate() -> set[str]:
    """Ask the application that the server runs; only the second question counts."""
    from compatgate.documents.sources import Source
    from compatgate.kit.principal import Authorship
    from compatgate.web.app import create_front
    from compatgate.web.service import Settings

    with tempfile.TemporaryDirectory() as folder:
        rooms = open_rooms(f"{folder}/gate.db", overlays=[])
        rooms.matrix.import_documents(
            [Source("target.yaml", TARGET)], by=Authorship("bench", "to ask about")
        )
        with recording() as found:
            application = create_front(rooms, Settings(anonymous=frozenset({"gate"})), 1)
            for stack in (EARLIER, STACK):
                rooms.snapshots.refresh()  # a server has a thread that looks at the database
                found.clear()
                asyncio.run(_ask(application, stack))
            files = set(found)
        rooms.close()
    return files


async def _ask(application: Callable[..., Any], stack: str) -> None:
    components = dict(part.split("=") for part in stack.split(","))
    body = json.dumps({"target": "prod", "stack": components}).encode()
    fields = [(b"content-type", b"application/json"), (b"host", b"gate")]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/api/v1/gate",
        "raw_path": b"/api/v1/gate",
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": fields,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    if sent[0]["status"] != 200:
        raise SystemExit(f"the gate answered {sent}")


def run_canary() -> set[str]:
    """Run a workload on a host of local processes, as a worker does."""
    from compatgate.cli.main import main as compatgate

    with tempfile.TemporaryDirectory() as folder:
        hosts, database = Path(folder, "hosts.toml"), f"{folder}/gate.db"
        hosts.write_text('[[host]]\nname = "here"\nexecutor = "process"\nhealth = "none"\n')
        worker = ["worker", "--once", "--hosts", str(hosts), "--database", database]
        compatgate(worker)  # which makes the host known
        question = ["--suite", "hello", "--host", "here", "--database", database]
        compatgate(["canary", "run", "--detach", *question])
        with recording() as found:
            compatgate(worker)
        compatgate(["canary", "list", "--database", database])
    return found


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(*main(), sep="\n")
    else:
        ran = {"check": run_check, "gate": run_gate, "canary": run_canary}[sys.argv[1]]()
        ours = sorted(one for one in ran if one.startswith(str(PACKAGE)))
        loaded = sum(name.split(".")[0] == "compatgate" for name in sys.modules)
        print(json.dumps([ours, loaded]))
