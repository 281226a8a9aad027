"""The page of a large matrix: the server's time, what is transferred, and when it is seen.

``python bench/matrix_page.py``

200 targets x 2,000 entries, of which each target has about 130 and 100 are for every target: the
busiest part of the map has a mark in most of its cells. *Cold* is the first look after a start:
what is not evaluated within 80 ms is fetched by the page afterwards. The baseline is the sign-in
page of the same server, in turn: what any page costs. Chromium opens the page with an empty cache.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import yaml

TARGETS, ENTRIES, REPEATED = 200, 2000, 30
_GPUS = ("A100-SXM4-80GB", "H100-SXM5-80GB", "L4", "L40S", "A10", "T4", "H200-SXM-141GB")
_DRIVERS = ("535.183.01", "550.127.05", "570.124.06", "580.95.05")
_STACKS = (
    {"cuda": "12.1.*", "cudnn": "8.9.*", "torch": "~=2.2.0"},
    {"cuda": "12.4.*", "cudnn": "9.1.*", "torch": "~=2.4.0"},
    {"cuda": "12.8.*", "cudnn": "9.10.*", "torch": "2.8.*"},
    {"cuda": "13.0.*", "cudnn": "9.13.*", "torch": "2.9.*"},
    {"cuda": "12.2.*", "cudnn": "8.9.*", "tensorflow": "2.15.*"},
)
_STATUSES = ("blessed", "blessed", "candidate", "deprecated", "revoked")
HEAD = """\
`bench/matrix_page.py`: 200 targets x 2,000 entries; milliseconds and kilobytes. Goals: server time
under 150 ms, first contentful paint under 1 s, transferred under 300 kB.

| page | server, first | server, median | sign-in page, median | transferred, kB | first paint |
|---|---|---|---|---|---|"""


def documents() -> list[dict[str, Any]]:
    """A large fleet, written down."""
    made: list[dict[str, Any]] = []
    for n in range(TARGETS):
        pools = [
            {
                "name": f"p{i}",
                "gpu": _GPUS[(n + i) % 7],
                "driver": _DRIVERS[(n + i) % 4],
                "count": 64,
            }
            for i in range(1 + n % 2)
        ]
        made.append(_document("Target", f"target-{n:03}", {"pools": pools}))
    for n in range(ENTRIES):
        step = 15 + n % 5
        names = ["*"] if n % 20 == 0 else [f"target-{i:03}" for i in range(n % step, TARGETS, step)]
        spec = {
            "targets": names,
            "components": {**_STACKS[n % 5], "python": f">=3.{n % 9 + 1}"},
            "status": _STATUSES[n % len(_STATUSES)],
            "reason": f"suite dl-core passed, number {n}",
        }
        made.append(_document("Entry", f"entry-{n:04}", spec))
    return made


def _document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "compatgate.dev/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def main() -> str:
    """Measure; the text for the page of results."""
    lines = [HEAD]
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "matrix.yaml"
        matrix.write_text(yaml.safe_dump_all(documents()))
        server, url = _serve(folder, matrix)
        try:
            for name, query in (
                ("entries x targets", ""),
                ("CUDA x GPU", "?rows=cuda&columns=gpu"),
                ("filtered", "?q=torch+2.8&places=H100"),
                ("every cell", "/cells"),
                ("every cell, torch x driver", "/cells?rows=torch&columns=driver"),
            ):
                lines.append(_measured(name, url, f"/ui/matrix{query}"))
        finally:
            server.terminate()
            server.wait(30)
    return "\n".join(lines)


def _serve(folder: str, matrix: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "compatgate", "serve", "--port", "0", "--matrix", str(matrix)]
    command += ["--database", f"sqlite:///{folder}/gate.db"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout
    return server, server.stdout.readline().split()[-1]


def _measured(name: str, url: str, path: str) -> str:
    _fetch(url, "/ui/sign-in")
    first = _fetch(url, path)
    pairs = [(_fetch(url, path), _fetch(url, "/ui/sign-in")) for _ in range(REPEATED)]
    median, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    paint, size = _seen(url + path)
    return (
        f"| {name} | {first:.0f} | {median:.0f} | {plain:.1f} | {size / 1000:.0f} | {paint:.0f} |"
    )


def _fetch(url: str, path: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(url + path, timeout=60) as answer:
        answer.read()
    return (time.perf_counter() - began) * 1000


def _seen(address: str) -> tuple[float, int]:
    """Milliseconds to the first contentful paint, and bytes over the wire, headers included."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("COMPATGATE_TEST_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        page = browser.new_page()
        wire = page.context.new_cdp_session(page)
        wire.send("Network.enable")
        sizes: list[int] = []
        wire.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        page.goto(address, wait_until="load")
        page.wait_for_timeout(500)
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        browser.close()
    return float(paint), sum(sizes)


if __name__ == "__main__":
    print(main())
