"""A verdict in the words of deploy tools."""

from __future__ import annotations

from typing import Any

from compatgate.web.deploy_hooks.questions import reason_lines, reason_of

LEFT = "the image was not read, the stack is as stated: images of other.example are not read here"


def verdict(**stack: Any) -> dict[str, Any]:
    return {"allowed": True, "verdict": "pass", "mode": "enforce", "findings": [], "stack": stack}


def test_an_image_that_was_not_read_is_said_where_it_is_allowed() -> None:
    found = verdict(cuda="12.4", unread=[LEFT])
    assert reason_of(found, "L") == f"allowed: every rule holds; {LEFT}; L"
    assert reason_lines(found, "L").splitlines() == ["allowed: every rule holds", LEFT, "L"]


def test_what_was_read_needs_no_word() -> None:
    assert reason_of(verdict(cuda="12.4"), "") == "allowed: every rule holds"
