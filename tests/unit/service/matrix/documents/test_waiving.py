"""Waivers as people see and write them."""

from __future__ import annotations

from datetime import date

import pytest

from compatgate.core.matrix import Waiver
from compatgate.errors import BadInput
from compatgate.service.matrix.documents.waivers import (
    count_down,
    end_document,
    list_countdowns,
)
from compatgate.web.pages.change_acts import edit_document

TODAY = date(2026, 11, 21)


def _waiver(name: str = "w", expires: str = "2027-01-31", **other) -> Waiver:
    given = {"rules": ("CG803",), "targets": ("prod",), "owner": "ocr", "reason": "moves", **other}
    return Waiver(name=name, expires=expires, **given)


@pytest.mark.parametrize(
    ("expires", "state", "days"),
    [
        ("2026-11-20", "expired", -1),
        ("2026-11-21", "soon", 0),
        ("2026-12-05", "soon", 14),
        ("2026-12-06", "active", 15),
    ],
)
def test_a_waiver_holds_on_its_last_day_and_not_after(expires, state, days):
    found = count_down(_waiver(expires=expires), TODAY)
    assert (found.state, found.days) == (state, days)
    assert _waiver(expires=expires).expires >= TODAY.isoformat() or state == "expired"


def test_those_that_end_first_come_first():
    found = list_countdowns([_waiver("late", "2028-01-01"), _waiver("early", "2026-12-01")], TODAY)
    assert [one.waiver.name for one in found] == ["early", "late"]


def test_they_are_narrowed_by_target_owner_and_words():
    everywhere = _waiver("everywhere", targets=("*",), owner="infra", reason="until the move")
    waivers = [_waiver("ocr"), everywhere]

    def names(**filters: str) -> list[str]:
        return [one.waiver.name for one in list_countdowns(waivers, TODAY, **filters)]

    assert names(target="staging") == ["everywhere"]
    assert names(target="prod", owner="ocr") == ["ocr"]
    assert names(search="THE move") == ["everywhere"]
    assert names(search="cg803 ocr") == ["ocr"]


def test_what_was_typed_becomes_a_document():
    form = {
        "name": " legacy ",
        "rules": "cg803, CG701",
        "targets": "prod\nstaging",
        "image": "registry.example/ocr/*",
        "components": "torch ~=2.4.0\ncuda: 12.4.*\n cudnn ==9.1.0 \npython=3.11.*\nnccl >=2.20,<3",
        "owner": "ocr",
        "why": "moves in January",
        "expires": "2027-01-31",
    }
    assert edit_document("Waiver", form, 1000).document == {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Waiver",
        "metadata": {"name": "legacy"},
        "spec": {
            "rules": ["CG803", "CG701"],
            "targets": ["prod", "staging"],
            "owner": "ocr",
            "reason": "moves in January",
            "expires": "2027-01-31",
            "match": {
                "image": "registry.example/ocr/*",
                "components": {
                    "torch": "~=2.4.0",
                    "cuda": "12.4.*",
                    "cudnn": "==9.1.0",
                    "python": "3.11.*",
                    "nccl": ">=2.20,<3",
                },
            },
        },
    }


@pytest.mark.parametrize("line", ["torch", "torch:", "=2.4"])
def test_a_component_needs_a_version(line):
    with pytest.raises(BadInput, match="needs a version"):
        edit_document("Waiver", {"components": line}, 1000)


def test_a_component_is_stated_once():
    with pytest.raises(BadInput, match="twice"):
        edit_document("Waiver", {"components": "torch 2.4\ntorch 2.5"}, 1000)


def test_what_is_ended_does_not_hold_today():
    document = {"metadata": {"name": "w"}, "spec": {"expires": "2027-01-31", "rules": ["CG803"]}}
    assert end_document(document, TODAY)["spec"] == {"expires": "2026-11-20", "rules": ["CG803"]}
    over = {"spec": {"expires": "2026-01-01"}}
    assert end_document(over, TODAY)["spec"]["expires"] == "2026-01-01"
