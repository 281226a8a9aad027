"""The locks of popular GPU projects, resolved by uv: every GPU package is named and answered for.

`locks/projects.yaml` says what was resolved, `locks/packages.yaml` what was found in each by hand;
``scripts/resolve_locks.py`` resolves them anew.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from tables import read_table

from compatgate.core.stack import Stack, canonical_key, parse_stack
from compatgate.discovery.lockfiles.interface import LockFile
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile, recognise
from compatgate.discovery.lockfiles.stack_components import find_gpu_packages, is_gpu_package
from compatgate.discovery.observations import settle
from compatgate.discovery.stated_stack import attach_remarks, attach_wheels, prefer_stated

LOCKS = Path(__file__).parent / "locks"
_TABLE = read_table(LOCKS / "projects.yaml")
PROJECTS = {row["name"]: row for row in _TABLE["projects"]}
ROWS = read_table(LOCKS / "packages.yaml")
SHARE_JUDGED = 0.8
LINUX = Platform(os="linux", cpu="x86_64", python="3.12")


def name_of(row: dict[str, Any]) -> str:
    """Return the name of a row for the test's identifier."""
    return row["lock"]


def form(row: dict[str, Any]) -> str:
    """Return the kind of lock of a row."""
    return PROJECTS[row["lock"]]["form"]


def path_of(name: str) -> Path:
    """Return the file of a lock."""
    return LOCKS / name / PROJECTS[name]["form"]


of_each_lock = pytest.mark.parametrize("row", ROWS, ids=name_of)


@pytest.fixture(scope="module")
def read(facts):
    @lru_cache
    def stack_of(name: str, text: str = "") -> dict[str, Any]:
        path = path_of(name)
        data = text.encode() or path.read_bytes()
        reading = read_lockfile(path.name, data, known=facts.packages, platform=LINUX)
        stack, disagreements = settle(reading.observations, reading.arch)
        body = attach_remarks(stack, reading.open, (*reading.conflicts, *disagreements))
        return attach_wheels(body, reading.wheels)

    return stack_of


def stated(row: dict[str, Any], body: dict[str, Any]) -> Stack:
    """Return the stack of a lock with what its asker states of packages."""
    codes = dict(text.rstrip("]").split("[") for text in row.get("stated", ()))
    said = {name: f"{body[name]}[{code}]" for name, code in codes.items()}
    return parse_stack(prefer_stated(body, said, "the lock"))


def parts(body: dict[str, Any]) -> set[str]:
    """Return the names in a stack, without remarks."""
    return set(parse_stack(body).versions) - {"python"}


def unknown(verdict) -> set[str]:
    return {f.component for f in verdict.findings if f.outcome == "unknown"}


def test_every_project_has_a_lock_and_a_list():
    assert [row["lock"] for row in ROWS] == list(PROJECTS)
    assert len(ROWS) >= 15


@of_each_lock
def test_no_gpu_package_is_silent_and_none_is_extra(row, read):
    listed = {*row["judged"], *row.get("open", ()), *row.get("options", ())}
    assert parts(read(row["lock"])) == {canonical_key(name) for name in listed}


def bumped(text: str, name: str) -> str:
    """Return a lock with another release of one package, its files included."""
    parts = []
    for block in re.split(r"(?m)^(?=\[\[package)", text):
        found = re.search(rf'^name = "{name}"\nversion = "([^"]+)', block, re.MULTILINE)
        parts.append(block.replace(found[1], f"9{found[1]}") if found else block)
    return "".join(parts)


def shortened(text: str, names: tuple[str, ...]) -> str:
    """Return a lock of uv without the files of other packages, most of it: it is read often.

    Another lock stays as it is: pylock.toml must list the files of every package.
    """
    if "[[packages]]" in text:
        return text
    parts = []
    for block in re.split(r"(?m)^(?=\[\[package)", text):
        found = re.search(r'^name = "([^"]+)"', block, re.MULTILINE)
        if found and found[1] not in names:
            block = re.sub(r"(?m)^wheels = \[\n(    .*\n)*\]\n", "", block)
        parts.append(block)
    return "".join(parts)


@pytest.mark.parametrize("row", [r for r in ROWS if form(r) != "requirements.txt"], ids=name_of)
def test_two_locks_that_differ_in_one_gpu_package_are_two_stacks(row, read):
    names = (*row["judged"], *row.get("open", ()), *row.get("options", ()))
    text = shortened(path_of(row["lock"]).read_text(), names)
    ours = parse_stack(read(row["lock"], text)).to_json()
    assert ours == parse_stack(read(row["lock"])).to_json()
    for name in names:
        other = bumped(text, name)
        assert other != text, name
        assert parse_stack(read(row["lock"], other)).to_json() != ours, name


@of_each_lock
def test_the_open_ones_are_named_and_the_others_judged(row, read, ask):
    verdict = ask(row["passes"], parse_stack(read(row["lock"])))
    assert unknown(verdict) == {canonical_key(name) for name in row.get("open", ())}


def test_most_gpu_packages_are_judged():
    judged = sum(len(row["judged"]) for row in ROWS)
    still_open = sum(len(row.get("open", ())) for row in ROWS)
    assert judged / (judged + still_open) >= SHARE_JUDGED


@of_each_lock
def test_a_proper_pool_passes(row, read, ask):
    verdict = ask(row["passes"], stated(row, read(row["lock"])))
    assert verdict.verdict in ("pass", "warn"), verdict.findings


@of_each_lock
def test_another_pool_is_denied(row, read, ask):
    verdict = ask(row["fails"]["pool"], stated(row, read(row["lock"])))
    assert verdict.verdict == "fail"
    assert row["fails"]["rule"] in {f.rule for f in verdict.findings if f.outcome == "fail"}


def test_ordinary_platform_wheels_stay_silent(facts):
    path = LOCKS / "ordinary" / _TABLE["ordinary"]["form"]
    file = LockFile(path.name, path.read_text())
    locked = recognise(file).read(file, LINUX).packages
    compiled = [p for p in locked if any(not w.url.endswith("-any.whl") for w in p.wheels)]
    assert len(compiled) >= 200
    assert [p.name for p in locked if is_gpu_package(p, facts.packages)] == []
    assert find_gpu_packages(locked, facts.packages).observations == ()
