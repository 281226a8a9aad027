"""The text that an on-call engineer reads."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.formats import text
from compatgate.formats.reports import Answer, View, render, render_all

Json = dict[str, Any]


def lines(verdict: Json, width: int = 100) -> list[str]:
    return render("text", verdict, View(width=width)).splitlines()


def test_the_first_line_is_the_answer_with_stack_and_place(denied: Json) -> None:
    assert lines(denied)[0] == (
        "DENIED: CUDA 12.1, PyTorch 2.4.1, sm_80 on A100-SXM4-80GB, driver 525.60.12"
    )


def test_a_failing_finding_gives_reason_have_need_fixes_and_source(denied: Json) -> None:
    start = lines(denied).index("FAIL    CG101 driver-too-old")
    assert lines(denied)[start + 1 : start + 9] == [
        "  message of CG101",
        "  have    driver 525.60.12",
        "  need    >=525.60.13",
        "  fix     raise the driver",
        "          --set driver=525.60.13",
        "  fix     leave it out",
        "          --set cuda-compat=,arch=sm_80+compute_80",
        "  source  CUDA Toolkit Release Notes - https://docs.nvidia.com/x",
    ]


def test_a_warning_is_shorter_than_a_failure(denied: Json) -> None:
    text = lines(denied)
    start = text.index("WARN    CG104 driver-branch-eol")
    assert text[start + 1 : start + 3] == ["  message of CG104", ""]


def test_what_was_not_checked_stands_at_the_end(denied: Json) -> None:
    assert lines(denied)[-3] == "not checked: CG301 a-rule: message of CG301"


def test_the_last_line_says_what_the_answer_rests_on(denied: Json, on_target: Json) -> None:
    assert lines(denied)[-1] == "2 rules passed · facts sha256:0123456789ab · vd_1"
    assert " ".join(lines(on_target)[-2:]) == (
        "2 rules passed · facts sha256:0123456789ab · overlays site.yaml · matrix revision 42 · "
        "evidence run_1 · valid until 2027-01-31 · vd_1"
    )


@pytest.mark.parametrize(
    ("outcome", "allowed", "mode", "words"),
    [
        ("pass", True, "enforce", "ALLOWED:"),
        ("warn", True, "enforce", "ALLOWED, with warnings:"),
        ("fail", False, "enforce", "DENIED:"),
        ("unknown", False, "enforce", "NO DECISION:"),
        ("fail", True, "audit", "ALLOWED by mode 'audit', although it fails:"),
        ("unknown", True, "warn", "ALLOWED by mode 'warn', although it is not known whether"),
    ],
)
def test_the_answer_is_said_in_words(
    passing: Json, outcome: str, allowed: bool, mode: str, words: str
) -> None:
    shown = {**passing, "verdict": outcome, "allowed": allowed, "mode": mode}
    assert lines(shown)[0].startswith(words)


def test_pools_are_named_where_there_are_several(on_target: Json, denied: Json) -> None:
    text = lines(on_target)
    assert text[0].endswith("on target prod")
    assert text[1:3] == ["  a: L4, driver 535.104.05", "  b: L4, driver 535.104.05"]
    assert "WAIVED  CG803 a-rule  [a, b]" in text
    assert not any("[pool]" in line for line in lines(denied))


def test_many_pools_stand_below_the_rule(on_target: Json) -> None:
    finding = {**on_target["findings"][0], "pools": [f"pool-{n:02}" for n in range(20)]}
    text = lines({**on_target, "findings": [finding]}, width=60)
    start = text.index("WAIVED  CG803 a-rule")
    assert text[start + 1].startswith("  pools   pool-00, ")


@pytest.mark.parametrize("width", [40, 72, 120])
def test_no_line_is_wider_than_the_terminal_but_commands_and_addresses(
    denied: Json, width: int
) -> None:
    for line in lines(denied, width):
        assert len(line) <= width or "--set" in line or "https://" in line


def test_colour_changes_nothing_but_codes(denied: Json) -> None:
    import re

    plain = render("text", denied, View())
    coloured = render("text", denied, View(colour=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert "\x1b[1;31mDENIED\x1b[0m" in coloured
    assert "\x1b[" not in plain


def test_no_text_can_command_the_terminal(hostile: Json) -> None:
    hostile = {**hostile, "stack": {"torch": "\x1b[2Jgone\x07"}}
    text = render("text", hostile, View())
    assert all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"driver": ">=525.60.13"}, "--set driver=525.60.13"),
        ({"arch": ["sm_80", "compute_90"]}, "--set arch=sm_80+compute_90"),
        ({"cuda-compat": None}, "--set cuda-compat="),
        ({"gpu": "RTX 4090"}, "--set 'gpu=RTX 4090'"),
        ({"gpu": "x'; rm"}, "--set 'gpu=x'\\''; rm'"),
    ],
)
def test_a_fix_is_an_option_that_a_shell_takes(change: Json, option: str) -> None:
    assert text.fix_option(change) == option


def test_each_of_several_files_has_its_answer_below_its_name(denied: Json, passing: Json) -> None:
    text = render_all("text", [Answer(denied, "a/uv.lock"), Answer(passing, "b/uv\x1b[2J.lock")])
    assert text.startswith("a/uv.lock\nDENIED: ")
    assert "\n\nb/uv\ufffd[2J.lock\nALLOWED: " in text
    assert render_all("text", []) == ""


def test_a_gate_without_its_database_is_said_before_the_basis(denied: Json) -> None:
    denied["degraded"] = {
        "since": "2026-11-03T09:30:00Z",
        "snapshot_age_s": 720.4,
        "reason": "down",
    }
    text = lines(denied)
    note = "degraded: the gate decided on its last good snapshot, which is 12 min old (down)"
    assert text[text.index(note) + 1] == ""
    assert "degraded" in render("markdown", denied, View(width=100))
    assert '"degraded"' in render("json", denied, View(width=100))
