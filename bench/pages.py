"""Every page of a large gate: the server's time, what is transferred, and when it is seen.

``python bench/pages.py [--only matrix] [--keep FOLDER] [--measure server,paint,clicks]``
``python bench/pages.py --against TREE [--keep FOLDER]``

The fleet of ``large_site.py``, served from SQLite by one process. Every GET page of the table of
routes is asked by an administrator; a page that is new there stops the bench until `EXAMPLES` says
what to show on it. *First* is the first look after a start. Sizes are those of compressed answers;
Chromium opens each page with an empty cache, and its sizes are with headers, scripts and styles. An
interaction is what htmx asks for and shows, from the request to the frame after the one that it is
first seen in. *Processor* is the time of the server, with the processes that compute for it, from
the request to its answer.

With ``--against``, the gate of another checkout is filled and served beside this one, with its own
``.venv`` if it has one, and Chromium opens Home and Drift of both in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from large_site import DECISIONS, ENTRIES, NODES, TARGETS, fill
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from ui_browser import find_chromium
from ui_runs import PASSED, QUEUED, SLOWER

from compatgate.catalog import open_library
from compatgate.kit.database.database import Database
from compatgate.service.app import open_rooms
from compatgate.web.routes import PAGES

REPEATED, CLICKED = 20, 5
IN_TURNS = ("", "drift")
"""Addresses whose first paint is compared with that of another checkout."""
MEASURES = ("server", "paint", "clicks")
GOALS = "processor median under 150 ms, first paint under 1 s, interaction under 200 ms, 70 kB"
_STACK = "cuda%3D12.4,cudnn%3D9.1.0,torch%3D2.4.1%2Bcu124"
EXAMPLES: dict[str, tuple[str, ...]] = {
    "/ask": ("ask", f"ask?target=target-001&stack={_STACK}"),
    "/solve": ("solve?target=target-001&want=torch",),
    "/what-if": ("what-if?target=target-001&driver=580.95.05",),
    "/find": ("find?q=torch+2.7+cu128+%40+target-001", "find?q=entry-01"),
    "/search": ("search?q=torch",),
    "/matrix": (
        "matrix",
        "matrix?row=entry-0001&column=target-001",
        "matrix?columns=pool",
        "matrix?columns=gpu",
        "matrix?columns=driver",
        "matrix?rows=torch&columns=driver",
        "matrix?q=torch+2.8.1",
        "matrix?columns=gpu&format=csv",
    ),
    "/facts/<table>": ("facts/gpus",),
    "/facts/<table>/<path:name>": ("facts/gpus/A100-SXM4-80GB",),
    "/rules/<id>": ("rules/CG202",),
    "/targets/<name>": ("targets/target-001",),
    "/targets/<name>/packages": ("targets/target-001/packages",),
    "/targets/<name>/plan": ("targets/target-001/plan?driver=580",),
    "/targets/<name>/report": ("targets/target-001/report",),
    "/targets/<name>/edit": ("targets/target-001/edit",),
    "/entries": ("entries", "entries?search=entry-01&status=blessed", "entries?format=csv"),
    "/entries/<name>": ("entries/entry-0020",),
    "/entries/<name>/edit": ("entries/entry-0002/edit?status=blessed",),
    "/waivers/<name>": ("waivers/waiver-20",),
    "/waivers/<name>/edit": ("waivers/waiver-20/edit",),
    "/new-waiver": ("new-waiver?rules=CG802&targets=target-001&components=torch+~%3D2.2.0",),
    "/revisions/<int:number>": ("revisions/2",),
    "/revisions/diff": ("revisions/diff?older=1&newer=2",),
    "/proposals/<id>": ("proposals/{proposal}",),
    "/decisions": (
        "decisions",
        "decisions?target=target-001&allowed=no",
        "decisions?image=registry.example/vision",
    ),
    "/verdicts/<verdict_id>": ("verdicts/{verdict}",),
    "/runs/<id>": (f"runs/{SLOWER}",),
    "/runs/<id>/state": (f"runs/{QUEUED}/state",),
    "/runs/<id>/steps/<name>": (f"runs/{SLOWER}/steps/conv-forward-0",),
    "/runs/<id>/log": (f"runs/{SLOWER}/log",),
    "/runs/compare": (f"runs/compare?a={PASSED}&b={SLOWER}",),
    "/baselines/<int(max=9223372036854775807):id>": ("baselines/1",),
    "/workloads/<name>": ("workloads/conv-forward",),
    "/workloads/<name>/history": ("workloads/conv-forward/history",),
    "/nodes": ("nodes", "nodes?search=0123", "nodes?gpu=L4", "nodes?target=target-123"),
    "/nodes/<name>": ("nodes/gpu-00057",),
    "/drift": ("drift", "drift?target=target-007"),
    "/new-upgrade": ("new-upgrade?target=target-001&driver=580.95.05",),
    "/upgrades/<name>": ("upgrades/fleet-580",),
    "/upgrades/<name>/state": ("upgrades/fleet-580/state",),
    "/incidents/<int(max=9223372036854775807):id>": ("incidents/1",),
    "/<path:rest>": ("no-such-page",),
}
"""Addresses below ``/ui/`` by path of the table; a path without parameters needs none."""
_FILL = """import pathlib, sys; from large_site import fill
fill(sys.argv[1], pathlib.Path(sys.argv[2]))"""
_OTHER_SITES = {"/sign-in/issuer", "/sign-in/done", "/signed-out"}
"""Pages of a gate whose people sign in at an issuer."""
_CLOCKS = """() => { window.answered = new Promise(done => {
  addEventListener("htmx:beforeRequest", () => { window.asked = performance.now(); });
  addEventListener("htmx:afterSwap", () => requestAnimationFrame(() => requestAnimationFrame(() =>
    done(performance.now() - window.asked))));
}); }"""


class Act(NamedTuple):
    """Something that a person does on a page: type, choose (``=VALUE``), or click (no text)."""

    path: str
    selector: str
    text: str = ""


_SORT, _CELL = "table.list thead th:nth-child({}) a", "#map tbody tr:nth-child({}) td a"
ACTS = (
    Act("", "#find", "torch 2.8 cu128 @ target-001"),
    Act("", "#find", "entry-012"),
    Act("ask", "#q-target", "=target-001"),
    Act(f"ask?target=target-001&stack={_STACK}", "#q-target", "=target-002"),
    Act("what-if?target=target-001", "#w-driver", "580.95.05"),
    Act("matrix", "#view [name=q]", "torch 2.8.1"),
    Act("matrix", "#view [name=columns]", "=driver"),
    Act("matrix", _CELL.format(3)),
    Act("targets", "#filters [name=search]", "target-01"),
    Act("targets", _SORT.format(3)),
    Act("targets/target-001", _SORT.format(2)),
    Act("entries", "#filters [name=search]", "entry-012"),
    Act("entries", _SORT.format(2)),
    Act("entries/entry-0002/edit", "#fields [name=owner]", "team-vision"),
    Act("decisions", "#filters [name=target]", "target-00"),
    Act("decisions", "#filters [name=rule]", "CG2"),
    Act("runs", "#filters [name=state]", "=ended"),
    Act("nodes", "#filters [name=search]", "0123"),
    Act("nodes", "#filters [name=target]", "target-007"),
    Act("nodes", _SORT.format(2)),
    Act("drift", "#filters [name=target]", "target-007"),
    Act("incidents", "#filters [name=owner]", "team"),
    Act("audit", "#filters [name=action]", "nodes.report"),
    Act("facts/gpus", "#filters [name=q]", "H100"),
)


class Timing(NamedTuple):
    """What one address took, in milliseconds and bytes."""

    path: str
    first: float
    median: float
    p95: float
    processor: float
    size: int
    status: int


class Sight(NamedTuple):
    """What Chromium saw of an address: milliseconds to the first paint, bytes transferred."""

    paint: float
    size: int


def main(only: str = "", keep: str | None = None, measures: Sequence[str] = MEASURES) -> str:
    """Measure; return the text for the page of results."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(keep or made)
        folder.mkdir(parents=True, exist_ok=True)
        database = f"sqlite:///{folder}/gate.db"
        if not (folder / "gate.db").exists():
            fill(database, folder / "workloads")
        names = _examples_in(database)
        paths = [path.format(**names) for path in addresses() if only in path]
        pages = [path for path in paths if "format=csv" not in path]
        with _served(folder, database) as (url, secret, server), _chromium() as browser:
            cookies = _sign_in(browser, url, secret)
            header = "; ".join(f"{one['name']}={one['value']}" for one in cookies)
            timings = [_time(url, path, header, server) for path in paths if "server" in measures]
            sights = {}
            if "paint" in measures:
                sights = {path: _see(browser, f"{url}/ui/{path}", cookies) for path in pages}
            acts = [act for act in ACTS if only in act.path and "clicks" in measures]
            clicks = [_act(browser, url, cookies, act) for act in acts]
    return "\n".join(_format(timings, sights, clicks))


