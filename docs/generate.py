"""Write the generated reference pages, and the answers to the commands of pages for newcomers.

``--check`` only says whether the reference pages are current.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from reference_pages import cli, files, metrics, removed, rest, rooms, rules  # noqa: E402 - from scripts/

REFERENCE = {
    "rules": rules,
    "cli": cli,
    "rest-operations": rest,
    "files": files,
    "metrics": metrics,
    "removed": removed,
    "rooms": rooms,
}
"""Name of a page, and the module that writes it."""
ANSWERED_PAGES = (ROOT / "README.md", ROOT / "docs" / "tutorial" / "first-verdict.md")
SERVED = "--server http://127.0.0.1:8080"
ANSWERED = re.compile(r"^\$ compatgate (check .*)\n((?:(?!\$ |```).*\n)+)", re.MULTILINE)
"""A command that asks the gate, and its answer."""


def stale() -> list[str]:
    """Return the names of reference pages that differ from what the program says now."""
    return [name for name, module in REFERENCE.items() if _path(name).read_text() != module.page()]


def answered(page: Path) -> str:
    """Return a page with the answers that its commands give now, on the example matrix."""
    with tempfile.TemporaryDirectory() as folder:
        database = f"--database {folder}/gate.db"
        _run(f"matrix import matrix/examples {database}")

        def answer(match: re.Match[str]) -> str:
            said = _run(match[1].replace(SERVED, database))
            return f"$ compatgate {match[1]}\n{_shortened(said, match[2])}"

        return ANSWERED.sub(answer, page.read_text())


def _shortened(said: str, written: str) -> str:
    """Return an answer, cut after the same finding as the page cuts it with a line of dots."""
    if not written.rstrip("\n").endswith("\n..."):
        return said
    findings = len(re.findall(r"^(?:FAIL|WARN|UNKNOWN|NOTE)\b", written, re.MULTILINE))
    return "\n\n".join(said.split("\n\n")[: findings + 1]) + "\n...\n"


def _path(name: str) -> Path:
    if name == "rooms":  # a drawing
        return ROOT / "docs" / "explanation" / "rooms.svg"
    return ROOT / "docs" / "reference" / f"{name}.md"


def _run(command: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
    return subprocess.run(  # noqa: S603 - the pages' own commands
        [sys.executable, "-m", "compatgate", *shlex.split(command, comments=True)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**environment, "COLUMNS": "96", "NO_COLOR": "1"},
        check=False,
    ).stdout


def main() -> int:
    """Write the pages, or with ``--check`` name the reference pages that are stale."""
    if "--check" in sys.argv:
        for name in stale():
            print(f"{_path(name).relative_to(ROOT)} is stale: run make docs", file=sys.stderr)
        return 1 if stale() else 0
    for name, module in REFERENCE.items():
        _path(name).write_text(module.page())
    for page in ANSWERED_PAGES:
        page.write_text(answered(page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
