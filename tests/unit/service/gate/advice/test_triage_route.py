"""``POST /triage``: causes of a text, with or without a question beside it."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from compatgate.service.app import Rooms
from compatgate.service.gate.advice.schemas import MAX_PASTE

TRIAGE = "/api/v1/triage"
ERROR = "CUDA driver version is insufficient for CUDA runtime version"
POOL = {"driver": "450.80.02", "gpu": "A100-SXM4-80GB"}


def test_a_text_alone_gets_its_causes(client: FlaskClient) -> None:
    (cause,) = client.post(TRIAGE, json={"text": ERROR}).get_json()["causes"]
    assert cause["id"] == "driver-too-old"
    assert cause["seen"] == ERROR
    assert "here" not in cause


def test_a_question_beside_it_is_answered_and_not_logged(client: FlaskClient, rooms: Rooms) -> None:
    before = rooms.decisions.list_decisions(limit=1).items
    body = {"text": ERROR, "pool": POOL, "stack": {"cuda": "12.4"}}
    (cause,) = client.post(TRIAGE, json=body).get_json()["causes"]
    assert cause["here"]["outcome"] == "fails"
    assert cause["fixes"][0]["set"]
    assert rooms.decisions.list_decisions(limit=1).items == before


def test_a_text_that_is_not_recognised_is_an_answer(client: FlaskClient) -> None:
    answer = client.post(TRIAGE, json={"text": "all is well"})
    assert (answer.status_code, answer.get_json()) == (200, {"causes": [], "stated": {}})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": 7}, "text"),
        ({"text": "x" * (MAX_PASTE + 1)}, "text"),
        ({"text": ERROR, "log": "x"}, "log"),
        ({"text": ERROR, "stack": {"cuda": "12.4"}}, "target"),
        ({"text": ERROR, "pool": POOL}, "stack"),
        ({"text": ERROR, "pool": {"driver": "new"}, "stack": {"cuda": "12.4"}}, "driver"),
    ],
)
def test_a_wrong_body_is_refused(client: FlaskClient, body: object, field: str) -> None:
    answer = client.post(TRIAGE, json=body)
    assert answer.status_code == 400
    assert field in answer.get_data(as_text=True)


def test_a_target_that_is_not_there_is_named(client: FlaskClient) -> None:
    body = {"text": ERROR, "target": "nowhere", "stack": {"cuda": "12.4"}}
    assert client.post(TRIAGE, json=body).status_code == 404
