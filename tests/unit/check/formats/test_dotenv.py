"""The answer as variables."""

from __future__ import annotations

from typing import Any

from compatgate.check.reports import Answer, render, render_all

Json = dict[str, Any]


def test_the_worst_answer_is_told(denied: Json, passing: Json) -> None:
    text = render_all("dotenv", [Answer(passing), Answer({**denied, "id": "vd_2"})])
    assert text.splitlines() == [
        "COMPATGATE_VERDICT=fail",
        "COMPATGATE_ALLOWED=false",
        "COMPATGATE_ID=vd_2",
    ]


def test_a_warning_that_is_allowed_is_better_than_what_is_not_known(
    on_target: Json, unknown: Json
) -> None:
    text = render_all("dotenv", [Answer(unknown), Answer(on_target)])
    assert "COMPATGATE_VERDICT=unknown" in text


def test_nothing_asked_is_no_verdict() -> None:
    assert render_all("dotenv", []).splitlines()[0] == "COMPATGATE_VERDICT=none"


def test_no_value_is_more_than_a_word_for_a_shell(hostile: Json) -> None:
    text = render("dotenv", {**hostile, "id": "$(rm -rf /)\nPATH=x"})
    assert text.splitlines()[2:] == ["COMPATGATE_ID=rm-rfPATHx"]
