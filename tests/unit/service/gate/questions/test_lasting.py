"""Short links to verdicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask.testing import FlaskClient

ID = f"vd_{'0a' * 16}"


def test_a_short_link_leads_to_the_verdict(client: FlaskClient) -> None:
    question = {"target": "prod-a100", "stack": {"cuda": "12.4"}}
    verdict = client.post("/api/v1/gate", json=question).get_json()
    answer = client.get(f"/v/{verdict['id']}")
    assert answer.status_code == 302
    assert answer.headers["Location"] == f"/api/v1/verdicts/{verdict['id']}"
    assert client.get(answer.headers["Location"]).get_json() == verdict


def test_browsers_are_led_to_the_page(client: FlaskClient) -> None:
    answer = client.get(f"/v/{ID}", headers={"Accept": "text/html,*/*;q=0.8"})
    assert answer.headers["Location"] == f"/ui/verdicts/{ID}"
    assert answer.headers["Vary"] == "Accept"


def test_behind_a_proxy_it_stays_below_the_public_url(
    make_client: Callable[..., FlaskClient],
) -> None:
    client = make_client(public_url="https://tools.example/gate/")
    location = client.get(f"/v/{ID}").headers["Location"]
    assert location == f"/gate/api/v1/verdicts/{ID}"


@pytest.mark.parametrize(
    "path", ["/v/x", "/v/vd_", f"/v/{ID}0", "/v/..%2F..%2Fx", f"/v/{ID.upper()}"]
)
def test_nothing_else_is_led_anywhere(shared_client: FlaskClient, path: str) -> None:
    answer = shared_client.get(path)
    assert answer.status_code == 404
    assert answer.mimetype == "application/problem+json"


def test_who_may_not_read_is_told_so_where_it_leads(
    make_client: Callable[..., FlaskClient],
) -> None:
    client = make_client(anonymous=frozenset())
    assert client.get(f"/v/{ID}").status_code == 302
    assert client.get(f"/v/{ID}", follow_redirects=True).status_code == 401
