"""The changelog is in its form, and its newest release is the version of the program."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from compatgate import __version__

ROOT = Path(__file__).parents[3]
RELEASES = re.findall(
    r"^## \[([^\]]+)\](?: - (.*))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
)


def test_releases_have_a_version_and_a_day_the_newest_first() -> None:
    dated = [(name, day) for name, day in RELEASES if day and day != "unreleased"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", name) for name, _ in dated)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", day) for _, day in dated)
    numbers = [tuple(map(int, name.split("."))) for name, _ in dated]
    assert numbers == sorted(numbers, reverse=True)


def test_the_newest_release_is_the_version_of_the_program() -> None:
    newest = next(name for name, day in RELEASES if day and day != "unreleased")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert newest == project["version"] == __version__