def compare(other: Path, keep: str | None = None) -> str:
    """Open pages of this tree and of another one in turns; return the medians of first paint."""
    with tempfile.TemporaryDirectory() as made, _chromium() as browser, ExitStack() as servers:
        sites = []
        for name, tree in (("here", Path(__file__).parents[1]), ("there", other.resolve())):
            folder = Path(keep or made) / name
            folder.mkdir(parents=True, exist_ok=True)
            url, secret = servers.enter_context(_served_tree(tree, folder))
            sites.append((url, _sign_in(browser, url, secret)))
        lines = ["| page | first paint here | there | ratio |", "|---|---|---|---|"]
        for path in IN_TURNS:
            paints: tuple[list[float], ...] = ([], [])
            for _ in range(REPEATED + 1):
                for taken, (url, cookies) in zip(paints, sites, strict=True):
                    taken.append(_see(browser, f"{url}/ui/{path}", cookies).paint)
            here, there = (statistics.median(taken[1:]) for taken in paints)  # the first warms up
            lines.append(f"| /{path} | {here:.0f} | {there:.0f} | {here / there:.2f} |")
    return "\n".join(lines)


@contextmanager
def _served_tree(tree: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Fill and serve the gate of a checkout; its address and an administrator's token."""
    own = tree / ".venv/bin/python"
    python = str(own) if own.exists() else sys.executable
    database = f"sqlite:///{folder}/gate.db"
    places = (tree, tree / "bench", tree / "tests/support")
    environment = os.environ | {"PYTHONPATH": ":".join(map(str, places))}

    def run(*words: str) -> str:
        command = [python, *words]
        return subprocess.run(
            command, cwd=tree, env=environment, check=True, capture_output=True, text=True
        ).stdout

    if not (folder / "gate.db").exists():
        run("-c", _FILL, database, str(folder / "workloads"))
    environment["COMPATGATE_WORKLOADS"] = str(folder / "workloads")
    name, scopes = f"bench-{time.time_ns()}", ("--scope", "admin")
    made = run(
        "-m", "compatgate", "token", "create", "--name", name, *scopes, "--database", database
    )
    secret = next(word for word in made.split() if word.startswith("cg_"))
    with _server(python, database, environment, tree) as server:
        assert server.stdout
        yield server.stdout.readline().split()[-1], secret


def addresses() -> Iterator[str]:
    """Yield an address for each GET page of the table of routes.

    Raises:
        SystemExit: a page with parameters has no example.
    """
    for page in PAGES:
        if page.method != "GET" or page.path in _OTHER_SITES:
            continue
        if "<" in page.path and page.path not in EXAMPLES:
            raise SystemExit(f"bench/pages.py: say in EXAMPLES what to show on {page.path}")
        yield from EXAMPLES.get(page.path, (page.path.removeprefix("/"),))


def _examples_in(database: str) -> dict[str, str]:
    """Return ids that the database gave."""
    from sqlalchemy import text

    found = Database.open(database)
    with found.reading() as session:
        proposal = session.execute(text("SELECT max(id) FROM proposals")).scalar_one()
        verdict = session.execute(
            text("SELECT verdict_id FROM decisions WHERE NOT allowed ORDER BY id DESC LIMIT 1")
        ).scalar_one()
    found.close()
    return {"proposal": str(proposal), "verdict": verdict}


@contextmanager
def _served(folder: Path, database: str) -> Iterator[tuple[str, str, int]]:
    """Serve; the address, an administrator's token, and the id of the process."""
    library = open_library(())
    for name in library.names:  # a wheel carries the tables compiled; a checkout compiles them once
        library.document(name)
    rooms = open_rooms(database, overlays=[])
    secret = rooms.tokens.create(f"bench-{time.time_ns()}", ["admin"], by="bench").secret
    rooms.close()
    environment = os.environ | {"COMPATGATE_WORKLOADS": str(folder / "workloads")}
    with _server(sys.executable, database, environment) as server:
        assert server.stdout
        yield server.stdout.readline().split()[-1], secret, server.pid


@contextmanager
def _server(
    python: str, database: str, environment: dict[str, str], tree: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    command = [python, "-m", "compatgate", "serve", "--port", "0", "--database", database]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=tree,
    )
    try:
        yield server
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def _chromium() -> Iterator[Browser]:
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        program = find_chromium()
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


def _sign_in(browser: Browser, url: str, secret: str) -> list[dict[str, object]]:
    """Sign in; return the session's cookies."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/ui/sign-in?next=/ui/keys")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/ui/keys")
    cookies = [dict(cookie) for cookie in context.cookies()]
    context.close()
    return cookies


def _time(url: str, path: str, cookie: str, server: int) -> Timing:
    """Ask for an address several times."""
    first, size, status = _fetch(url, path, cookie)
    took, used = [], []
    for _ in range(REPEATED):
        before = _processor_ms(server)
        took.append(_fetch(url, path, cookie)[0])
        used.append(_processor_ms(server) - before)
    p95 = sorted(took)[round(0.95 * REPEATED) - 1]
    middle, processor = statistics.median(took), statistics.median(used)
    return Timing(path, first, middle, p95, processor, size, status)


def _processor_ms(server: int) -> float:
    """Return the milliseconds that a process and its workers have run, ended ones included."""
    stat = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    spent = sum(map(int, stat[13:15])) * 1000 / os.sysconf("SC_CLK_TCK")  # of ended children
    for thread in Path(f"/proc/{server}/task").iterdir():
        with suppress(OSError):  # a thread or a process that has just ended
            spent += int((thread / "schedstat").read_text().split()[0]) / 1e6
            children = (thread / "children").read_text().split()
            spent += sum(_processor_ms(int(child)) for child in children)
    return spent


def _fetch(url: str, path: str, cookie: str) -> tuple[float, int, int]:
    headers = {"Cookie": cookie, "Accept": "text/html", "Accept-Encoding": "zstd, gzip"}
    request = urllib.request.Request(f"{url}/ui/{path}", headers=headers)
    began = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            body, status = answer.read(), answer.status
    except urllib.error.HTTPError as error:
        body, status = error.read(), error.code
    return (time.perf_counter() - began) * 1000, len(body), status


def _context(browser: Browser, cookies: Sequence[dict[str, object]]) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_cookies(list(cookies))  # type: ignore[arg-type]
    return context


def _see(browser: Browser, address: str, cookies: Sequence[dict[str, object]]) -> Sight:
    """Open an address with an empty cache."""
    context = _context(browser, cookies)
    page = context.new_page()
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    sizes: list[int] = []
    wire.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(address, wait_until="load")
    page.wait_for_timeout(300)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    context.close()
    return Sight(float(paint), int(sum(sizes)))


def _act(
    browser: Browser, url: str, cookies: Sequence[dict[str, object]], act: Act
) -> tuple[Act, float]:
    """Do something in the browser; return the median of milliseconds until it is shown."""
    took = []
    for _ in range(CLICKED):
        context = _context(browser, cookies)
        page = context.new_page()
        page.goto(f"{url}/ui/{act.path}")
        page.wait_for_timeout(300)  # what the page asks for by itself
        page.evaluate(_CLOCKS)
        there = page.locator(act.selector).first
        if act.text.startswith("="):
            there.select_option(act.text[1:])
        elif act.text:
            there.fill(act.text)
            there.dispatch_event("change")
        else:
            there.click()
        took.append(float(page.evaluate("window.answered")))
        context.close()
    return act, statistics.median(took)


def _format(
    timings: Sequence[Timing], sights: dict[str, Sight], clicks: Sequence[tuple[Act, float]]
) -> Iterator[str]:
    yield (
        f"`bench/pages.py`: every page with {TARGETS} targets x {ENTRIES:,} entries,"
        f" {NODES:,} nodes and {DECISIONS:,} decisions, SQLite; milliseconds and kilobytes."
    )
    yield f"Goals: {GOALS}."
    if timings:
        yield ""
        heads = "first | median | p95 | processor | kB | first paint | kB with scripts, styles"
        yield f"| page | {heads} |"
        yield "|---|---|---|---|---|---|---|---|"
    for one in sorted(timings, key=lambda timing: -timing.processor):
        sight = sights.get(one.path)
        mark = "" if one.status in (200, 404) else f" ({one.status})"
        yield (
            f"| /{one.path}{mark} | {one.first:.0f} | {one.median:.0f} | {one.p95:.0f} |"
            f" {one.processor:.0f} | {one.size / 1000:.0f} | {_format_sight(sight)} |"
        )
    if sights and not timings:
        yield ""
        yield "| page | first paint | kB with scripts, styles |"
        yield "|---|---|---|"
        for path, sight in sorted(sights.items(), key=lambda pair: -pair[1].paint):
            yield f"| /{path} | {_format_sight(sight)} |"
    if clicks:
        yield ""
        yield "| page | interaction | ms |"
        yield "|---|---|---|"
    for act, took in sorted(clicks, key=lambda pair: -pair[1]):
        yield f"| /{act.path} | `{act.selector}` {act.text} | {took:.0f} |"


def _format_sight(sight: Sight | None) -> str:
    return f"{sight.paint:.0f} | {sight.size / 1000:.0f}" if sight else "|"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="addresses with this part")
    parser.add_argument("--keep", help="folder of a filled database, filled if it is empty")
    parser.add_argument("--measure", default=",".join(MEASURES), help="some of these")
    parser.add_argument("--against", type=Path, help="checkout to compare the first paint with")
    chosen = parser.parse_args()
    if chosen.against:
        print(compare(chosen.against, chosen.keep))
    else:
        print(main(chosen.only, chosen.keep, chosen.measure.split(",")))
