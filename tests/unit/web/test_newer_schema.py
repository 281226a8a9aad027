"""A replica of this version whose database a newer version upgrades meanwhile: 503, never 500."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus

import pytest
from flask.testing import FlaskClient

from compatgate.kit.http.links import API_PREFIX, UI_PREFIX
from compatgate.service.app import Rooms
from compatgate.service.cluster.schemas import REVIEW_EXAMPLES
from compatgate.web.routes import PAGES, ROUTES

CONTENT = """
UPDATE targets SET document = json_set(document, '$.spec.future', 1);
UPDATE entries SET document = json_set(document, '$.spec.future', 1);
UPDATE waivers SET document = json_set(document, '$.spec.future', 1);
UPDATE changes SET after = json_set(after, '$.spec.future', 1) WHERE after IS NOT NULL;
"""
NAMES = """
ALTER TABLE targets RENAME COLUMN document TO body;
ALTER TABLE tokens RENAME TO credentials;
ALTER TABLE decisions RENAME COLUMN outcome TO verdict;
ALTER TABLE nodes RENAME TO machines;
ALTER TABLE audit RENAME COLUMN detail TO details;
"""
UPGRADED = "PRAGMA foreign_keys = OFF; UPDATE alembic_version SET version_num = '9999';"
QUESTION = {"target": "prod-a100", "stack": {"cuda": "12.4", "cudnn": "9.1.0"}}


def _addresses() -> list[str]:
    """Return what can be read without a name."""
    routes = [API_PREFIX + one.path for one in ROUTES if one.method == "GET"]
    pages = [UI_PREFIX + one.path for one in PAGES if one.method == "GET"]
    return [
        one for one in (*routes, *pages, "/readyz", "/metrics") if "{" not in one and "<" not in one
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of figures
@pytest.mark.parametrize("change", [CONTENT, NAMES], ids=["content", "names"])
def test_no_request_is_answered_with_500_on_a_newer_schema(
    rooms: Rooms, make_client: Callable[..., FlaskClient], change: str
) -> None:
    client = make_client().application.test_client()  # a newer content is not as described
    with closing(sqlite3.connect(rooms.gate.database.url.database or "")) as connection:
        connection.executescript(UPGRADED + change)
    rooms.snapshots.expire()
    answers = {path: client.get(path) for path in _addresses()}
    answers["/gate"] = client.post(f"{API_PREFIX}/gate", json=QUESTION)
    answers["/hook"] = client.post("/hooks/kubernetes/validate", json=REVIEW_EXAMPLES["pod"])
    defects = [
        path for path, one in answers.items() if one.status_code == HTTPStatus.INTERNAL_SERVER_ERROR
    ]
    assert defects == []
    assert len(answers) > 50
    refusal = answers[f"{API_PREFIX}/entries" if change == CONTENT else f"{API_PREFIX}/targets"]
    assert refusal.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    if change == CONTENT:
        assert "a newer compatgate wrote" in refusal.get_json()["detail"]
