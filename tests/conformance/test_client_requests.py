"""The client sends the requests that it always sent.

A line of the table is a request with sample arguments; one whose operation is dropped goes with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compatgate.client.operations import Operations

REQUESTS = [
    json.loads(line)
    for line in (Path(__file__).parent / "client_requests.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", REQUESTS, ids=lambda row: row["operation"])
def test_a_method_makes_the_request_that_it_made(row: dict[str, Any]) -> None:
    request = getattr(Operations, row["operation"]).request(**row["arguments"])
    content = (request.content() or b"").decode()
    assert (request.method, request.url, content) == (row["method"], row["url"], row["body"])


def test_every_operation_is_in_the_table() -> None:
    asked = {row["operation"] for row in REQUESTS}
    assert {name for name in vars(Operations) if not name.startswith("_")} == asked
