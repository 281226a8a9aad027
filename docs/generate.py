"""Writes docs/rules.md from the rules themselves, and the answers of README's commands.

``--check`` only says whether docs/rules.md is current.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from compatgate.core.rules import RULES

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("rules.md")
README = ROOT / "README.md"
SERVED = "--server http://127.0.0.1:8080"
ANSWERED = re.compile(r"^\$ compatgate (check .*)\n((?:(?!\$ |```).*\n)+)", re.MULTILINE)
"""A command of the README that asks the gate, and its answer."""
HEAD = """# Rules

Generated from the rules' own documentation by `make docs`; `compatgate explain RULE` prints the
same. A rule answers for one stack on one pool; a target's verdict is the worst over its pools.
`fail` outweighs `unknown`, which outweighs `warn`; `not-checked` is said and does not weigh.

"""


def page() -> str:
    """The whole page."""
    index = "\n".join(f"- [{r.id} {r.name}](#{anchor(r.id, r.name)})" for r in RULES)
    body = "\n\n".join(f"## {r.id} {r.name}\n\n{r.documentation}" for r in RULES)
    return f"{HEAD}{index}\n\n{body}\n".replace("``", "`")


def anchor(rule_id: str, name: str) -> str:
    """A heading's anchor as code forges make it."""
    return f"{rule_id}-{name}".lower()


def readme() -> str:
    """The README with the answers that its commands give now, on the example matrix."""
    with tempfile.TemporaryDirectory() as folder:
        database = f"--database {folder}/gate.db"
        _run(f"matrix import matrix/examples {database}")

        def answered(match: re.Match[str]) -> str:
            return f"$ compatgate {match[1]}\n{_run(match[1].replace(SERVED, database))}"

        return ANSWERED.sub(answered, README.read_text())


def _run(command: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
    return subprocess.run(  # noqa: S603 - the README's own commands
        [sys.executable, "-m", "compatgate", *shlex.split(command)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**environment, "COLUMNS": "96", "NO_COLOR": "1"},
        check=False,
    ).stdout


def main() -> int:
    """Write the pages, or with ``--check`` compare the one of the rules."""
    if "--check" in sys.argv:
        return 0 if PAGE.exists() and PAGE.read_text() == page() else 1
    PAGE.write_text(page())
    README.write_text(readme())
    return 0


if __name__ == "__main__":
    sys.exit(main())
