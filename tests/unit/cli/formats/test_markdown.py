"""Markdown for a pull-request comment."""

from __future__ import annotations

from typing import Any

from compatgate.cli.formats import render

Json = dict[str, Any]


def test_a_denial_has_heading_table_fixes_and_sources(denied: Json) -> None:
    text = render("markdown", denied)
    assert text.startswith("### ❌ compatgate: DENIED\n")
    assert (
        "| ❌ | `CG101` driver-too-old | message of CG101 | `525.60.12` | `>=525.60.13` |" in text
    )
    assert "- raise the driver: `--set driver=525.60.13`" in text
    assert "[CUDA Toolkit Release Notes](https://docs.nvidia.com/x)" in text
    assert "<summary>Not checked</summary>" in text


def test_a_pass_has_no_table(passing: Json) -> None:
    text = render("markdown", passing)
    assert text.startswith("### ✅ compatgate: ALLOWED\n")
    assert "| ---" not in text


def test_pools_are_a_column_where_there_are_several(on_target: Json) -> None:
    assert "| need | pools |" in render("markdown", on_target)


def test_text_cannot_break_the_table_or_bring_html(hostile: Json) -> None:
    text = render("markdown", hostile)
    row = next(line for line in text.splitlines() if "CG101" in line and line.startswith("|"))
    assert row.replace("\\|", "").count("|") == 6
    assert "<script>" not in text
