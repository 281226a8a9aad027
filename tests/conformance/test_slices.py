"""Whole GPUs and MIG slices: entry by pool by request, every cell a row of a table."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from tables import read_table

from compatgate.core.facts import Facts
from compatgate.documents.sources import Source
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.cluster.admission import AdmissionOptions
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.gate.questions.service import make_gate
from compatgate.web.app import create_app
from compatgate.web.service import Settings

TABLE: dict[str, Any] = read_table(Path(__file__).with_name("admission") / "slices.yaml")
VARIABLE = "variable"
STACK = "cuda=12.4,arch=sm_90"


def target_of(entry: str, pool: str) -> str:
    return f"{entry}-on-{pool}"


def documents() -> str:
    found: list[dict[str, Any]] = []
    for (entry, gpus), (pool, gpu) in product(TABLE["entries"].items(), TABLE["pools"].items()):
        name = target_of(entry, pool)
        pools = [{"name": "only", "gpu": gpu, "driver": "550.54.15"}]
        match, policy = {"namespaces": [name]}, {"requireEntry": True}
        spec = {"pools": pools, "match": match, "policy": policy}
        found.append(document("Target", name, spec))
        covered = {"targets": [name], "components": {"cuda": "12.4.*"}, "status": "blessed"}
        found.append(document("Entry", name, {**covered, **({"gpus": gpus} if gpus else {})}))
    return "\n---\n".join(msgspec.json.encode(one).decode() for one in found)


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "compatgate.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Any:
    database = Database.open(str(tmp_path_factory.mktemp("slices") / "gate.db"))
    tables.prepare_schema(database)
    rooms = Rooms(make_gate(database, facts))
    by = Authorship("tester", "for the table")
    rooms.matrix.import_documents([Source("slices.yaml", documents())], by)
    settings = Settings(
        anonymous=frozenset({"gate", "read"}),
        overlays=(),
        admission=AdmissionOptions(load_kinds()),
        public_url="https://gate.example/",
    )
    yield create_app(rooms, settings).test_client()
    rooms.close()


def answer_of(client: FlaskClient, namespace: str, request: str) -> str:
    """Return ``allowed``, or the rules that deny a pod that requests one GPU."""
    asks: dict[str, Any] = {"resources": {"limits": {request: "1"}}}
    if request == VARIABLE:
        asks = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    annotations = {"compatgate.dev/stack": STACK}
    review = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": namespace,
        "dryRun": True,
        "object": {
            "metadata": {"name": "x", "annotations": annotations},
            "spec": {"containers": [{"name": "app", "image": "", **asks}]},
        },
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review}
    response = client.post("/hooks/kubernetes/validate", json=body).get_json()["response"]
    if response["allowed"]:
        return "allowed"
    said = response["status"]["message"]
    rules = [rule for rule in ("CG832", "CG801") if rule in said]
    if "CG801" not in rules and "(and 1 more)" in said:
        rules.append("CG801")
    return "+".join(rules) or said


def test_each_cell_of_entry_pool_and_request_is_answered_as_its_row_says(
    client: FlaskClient,
) -> None:
    wrong = [
        (entry, pool, request, expected, found)
        for entry, pool, request, expected in TABLE["rows"]
        if (found := answer_of(client, target_of(entry, pool), request)) != expected
    ]
    assert wrong == []


def test_the_table_has_a_row_for_every_cell() -> None:
    cells = [tuple(row[:3]) for row in TABLE["rows"]]
    requests = {row[2] for row in TABLE["rows"]}
    assert len(cells) == len(set(cells))
    assert set(cells) == set(product(TABLE["entries"], TABLE["pools"], requests))
    assert {row[3] for row in TABLE["rows"]} == {"allowed", "CG801", "CG832", "CG832+CG801"}
