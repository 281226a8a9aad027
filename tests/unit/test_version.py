"""The version names the commit in a checkout, and the release alone without git."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import compatgate

ROOT = Path(__file__).parents[2]
PRINT = "import compatgate; print(compatgate.version())"


def git(*arguments: str, at: Path) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    done = subprocess.run(
        ["git", *who, "-C", at, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "compatgate").mkdir()
    shutil.copy2(ROOT / "compatgate" / "__init__.py", tmp_path / "compatgate")
    return tmp_path


def stated(folder: Path) -> str:
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path[:0] = ['{folder}']; {PRINT}",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_checkout_states_its_commit(checkout: Path) -> None:
    git("init", "--quiet", at=checkout)
    git("commit", "--quiet", "--allow-empty", "--message=first", at=checkout)
    commit = git("rev-parse", "--short=8", "HEAD", at=checkout)
    assert stated(checkout) == f"{compatgate.RELEASE}+g{commit}"


def test_a_folder_without_git_states_the_release(checkout: Path) -> None:
    assert stated(checkout) == compatgate.RELEASE


def test_a_checkout_without_a_commit_states_the_release(checkout: Path) -> None:
    git("init", "--quiet", at=checkout)
    assert stated(checkout) == compatgate.RELEASE


def test_a_wheel_is_called_as_the_checkout_that_it_is_built_from(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"compatgate-{compatgate.version()}-py3-none-any.whl"
