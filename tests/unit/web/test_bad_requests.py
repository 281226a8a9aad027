"""Bad input is answered with a problem that says what, where and what to do; never with a 500."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from tables import read_table

TABLE = read_table(Path(__file__).with_name("bad_requests.yaml"))
AS_MADE = 3
"""The revision of the matrix of the examples."""


def sent(case: dict[str, Any]) -> dict[str, Any]:
    """The request of a case, for the client."""
    options: dict[str, Any] = {"headers": case.get("headers", {})}
    if "json" in case:
        return {**options, "json": case["json"]}
    data: bytes | None = None
    if "text" in case:
        data = case["text"].encode()
    elif "bytes" in case:
        data = bytes(case["bytes"])
    elif "repeat" in case:
        before, times, middle, after = case["repeat"]
        middle = _LONG.get(middle, middle)
        data = (before * times + middle + after * times).encode()
    if data is not None:
        options |= {"data": data, "content_type": case.get("type", "application/json")}
    return options


_LONG = {
    "{alternatives}": " ".join(f"driver>={number}" for number in range(5000)),
    "{keys}": ", ".join(f'"component-{number}": "1"' for number in range(5000)),
}


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case["name"])
def test_a_bad_request_is_a_problem_and_changes_nothing(
    shared_client: FlaskClient, case: dict[str, Any]
) -> None:
    method, path = case["do"].split(" ", 1)
    answer = shared_client.open(f"/api/v1{path}", method=method, **sent(case))
    assert answer.status_code == case["status"], answer.text
    assert answer.mimetype == "application/problem+json"
    problem = answer.get_json(force=True)
    assert problem["status"] == case["status"]
    assert problem["type"].startswith("https://compatgate.dev/problems/")
    assert problem["title"]
    assert problem["detail"]
    if "field" in case:
        assert problem["field"] == case["field"]
    if "hint" in case:
        assert case["hint"] in problem["hint"]
    if "problems" in case:
        assert sorted(p["field"] for p in problem["problems"]) == sorted(case["problems"])
    if "line" in case:
        assert [p["line"] for p in problem["problems"]] == [case["line"]]
        assert [p["file"] for p in problem["problems"]] == ["m.yaml"]
    newest = shared_client.get("/api/v1/revisions?limit=1").get_json()["items"][0]
    assert newest["number"] == AS_MADE


def test_the_table_is_as_long_as_it_claims() -> None:
    assert len(TABLE) >= 60
    assert len({case["name"] for case in TABLE}) == len(TABLE)
