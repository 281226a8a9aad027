"""Markdown for a pull-request comment."""

from __future__ import annotations

from typing import Any

from compatgate.formats.reports import Answer, render, render_all

Json = dict[str, Any]


def test_a_denial_has_heading_table_fixes_and_sources(denied: Json) -> None:
    text = render("markdown", denied)
    assert "\n### ❌ compatgate: DENIED\n" in text
    assert (
        "| ❌ | `CG101` driver-too-old | message of CG101 | `525.60.12` | `>=525.60.13` |" in text
    )
    assert "- raise the driver: `--set driver=525.60.13`" in text
    assert "[CUDA Toolkit Release Notes](https://docs.nvidia.com/x)" in text
    assert "<summary>Not checked</summary>" in text


def test_a_pass_has_no_table(passing: Json) -> None:
    text = render("markdown", passing)
    assert "\n### ✅ compatgate: ALLOWED\n" in text
    assert "| ---" not in text


def test_pools_are_a_column_where_there_are_several(on_target: Json) -> None:
    assert "| need | pools |" in render("markdown", on_target)


def test_text_cannot_break_the_table_or_bring_html(hostile: Json) -> None:
    text = render("markdown", hostile)
    row = next(line for line in text.splitlines() if "CG101" in line and line.startswith("|"))
    assert row.replace("\\|", "").count("|") == 6
    assert "<script>" not in text


def test_a_bot_finds_its_comment_by_a_hidden_marker(on_target: Json, denied: Json) -> None:
    first = render("markdown", on_target).splitlines()[0]
    assert first == "<!-- compatgate: target prod -->"
    assert render("markdown", {**on_target, "verdict": "fail"}).startswith(first)
    assert not render("markdown", denied).startswith(first)


def test_no_name_of_a_target_ends_the_marker(on_target: Json) -> None:
    text = render("markdown", {**on_target, "target": "x--><script>alert(1)</script>"})
    marker, _, rest = text.partition(" -->")
    assert marker.count("--") == 1
    assert "<script>" not in text
    assert rest.startswith("\n\n### ")


def test_nobody_is_called_and_no_issue_is_linked(hostile: Json) -> None:
    finding = {**hostile["findings"][0], "message": "ask @team about #12 &commat;all"}
    text = render("markdown", {**hostile, "findings": [finding]})
    assert "@team" not in text
    assert "#12" not in text
    assert "&commat;" not in text


def test_an_address_cannot_end_its_link(denied: Json) -> None:
    finding = {**denied["findings"][0]}
    finding["source"] = {"title": "t", "url": "https://x.example/a) [b](javascript:x"}
    text = render("markdown", {**denied, "findings": [finding]})
    assert "(https://x.example/a%29%20%5Bb%5D%28javascript:x)" in text
    finding["source"] = {"title": "t", "url": "javascript:alert(1)"}
    assert "javascript" not in render("markdown", {**denied, "findings": [finding]})


def test_a_comment_is_never_longer_than_forges_take(denied: Json) -> None:
    long = [{**denied["findings"][0], "message": f"{n} " + "x" * 5000} for n in range(200)]
    text = render("markdown", {**denied, "findings": long})
    assert len(text) < 65_536
    assert "... and 170 more." in text
    many = [Answer({**denied, "findings": long}, f"{n}/uv.lock") for n in range(40)]
    text = render_all("markdown", many)
    assert len(text) < 65_536
    assert text.count("### ❌") == 40


def test_several_files_have_a_section_each(denied: Json, passing: Json) -> None:
    text = render_all("markdown", [Answer(denied, "a/uv.lock"), Answer(passing, "b/uv.lock")])
    assert "### ❌ compatgate: DENIED (a/uv.lock)" in text
    assert "### ✅ compatgate: ALLOWED (b/uv.lock)" in text
    assert text.count("<!--") == 1


def test_the_verdict_is_linked_where_a_server_keeps_it(denied: Json) -> None:
    link = "https://gate.example/api/v1/verdicts/vd_1"
    assert f"[verdict]({link})" in render_all("markdown", [Answer(denied, link=link)])
