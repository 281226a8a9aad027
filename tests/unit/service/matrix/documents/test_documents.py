"""Targets, entries and waivers: made, read, changed, deleted; never over somebody else's change."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from compatgate.service.app import Rooms

API = "/api/v1"
SMALL = {
    "metadata": {"name": "small"},
    "spec": {"pools": [{"name": "l4", "gpu": "L4", "driver": "550.54.15"}]},
}
WHY = {"X-Compatgate-Reason": "because"}


def small(count: int) -> dict[str, Any]:
    pool = {"name": "l4", "gpu": "L4", "driver": "550.54.15", "count": count}
    return {"metadata": {"name": "small"}, "spec": {"pools": [pool]}}


def test_what_was_made_can_be_read_where_the_answer_says(client: FlaskClient) -> None:
    made = client.post(f"{API}/targets", json=SMALL, headers=WHY)
    assert made.status_code == 201
    shown = client.get(made.headers["Location"])
    assert shown.get_json() == made.get_json()
    assert shown.headers["ETag"] == made.headers["ETag"] == f'"r{made.get_json()["revision"]}"'


def test_a_change_replaces_the_document(client: FlaskClient) -> None:
    client.post(f"{API}/targets", json=SMALL, headers=WHY)
    changed = client.put(f"{API}/targets/small", json=small(3), headers=WHY)
    assert changed.get_json()["spec"]["pools"][0]["count"] == 3
    assert client.get(f"{API}/targets/small").get_json() == changed.get_json()


def test_what_was_deleted_is_gone_and_its_history_stays(client: FlaskClient) -> None:
    client.post(f"{API}/targets", json=SMALL, headers=WHY)
    deleted = client.delete(f"{API}/targets/small", headers=WHY)
    assert client.get(f"{API}/targets/small").status_code == 404
    number = deleted.get_json()["revision"]
    change = client.get(f"{API}/revisions/{number}").get_json()["changes"][0]
    assert (change["name"], change["action"]) == ("small", "delete")


@pytest.mark.parametrize("path", ["targets", "entries", "waivers"])
def test_each_kind_is_listed_shown_and_deleted(client: FlaskClient, path: str) -> None:
    names = [i["metadata"]["name"] for i in client.get(f"{API}/{path}").get_json()["items"]]
    assert len(names) == 1
    assert client.get(f"{API}/{path}/{names[0]}").status_code == 200


def test_the_reason_may_be_in_the_body_the_header_or_the_query(
    client: FlaskClient, rooms: Rooms
) -> None:
    client.post(f"{API}/targets", json={**SMALL, "reason": "größer"})
    utf8 = {"X-Compatgate-Reason": "schöner".encode().decode("latin-1")}
    client.put(f"{API}/targets/small", json=small(2), headers=utf8)
    client.delete(f"{API}/targets/small?reason=weg%20damit")
    reasons = [r.reason for r in rooms.matrix.list_revisions(limit=3).items]
    assert reasons == ["weg damit", "schöner", "größer"]


def test_what_the_client_has_is_not_sent_again(client: FlaskClient) -> None:
    for path in ("targets/prod-a100", "targets", "rules", "facts/gpus?limit=2", "openapi.json"):
        first = client.get(f"{API}/{path}")
        again = client.get(f"{API}/{path}", headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.data) == (304, b"")
        assert again.headers["ETag"] == first.headers["ETag"]
    other = client.get(f"{API}/targets/prod-a100", headers={"If-None-Match": '"r99"'})
    assert other.status_code == 200


def test_a_change_with_the_right_etag_is_made(client: FlaskClient) -> None:
    made = client.post(f"{API}/targets", json=SMALL, headers=WHY)
    headers = {**WHY, "If-Match": made.headers["ETag"]}
    assert client.put(f"{API}/targets/small", json=small(5), headers=headers).status_code == 200


def test_a_change_over_somebody_elses_is_refused(client: FlaskClient) -> None:
    made = client.post(f"{API}/targets", json=SMALL, headers=WHY)
    client.put(f"{API}/targets/small", json=small(5), headers=WHY)
    headers = {**WHY, "If-Match": made.headers["ETag"]}
    for answer in (
        client.put(f"{API}/targets/small", json=small(6), headers=headers),
        client.delete(f"{API}/targets/small", headers=headers),
    ):
        assert answer.status_code == 412
        assert answer.get_json(force=True)["field"] == "If-Match"
    assert client.get(f"{API}/targets/small").get_json()["spec"]["pools"][0]["count"] == 5


def test_a_star_matches_whatever_exists(client: FlaskClient) -> None:
    headers = {**WHY, "If-Match": "*"}
    assert client.put(f"{API}/targets/small", json=SMALL, headers=headers).status_code == 404
    client.post(f"{API}/targets", json=SMALL, headers=WHY)
    assert client.put(f"{API}/targets/small", json=small(2), headers=headers).status_code == 200


def test_a_weak_etag_matches_no_change(client: FlaskClient) -> None:
    made = client.post(f"{API}/targets", json=SMALL, headers=WHY)
    headers = {**WHY, "If-Match": f"W/{made.headers['ETag']}"}
    assert client.put(f"{API}/targets/small", json=small(2), headers=headers).status_code == 412


def test_what_is_in_use_is_a_conflict_even_with_the_right_etag(client: FlaskClient) -> None:
    etag = client.get(f"{API}/targets/prod-a100").headers["ETag"]
    answer = client.delete(f"{API}/targets/prod-a100", headers={**WHY, "If-Match": etag})
    assert answer.status_code == 409


def test_a_change_that_changes_nothing_makes_no_revision(client: FlaskClient, rooms: Rooms) -> None:
    before = rooms.gate.snapshot().revision
    document = client.get(f"{API}/targets/prod-a100").get_json()
    body = {key: document[key] for key in ("metadata", "spec")}
    answer = client.put(f"{API}/targets/prod-a100", json=body, headers=WHY)
    assert answer.get_json() == document
    assert rooms.gate.snapshot().revision == before


def test_pools_are_listed_with_their_target(client: FlaskClient) -> None:
    every = client.get(f"{API}/pools?gpu=A100-SXM4-80GB").get_json()["items"]
    assert every == client.get(f"{API}/targets/prod-a100/pools").get_json()["items"]
    assert every[0]["target"] == "prod-a100"
    assert client.get(f"{API}/targets/nope/pools").status_code == 404


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("targets?label=tier%3Dprod", 1),
        ("targets?label=tier%3Ddev", 0),
        ("targets?gpu=A100-SXM4-80GB", 1),
        ("targets?driver=535.183.01", 1),
        ("targets?search=A100", 1),
        ("targets?search=zz", 0),
        ("entries?target=prod-a100", 1),
        ("entries?status=revoked", 0),
        ("entries?component=torch", 1),
        ("waivers?owner=team-ocr", 1),
        ("waivers?active_on=2099-02-01", 0),
        ("pools?target=other", 0),
        ("revisions?kind=Target", 1),
        ("revisions?name=legacy-ocr", 1),
        ("revisions?author=tester&since=2020-01-01", 3),
        ("revisions?until=2020-01-01", 0),
    ],
)
def test_lists_are_filtered(shared_client: FlaskClient, path: str, found: int) -> None:
    assert len(shared_client.get(f"{API}/{path}").get_json()["items"]) == found
