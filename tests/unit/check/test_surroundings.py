"""The command where the surroundings are poor: few characters, no room, no home, no extras."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compatgate.kit.cli.output import escape_unencodable

CHECK = ("check", "--pool", "driver=550.54.15,gpu=L4", "--stack", "cuda=12.4,arch=sm_89")
FULL = Path("/dev/full")


def run(*arguments: str, before: str = "", after: str = "", **environment: str) -> tuple[int, str]:
    """Status and standard error of the command, called by a shell."""
    command = f'{before} exec "$0" -m compatgate "$@" {after}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr


def test_what_an_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    assert run(*CHECK, after=f"> {answer}", PYTHONIOENCODING="ascii") == (0, "")
    assert r"rules passed \u00b7 facts sha256" in answer.read_text("ascii")


def test_escaped_json_is_the_same_json() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    escape_unencodable(stream)
    said = {"reason": "\u2026 läuft \U0001f600"}
    print(json.dumps(said, ensure_ascii=False), file=stream, flush=True)
    assert json.loads(stream.buffer.getvalue().decode("latin-1")) == said  # type: ignore[attr-defined]


def test_an_answer_that_nobody_takes_is_still_an_exit_status() -> None:
    assert run(*CHECK, after=">&-") == (0, "")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [CHECK, ("explain",), ("--help",)])
def test_a_full_disk_is_said_in_one_line(arguments: tuple[str, ...]) -> None:
    status, error = run(*arguments, after=f"> {FULL}")
    assert status == 2
    assert error == "error: cannot write the output: No space left on device\n"


def test_a_user_without_a_home_is_told_what_to_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from compatgate.cli.main import main

    def homeless(*_: object, **__: object) -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_data_path", homeless)
    monkeypatch.delenv("COMPATGATE_DATABASE", raising=False)
    monkeypatch.delenv("COMPATGATE_SERVER", raising=False)
    assert main(["target", "list"]) == 2
    error = capsys.readouterr().err
    assert "has no home folder" in error
    assert "--database, or in COMPATGATE_DATABASE" in error


def test_readings_of_images_are_not_kept_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    from compatgate.discovery import cache

    def homeless(*_: object, **__: object) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(cache, "user_cache_dir", homeless)
    assert cache.default_image_folder() is None


def test_a_library_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from compatgate.cli.main import main

    monkeypatch.setattr("compatgate.kit.database.database.find_spec", lambda name: None)
    assert main(["db", "status", "--database", "postgresql://gate@db.example/gate"]) == 2
    assert "pip install '.[postgresql]'" in capsys.readouterr().err


def test_help_on_what_is_no_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    from compatgate.cli.main import main

    assert main(["help", "chek"]) == 2
    assert "did you mean 'check'" in capsys.readouterr().err
