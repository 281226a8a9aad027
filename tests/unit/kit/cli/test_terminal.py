"""Colour, width and wrapping."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.kit.cli.output import paint, strip_controls, wants_colour, width_of, wrap


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_gets_colour_and_a_file_none() -> None:
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())


def test_no_color_forbids_and_force_color_demands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert wants_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("NO_COLOR", "yes")])
def test_a_terminal_without_colour_gets_none(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert not wants_colour(Terminal())


def test_an_empty_or_zero_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("FORCE_COLOR", "0")
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())


@pytest.mark.parametrize(("columns", "width"), [("72", 72), ("10", 40), ("", 100), ("x", 100)])
def test_the_width_is_that_of_columns_or_a_default(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert width_of(io.StringIO()) == width


def test_paint_adds_codes_only_with_colour() -> None:
    assert paint("x", "bold", "red", colour=True) == "\x1b[1;31mx\x1b[0m"
    assert paint("x", "bold", "red", colour=False) == "x"
    assert paint("", "bold", colour=True) == ""


@given(st.text(), st.integers(1, 60))
def test_wrapping_keeps_every_word_in_order(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert " ".join(lines).split() == strip_controls(" ".join(text.split())).split()
    assert lines
    assert all(len(line) <= width or " " not in line for line in lines)


def test_characters_that_a_terminal_would_obey_are_replaced() -> None:
    assert strip_controls("\x1b[2Jgone\x07\n") == "\ufffd[2Jgone\ufffd\n"
    assert strip_controls("plain — text") == "plain — text"


@given(st.text(alphabet=":#[]ab \t\r\n\x85\u2028"), st.integers(4, 30))
def test_the_runner_of_github_actions_finds_no_command_in_any_text(text: str, width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_ACTIONS", "true")
        for shown in (strip_controls(text), "\n".join(f"  {line}" for line in wrap(text, width))):
            for line in shown.replace("\r", "\n").split("\n"):
                assert not line.lstrip().startswith("::")
                assert "##[" not in line


def test_elsewhere_colons_and_hashes_stay_as_they_are() -> None:
    assert strip_controls("std::vector ::x ##[y]") == "std::vector ::x ##[y]"
