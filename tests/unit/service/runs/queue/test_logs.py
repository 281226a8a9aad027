"""What a log's text becomes before anybody reads it, and how a growing one is taken up again."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.service.runs.queue.logs import PIECES, clean_text, read_after, read_end
from compatgate.service.runs.queue.models import RunOutput


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Bcharset \x1b=keypad", "charset keypad"),
        ("10 %\r50 %\r\ndone", "10 %\n50 %\ndone"),
        ("nul\x00bell\x07", "nul\ufffdbell\ufffd"),
        ("cut \x1b[3", "cut \ufffd[3"),
        ("exe\u202egpj", "exe\ufffdgpj"),
        ("\x9b31mC1", "\ufffd31mC1"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
def test_nothing_in_a_log_is_obeyed(text: str, shown: str) -> None:
    assert clean_text(text) == shown


def test_an_open_title_does_not_swallow_what_follows() -> None:
    assert clean_text("\x1b]0;no end\nnext line") == "\nnext line"


def make_piece(number: int, attempt: int, step: str, data: bytes) -> RunOutput:
    return RunOutput(id=number, attempt=attempt, step=step, data=data)


class Runs:
    """As much of the runs as is asked for."""

    def __init__(self, *pieces: bytes, ended: bool = False, step: str = "gemm-0") -> None:
        self.pieces = [make_piece(i + 7, 1, step, data) for i, data in enumerate(pieces)]
        self.ended = ended

    def output(self, run_id: str, *, after: int = 0, limit: int) -> Any:
        found = [piece for piece in self.pieces if piece.id > after]
        return self, found[:limit]

    def last_output(self, run_id: str, *, limit: int) -> Any:
        return self, self.pieces[-limit:]

    @property
    def has_ended(self) -> bool:
        return self.ended


def test_a_character_that_two_pieces_share_is_whole() -> None:
    runs: Any = Runs("größe ".encode()[:3], "größe ".encode()[3:])
    runs.pieces, later = runs.pieces[:1], runs.pieces
    first = read_after(runs, "run_1", 0)
    runs.pieces = later
    second = read_after(runs, "run_1", first.after)
    assert first.text + second.text == "==> gemm-0, attempt 1 <==\ngröße "


def test_a_step_has_one_heading() -> None:
    runs: Any = Runs(b"one\n", b"two\n")
    begun = read_after(runs, "run_1", 7)
    assert begun.text == "two\n"
    assert begun.after == 8


def test_another_step_has_its_own_heading() -> None:
    runs: Any = Runs(b"one\n")
    runs.pieces.append(make_piece(20, 2, "conv-0", b"two\n"))
    assert read_after(runs, "run_1", 7).text == "==> conv-0, attempt 2 <==\ntwo\n"


def test_nothing_new_leaves_the_place_as_it_is() -> None:
    part = read_after(Runs(b"one\n"), "run_1", 7)  # type: ignore[arg-type]
    assert (part.text, part.after, part.ended) == ("", 7, False)


def test_it_has_ended_only_once_all_of_it_was_told() -> None:
    runs: Any = Runs(*[b"x"] * (PIECES + 5), ended=True)
    first = read_after(runs, "run_1", 0)
    assert not first.ended
    assert read_after(runs, "run_1", first.after).ended


def test_of_a_long_log_the_end_is_shown() -> None:
    part = read_end(Runs(*[b"x"] * (PIECES + 5), b"last\n"), "run_1")  # type: ignore[arg-type]
    assert part.cut
    assert part.text.endswith("last\n")
