"""Badges: readable without colours, harmless, and never older than the gate's answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from flask.testing import FlaskClient

from compatgate.kit.principal import Authorship
from compatgate.kit.ui.assets import Badge, draw_badge
from compatgate.service.app import Rooms
from compatgate.service.matrix.documents.schemas import ENTRY

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "rect", "g", "text"}
BY = Authorship("tester", "for the test")


def shown(svg: bytes) -> tuple[list[str], str]:
    """The words of a badge, and its title."""
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= ALLOWED
    title = root.find(f"{SVG}title")
    assert title is not None
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == title.text
    return [text.text or "" for text in root.iter(f"{SVG}text")], title.text or ""


def badge(client: FlaskClient, stack: str, target: str = "prod-a100") -> Any:
    return client.get(f"/api/v1/badge/{target}/{quote(stack)}.svg")


@pytest.mark.parametrize(
    ("stack", "word"),
    [
        ("cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124", ("pass", "warn")),
        ("cuda=12.4,arch=sm_90", ("fail",)),
        ("cudnn=9.1.0", ("unknown", "fail")),
    ],
)
def test_a_badge_says_the_verdict_in_words(
    client: FlaskClient, stack: str, word: tuple[str, ...]
) -> None:
    answer = badge(client, stack)
    assert answer.mimetype == "image/svg+xml"
    (label, said), title = shown(answer.data)
    assert label == "prod-a100"
    assert said in word
    assert title == f"{title.partition(' on ')[0]} on prod-a100: {said}"


def test_what_is_not_enforced_says_so(
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    body = {
        "metadata": {"name": "lab"},
        "spec": {
            "pools": [{"name": "l4", "gpu": "L4", "driver": "550.54.15"}],
            "policy": {"mode": "audit"},
        },
    }
    rooms.matrix.create("Target", body, BY)
    (_, said), _ = shown(badge(make_client(), "cuda=12.4,arch=sm_90", "lab").data)
    assert said == "fail, not enforced"


def test_a_badge_is_asked_for_again_and_not_sent_again(client: FlaskClient) -> None:
    answer = badge(client, "cuda=12.4")
    assert answer.headers["Cache-Control"] == "private, no-cache"
    headers = {"If-None-Match": answer.headers["ETag"]}
    assert client.get("/api/v1/badge/prod-a100/cuda=12.4.svg", headers=headers).status_code == 304


def test_a_badge_logs_nothing(client: FlaskClient) -> None:
    badge(client, "cuda=12.4")
    assert client.get("/api/v1/decisions").get_json()["items"] == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("prod-a10/cuda=12.4.svg", 404),
        ("prod-a100/cuda.svg", 400),
        ("prod-a100/cudn=1.svg", 400),
        ("prod-a100/.svg", 404),
        ("prod-a100/cuda=12.4", 404),
        ("prod-a100/cuda=12.4.png", 404),
        ("prod-a100/entry/none.svg", 404),
    ],
)
def test_what_cannot_be_drawn_is_a_problem(
    shared_client: FlaskClient, path: str, status: int
) -> None:
    answer = shared_client.get(f"/api/v1/badge/{path}")
    assert answer.status_code == status
    assert answer.mimetype == "application/problem+json"


@pytest.mark.parametrize("status", ["candidate", "blessed", "deprecated", "revoked"])
def test_an_entrys_badge_says_its_status(client: FlaskClient, rooms: Rooms, status: str) -> None:
    body = {
        "metadata": {"name": "mine"},
        "spec": {**ENTRY["spec"], "targets": ["prod-a100"], "status": status},
    }
    rooms.matrix.create("Entry", body, BY)
    answer = client.get("/api/v1/badge/prod-a100/entry/mine.svg")
    assert shown(answer.data) == (
        ["prod-a100: mine", status],
        f"entry mine on prod-a100: {status}",
    )


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '"/><x y="', "a&b", "\x00\x1b\ud800", "ü 🙂"]
)
def test_text_is_text(text: str) -> None:
    words, title = shown(draw_badge(Badge(text, text, "bad", text)))
    if text.isprintable():
        assert words == [text, text]
        assert title == text


def test_long_text_is_cut_and_fits() -> None:
    svg = draw_badge(Badge("x" * 500, "pass", "good", "x" * 500))
    root = ElementTree.fromstring(svg)
    (label, _), title = shown(svg)
    assert len(label) == 64
    assert len(title) == 500
    assert int(root.attrib["width"]) < 600


def test_every_look_has_enough_contrast_for_white_text() -> None:
    from compatgate.kit.ui.assets import _COLOURS, _LABEL

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in (_LABEL, *_COLOURS.values()):
        assert 1.05 / (luminance(colour) + 0.05) >= 4.5, colour
