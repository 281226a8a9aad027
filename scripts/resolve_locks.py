"""Resolves popular GPU projects with uv and keeps the locks as test fixtures.

What is resolved is in ``tests/conformance/locks/projects.yaml``; each lock is written beside it, in
a folder of the project's name. Source archives of packages that have wheels are left out of
``uv.lock`` files, and uv itself must still accept the file. Without arguments every project is
resolved anew. Exit status 1 where uv could not resolve one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "tests/conformance/locks"
INDEX = "https://pypi.org/simple"
PLATFORM = "sys_platform == 'linux' and platform_machine == 'x86_64'"
_ARCHIVE = re.compile(r"^sdist = \{.*\}\n(?=wheels = )", re.MULTILINE)
_LONGEST_WAIT = 900
_MANIFEST = """
[project]
name = "{name}"
version = "0"
requires-python = "=={python}.*"
dependencies = {requires}
[tool.uv]
environments = ["{platform}"]
exclude-newer = "{before}"
"""


def main() -> int:
    """Resolve what the arguments name, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", metavar="PROJECT")
    parser.add_argument("--interpreter", help="a Python of that version, where uv finds none")
    args = parser.parse_args()
    table = yaml.safe_load((FOLDER / "projects.yaml").read_text())
    failed = 0
    for project in (*table["projects"], table["ordinary"]):
        if args.what and project["name"] not in args.what:
            continue
        try:
            lock = resolve(project, table, args.interpreter or table["python"])
        except subprocess.CalledProcessError as error:
            print(f"{project['name']}: {error.stderr.strip()}", file=sys.stderr)
            failed += 1
            continue
        path = FOLDER / project["name"] / project["form"]
        path.parent.mkdir(exist_ok=True)
        path.write_text(lock)
        print(f"{project['name']}: {len(lock) // 1000} kB")
    return 1 if failed else 0


def resolve(project: dict[str, Any], table: dict[str, Any], interpreter: str) -> str:
    """Resolve a project.

    Args:
        project: row of the table.
        table: with the Python and the moment that hold for all.
        interpreter: version or path, for uv.

    Returns:
        The lock in the form that the row asks for.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(_manifest(project, table))
        _uv(folder, "lock", "--python", interpreter, "--default-index", INDEX)
        path = folder / "uv.lock"
        path.write_text(_ARCHIVE.sub("", path.read_text()))
        form = "pylock.toml" if project["form"] == "pylock.toml" else "requirements.txt"
        options = ("--frozen", "--no-header", "--no-emit-project", "--format", form)
        exported = _uv(folder, "export", "--python", interpreter, *options)
        return path.read_text() if project["form"] == "uv.lock" else exported


def _manifest(project: dict[str, Any], table: dict[str, Any]) -> str:
    """Return a pyproject.toml; a list of strings is written alike in JSON and TOML."""
    return _MANIFEST.format(
        name=f"locks-{project['name']}",
        python=table["python"],
        requires=json.dumps(project["requires"]),
        platform=PLATFORM,
        before=table["before"],
    )


def _uv(folder: Path, *args: str) -> str:
    command = ["uv", *args, "--no-config"]
    done = subprocess.run(  # noqa: S603 - a list of our own, no shell
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=_LONGEST_WAIT
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
