"""Nodes over REST: reported by those who operate, read by everybody who may read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask.testing import FlaskClient

from compatgate.service.nodes.schemas import EXAMPLE

API = "/api/v1"


def test_a_report_is_answered_with_the_nodes_as_they_are(client: FlaskClient) -> None:
    answer = client.post(f"{API}/nodes", json=EXAMPLE)
    assert answer.status_code == 200, answer.text
    (node,) = answer.get_json()["nodes"]
    assert (node["driver"], node["driver_state"]) == ("550.54.15", "unknown")
    assert "the driver's own report decides" in node["disagreements"][0]
    assert client.get(f"{API}/nodes/gpu-17").get_json() == node
    assert client.get(f"{API}/nodes?disagrees=true").get_json()["items"] == [node]
    assert client.get(f"{API}/nodes?cluster=elsewhere").get_json()["items"] == []


def test_drift_is_a_list_of_its_own(client: FlaskClient) -> None:
    report: dict[str, Any] = {**EXAMPLE, "nodes": [{**EXAMPLE["nodes"][0], "target": "prod-a100"}]}
    client.post(f"{API}/nodes", json=report)
    (item,) = client.get(f"{API}/drift?what=driver").get_json()["items"]
    assert item["differences"][0]["message"] == (
        "it has driver 550.54.15, prod-a100 declares 535.183.01"
    )
    assert client.get(f"{API}/drift?what=gpu").get_json()["items"] == []


def test_a_dry_run_is_answered_and_not_kept(client: FlaskClient) -> None:
    assert client.post(f"{API}/nodes?dry_run=true", json=EXAMPLE).get_json()["nodes"]
    assert client.get(f"{API}/nodes").get_json()["items"] == []


def test_a_node_is_removed_with_a_reason(client: FlaskClient) -> None:
    client.post(f"{API}/nodes", json=EXAMPLE)
    assert client.delete(f"{API}/nodes/gpu-17").status_code == 400
    assert client.delete(f"{API}/nodes/gpu-17?reason=scrapped").get_json()["name"] == "gpu-17"
    assert client.delete(f"{API}/nodes/gpu-17?reason=scrapped").status_code == 404
    assert client.get(f"{API}/audit?action=node.").get_json()["items"][0]["subject"] == (
        "prod-eu/gpu-17"
    )


def test_readers_may_not_report(make_client: Callable[..., FlaskClient]) -> None:
    client = make_client(anonymous=frozenset({"read", "gate"}))
    assert client.get(f"{API}/nodes").status_code == 200
    assert client.post(f"{API}/nodes", json=EXAMPLE).status_code == 401
    assert client.delete(f"{API}/nodes/gpu-17?reason=x").status_code == 401
