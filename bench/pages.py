"""Every page of a large gate: the server's time, what is transferred, and when it is seen.

``python bench/pages.py [--only matrix] [--keep FOLDER]``

The fleet of ``large_site.py``, served from SQLite by one process. Every GET page of the table of
routes is asked by an administrator; a page that is new there stops the bench until `EXAMPLES` says
what to show on it. *First* is the first look after a start. Sizes are those of compressed answers,
headers included; Chromium opens the main pages with an empty cache, scripts and styles included.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from large_site import DECISIONS, ENTRIES, NODES, TARGETS, fill
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from ui_runs import PASSED, QUEUED, SLOWER

from compatgate.kit.database.database import Database
from compatgate.service.routes import PAGES

REPEATED = 11
GOALS = "server median under 150 ms, first paint under 1 s, interaction under 200 ms, 150 kB"
_STACK = "cuda%3D12.4,cudnn%3D9.1.0,torch%3D2.4.1%2Bcu124"
EXAMPLES: dict[str, tuple[str, ...]] = {
    "/ask": ("ask", f"ask?target=target-001&stack={_STACK}"),
    "/solve": ("solve?target=target-001&want=torch",),
    "/what-if": ("what-if?target=target-001&driver=580.95.05",),
    "/find": ("find?q=torch+2.7+cu128+%40+target-001", "find?q=entry-01"),
    "/search": ("search?q=torch",),
    "/matrix": (
        "matrix",
        "matrix?rows=cuda&columns=gpu",
        "matrix?q=torch+2.8&places=H100",
        "matrix?row=entry-0001&column=target-001",
    ),
    "/matrix/cells": (
        "matrix/cells",
        "matrix/cells?columns=pool",
        "matrix/cells?columns=gpu",
        "matrix/cells?columns=driver",
        "matrix/cells?rows=torch&columns=driver",
        "matrix/cells?q=torch+2.8.1",
        "matrix/cells?columns=gpu&format=csv",
    ),
    "/facts/<table>": ("facts/gpus",),
    "/facts/<table>/<path:name>": ("facts/gpus/A100-SXM4-80GB",),
    "/rules/<id>": ("rules/CG202",),
    "/targets/<name>": ("targets/target-001",),
    "/targets/<name>/packages": ("targets/target-001/packages",),
    "/targets/<name>/plan": ("targets/target-001/plan?driver=580",),
    "/targets/<name>/report": ("targets/target-001/report",),
    "/targets/<name>/edit": ("targets/target-001/edit",),
    "/entries": ("entries", "entries?name=entry-01&sort=-status", "entries?format=csv"),
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
_OTHER_SITES = {"/sign-in/issuer", "/sign-in/done", "/signed-out"}
"""Pages of a gate whose people sign in at an issuer."""
_CLOCKS = """() => { window.answered = new Promise(done => {
  addEventListener("htmx:beforeRequest", () => { window.asked = performance.now(); });
  addEventListener("htmx:afterSettle", () => requestAnimationFrame(() =>
    done(performance.now() - window.asked)));
}); }"""
MAIN = (
    "", "ask", f"ask?target=target-001&stack={_STACK}", "matrix", "matrix/cells", "targets",
    "targets/target-001", "entries", "entries/entry-0002/edit?status=blessed", "decisions",
    "verdicts/{verdict}", "runs", "proposals", "nodes", "drift", "incidents",
)  # fmt: skip
CLICKS: tuple[tuple[str, str, str, str], ...] = (
    ("entries", "Name", "entry-012", "#filters"),
    ("nodes", "Name", "0123", "#filters"),
    ("decisions", "Target begins with", "target-00", "#filters"),
)
"""Page, field, what is typed, and where: the list must answer it."""


class Timing(NamedTuple):
    """What one address took, in milliseconds and bytes."""

    path: str
    first: float
    median: float
    size: int
    status: int


class Sight(NamedTuple):
    """What Chromium saw of an address: milliseconds to the first paint, bytes transferred."""

    paint: float
    size: int


def main(only: str = "", keep: str | None = None) -> str:
    """Measure; return the text for the page of results."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(keep or made)
        folder.mkdir(parents=True, exist_ok=True)
        database = f"sqlite:///{folder}/gate.db"
        if not (folder / "gate.db").exists():
            fill(database, folder / "workloads")
        names = _examples_in(database)
        paths = [path.format(**names) for path in addresses() if only in path]
        with _served(folder, database) as (url, secret), sync_playwright() as playwright:
            program = os.environ.get("COMPATGATE_TEST_CHROMIUM") or _chromium()
            arguments = ["--no-sandbox"] if os.getuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=program, args=arguments)
            cookies = _sign_in(browser, url, secret)
            header = "; ".join(f"{one['name']}={one['value']}" for one in cookies)
            timings = [_time(url, path, header) for path in paths]
            sights = {}
            for path in (path.format(**names) for path in MAIN):
                if path in paths:
                    sights[path] = _see(browser, f"{url}/ui/{path}", cookies)
            clicks = [] if only else [_click(browser, url, cookies, *one) for one in CLICKS]
            browser.close()
    return "\n".join(_format(timings, sights, clicks))


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
def _served(folder: Path, database: str) -> Iterator[tuple[str, str]]:
    """Serve; the address, and an administrator's token."""
    from compatgate.service.gate.service import Gate

    gate = Gate.open(database, overlays=[])
    secret = gate.tokens.create(f"bench-{time.time_ns()}", ["admin"], by="bench").secret
    gate.close()
    command = [sys.executable, "-m", "compatgate", "serve", "--port", "0", "--database", database]
    environment = os.environ | {"COMPATGATE_WORKLOADS": str(folder / "workloads")}
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        assert server.stdout
        yield server.stdout.readline().split()[-1], secret
    finally:
        server.terminate()
        server.wait(30)


