"""JSON is the verdict as REST answers it."""

from __future__ import annotations

import json
from typing import Any

from compatgate.check.reports import Answer, render, render_all


def test_json_is_the_verdict_itself(denied: dict[str, Any]) -> None:
    assert json.loads(render("json", denied)) == denied


def test_the_verdicts_of_several_files_are_an_array(denied: dict[str, Any]) -> None:
    answers = [Answer(denied, "a"), Answer(denied, "b")]
    assert json.loads(render_all("json", answers)) == [denied, denied]
    assert json.loads(render_all("json", [Answer(denied, "a")])) == [denied]
    assert json.loads(render_all("json", [])) == []
