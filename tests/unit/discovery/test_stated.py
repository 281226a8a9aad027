"""A stack that something shows or holds, beside one that somebody states."""

from __future__ import annotations

import pytest

from compatgate.discovery.stated_stack import (
    attach_remarks,
    merge_bodies,
    prefer_detected,
    prefer_stated,
)
from compatgate.errors import BadInput


def test_what_an_image_shows_wins_and_a_contradiction_is_said():
    body = prefer_detected({"cudnn": "9.1.0.70+cu12"}, {"cudnn": "8.9.7", "cuda": "12.4"})
    assert body == {
        "cudnn": "9.1.0.70+cu12",
        "cuda": "12.4",
        "conflicts": ["cudnn: stated is 8.9.7, the image shows 9.1.0.70+cu12"],
    }


def test_what_is_stated_less_exactly_contradicts_nothing():
    shown = {"cuda": "12.4.1", "cudnn": "9.1.0.70+cu12", "torch": "2.4.1+cu121"}
    stated = {"cuda": "12.4", "libcudnn9": "9.1.0", "pytorch": "2.4.1"}
    assert prefer_detected(shown, stated) == shown


@pytest.mark.parametrize(("one", "other"), [("+cu121", "+cu124"), ("+cpu", "+cu121")])
def test_two_builds_of_one_version_contradict_each_other(one: str, other: str):
    body = prefer_detected({"torch": f"2.4.1{one}"}, {"torch": f"2.4.1{other}"})
    assert len(body["conflicts"]) == 1


def test_how_a_package_is_loaded_is_assumed_of_a_file_and_seen_in_an_image():
    written = {"cuda-compat-use": "newer", "cuda-compat": "12.4", "unread": ["the library path"]}
    body = prefer_detected({"cuda-compat-use": "always"}, written)
    assert body["cuda-compat-use"] == "always"
    assert "conflicts" not in body


def test_what_is_stated_wins_over_a_file_and_a_contradiction_is_said():
    body = prefer_stated({"torch": "2.4.1+cu121"}, {"pytorch": "2.5.1+cu121"}, "uv.lock")
    assert body["torch"] == "2.5.1+cu121"
    assert body["conflicts"] == [
        "torch: stated is 2.5.1+cu121, uv.lock has 2.4.1+cu121; what is stated decides"
    ]


@pytest.mark.parametrize(
    ("stated", "left"),
    [
        ({"torch": "2.4.1"}, ["cuda: x", "file: z"]),
        ({"torch": "2.4.1+cu121"}, ["file: z"]),
        ({"cuda": "12.1"}, ["torch: y", "file: z"]),
        ({"cudnn": "9.1.0+cu12"}, ["cuda: x", "torch: y", "file: z"]),
    ],
)
def test_what_is_stated_is_not_open(stated: dict[str, str], left: list[str]):
    written = {"open": ["cuda: x", "torch: y", "file: z"]}
    assert prefer_stated(written, stated, "requirements.txt")["open"] == left


def test_remarks_of_both_are_kept():
    one, other = {"cuda": "12.4", "open": ["a"]}, {"open": ["b"], "conflicts": ["c"]}
    assert merge_bodies(one, other) == {"cuda": "12.4", "open": ["b", "a"], "conflicts": ["c"]}


def test_a_malformed_version_is_named():
    with pytest.raises(BadInput, match=r"stack\.cuda: 'banana'"):
        prefer_stated({"torch": "2.4.1"}, {"cuda": "banana"}, "uv.lock")


def test_a_record_that_no_question_takes_leaves_its_package_open():
    records = {
        "good": {"libraries": [{"path": "a.so", "sass": {"sm_90": 1}, "units": 1}]},
        "odd": {"libraries": [{"path": "a.so", "sass": {"sm_1": 1}, "units": 1}]},
    }
    body = attach_remarks({"cuda": "12.4", "measured": records}, (), ())
    assert body["measured"] == {"good": records["good"]}
    (sentence,) = body["open"]
    assert sentence.startswith("odd: what its files hold cannot be used")