def _chromium() -> str | None:
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


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


def _time(url: str, path: str, cookie: str) -> Timing:
    """Ask for an address several times."""
    first, size, status = _fetch(url, path, cookie)
    took = [_fetch(url, path, cookie)[0] for _ in range(REPEATED if first < 2000 else 2)]
    return Timing(path, first, statistics.median(took), size, status)


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


def _click(
    browser: Browser, url: str, cookies: Sequence[dict[str, object]],
    path: str, field: str, typed: str, form: str,
) -> tuple[str, float]:  # fmt: skip
    """Narrow a list in the browser; return what was done, and milliseconds until it is shown."""
    context = _context(browser, cookies)
    page = context.new_page()
    page.goto(f"{url}/ui/{path}")
    page.evaluate(_CLOCKS)
    page.locator(form).get_by_label(field).fill(typed)
    took = page.evaluate("window.answered")
    context.close()
    return f"{path}: {field} {typed}", float(took)


def _format(
    timings: Sequence[Timing], sights: dict[str, Sight], clicks: Sequence[tuple[str, float]]
) -> Iterator[str]:
    yield (
        f"`bench/pages.py`: every page with {TARGETS} targets x {ENTRIES:,} entries,"
        f" {NODES:,} nodes and {DECISIONS:,} decisions, SQLite; milliseconds and kilobytes."
    )
    yield f"Goals: {GOALS}."
    yield ""
    yield "| page | server, first | server, median | kB | first paint | kB with scripts, styles |"
    yield "|---|---|---|---|---|---|"
    for one in sorted(timings, key=lambda timing: -timing.median):
        sight = sights.get(one.path)
        seen = f"{sight.paint:.0f} | {sight.size / 1000:.0f}" if sight else "|"
        mark = "" if one.status in (200, 404) else f" ({one.status})"
        yield (
            f"| /{one.path}{mark} | {one.first:.0f} | {one.median:.0f} | {one.size / 1000:.0f} |"
            f" {seen} |"
        )
    yield ""
    yield "| interaction | ms |"
    yield "|---|---|"
    for what, took in clicks:
        yield f"| {what} | {took:.0f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="addresses with this part")
    parser.add_argument("--keep", help="folder of a filled database, filled if it is empty")
    chosen = parser.parse_args()
    print(main(chosen.only, chosen.keep))
