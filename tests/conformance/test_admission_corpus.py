"""What published manifests ask for: no GPU is missed, and no pool is wrong.

The rows of the corpus are held to a small implementation of the scheduler's predicates that shares
no code with the gate, over a fleet whose nodes are reported to a gate as usual.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scheduler import REQUIRED, fits
from tables import read_table

from compatgate.core.facts import Facts
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.cluster.admission import AdmissionOptions, placement_matrix
from compatgate.service.cluster.claims import read_claims
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.cluster.matching import find_pods
from compatgate.service.cluster.pods import gpu_containers
from compatgate.service.cluster.questions import make_questions
from compatgate.service.gate.questions.service import make_gate
from compatgate.web.app import create_app
from compatgate.web.service import Settings

FOLDER = Path(__file__).with_name("admission")
FLEET: list[dict[str, Any]] = read_table(FOLDER / "fleet.yaml")
CORPUS: dict[str, Any] = read_table(FOLDER / "corpus.yaml")
ROWS: list[dict[str, Any]] = CORPUS["rows"]
KINDS = load_kinds()
NAMESPACE = "ml"
DRIVER = "580.95.05"
HANDED_OUT = {resource for node in FLEET for resource in node["hands"]}
PERMISSIVE = {"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause"}


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Iterator[Rooms]:
    """A gate with one target of all pools, to which the fleet was reported."""
    database = Database.open(str(tmp_path_factory.mktemp("corpus") / "gate.db"))
    tables.prepare_schema(database)
    rooms = Rooms(make_gate(database, facts))
    pools = [
        {"name": name, "gpu": gpu, "driver": DRIVER}
        for name, gpu in {node["pool"]: node["gpu"] for node in FLEET}.items()
    ]
    match = {"namespaces": ["*"], "nodeLabels": {"example.com/fleet": "yes"}}
    target = {"metadata": {"name": "fleet"}, "spec": {"pools": pools, "match": match}}
    rooms.matrix.create("Target", target, Authorship("tester", "for the corpus"))
    options = AdmissionOptions(KINDS)
    settings = Settings(anonymous=frozenset({"admin"}), overlays=(), admission=options)
    nodes = [reported(node) for node in FLEET]
    client = create_app(rooms, settings).test_client()
    answer = client.post("/api/v1/nodes", json={"cluster": "one", "nodes": nodes})
    assert answer.status_code == 200, answer.text
    yield rooms
    rooms.close()


def reported(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": node["name"],
        "labels": {
            **node["labels"],
            "kubernetes.io/hostname": node["name"],
            "example.com/fleet": "yes",
        },
        "taints": node.get("taints", []),
        "allocatable": dict.fromkeys(node["hands"], 8),
        "probe": {"driver": DRIVER, "gpus": [{"gpu": node["gpu"], "count": 8}]},
    }


def at(value: Any, path: str) -> Any:
    """Return what is at ``spec.roles[0].template``."""
    for name in path.replace("[", ".[").split("."):
        value = value[int(name[1:-1])] if name.startswith("[") else value[name]
    return value


def manifest(row: dict[str, Any]) -> dict[str, Any]:
    """The object of a row; the image of each container with a GPU is its path."""
    version, _, kind = row["kind"].partition(" ")
    document = {"apiVersion": version, "kind": kind, **copy.deepcopy(row["object"])}
    for path in row["gpus"]:
        at(document, path)["image"] = path
    return document


def claims_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The claim templates, and the compute domain, of the file of a row."""
    found: list[dict[str, Any]] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": [
                {"name": request, "exactly": {"deviceClassName": of}}
                for request, of in requests.items()
            ]}}},
        }
        for name, requests in row.get("claims", {}).items()
    ]  # fmt: skip
    if "domain" in row:
        channel = {"resourceClaimTemplate": {"name": row["domain"]}}
        kind = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain"}
        found.append({**kind, "spec": {"channel": channel}})
    return found


def expected_by_predicates(row: dict[str, Any], path: str) -> set[str]:
    document = manifest(row)
    container = at(document, path)
    where = row.get("pods", {}).get(path) or path.rpartition(".")[0]
    stated = container.get("resources") or container.get("resourcesPerNode") or {}
    requested = {name for part in ("limits", "requests") for name in stated.get(part, {})}
    needs = {row["needs"][path]} if path in row.get("needs", {}) else requested & HANDED_OUT
    requested |= needs if requested else set()  # an operator writes the whole name into the pod
    own = "." not in path.removeprefix("spec") or path.endswith(".spec")
    pod = container if own and "pods" not in row else at(document, where)
    return {node["pool"] for node in FLEET if fits(pod, needs, node, requested)}


def pools_of_questions(rooms: Rooms, document: dict[str, Any], claims: Any) -> dict[str, set[str]]:
    """Return the pools on which a gate judges each image of an object; a finding says its rule."""
    snapshot = rooms.gate.snapshot()
    known = placement_matrix(snapshot, rooms.nodes.inventory.known(snapshot))
    group, _, _ = document["apiVersion"].rpartition("/")
    kind = KINDS.of(group, document["kind"])
    assert kind, document["kind"]
    asked = make_questions(document, kind, NAMESPACE, KINDS, lambda: known, claims).asked
    every = {pool.name for pool in known.targets["fleet"].pools}
    found: dict[str, set[str]] = {}
    for question in asked:
        pools = set(question.body.get("pools", every))
        pools = {question.finding.rule} if question.finding else pools
        found.setdefault(question.image, set()).update(pools)
    return found


def test_the_corpus_is_large_and_may_be_kept() -> None:
    assert len(ROWS) >= 60
    assert len({row["project"] for row in ROWS}) >= 10
    assert len({(row["project"], row["file"]) for row in ROWS}) == len(ROWS)
    assert {one["licence"] for one in CORPUS["projects"].values()} <= PERMISSIVE
    assert {row["project"] for row in ROWS} == set(CORPUS["projects"])


def test_each_gpu_of_the_corpus_is_found_and_nothing_else() -> None:
    wrong = {}
    for row in ROWS:
        document = manifest(row)
        kind = KINDS.of(document["apiVersion"].rpartition("/")[0], document["kind"])
        assert kind, row["kind"]
        known = read_claims(claims_of(row), NAMESPACE)
        pods = find_pods(document, kind, KINDS).pods
        found = {one.path for pod in pods for one in gpu_containers(pod, KINDS, known)}
        if found != set(row["gpus"]):
            wrong[row["project"], row["file"]] = found
    assert wrong == {}


def test_the_rows_agree_with_the_predicates_of_the_scheduler() -> None:
    wrong = {}
    for row in ROWS:
        for path, name in row["gpus"].items():
            expected = expected_by_predicates(row, path)
            if expected != set(CORPUS["sets"][name]):
                wrong[row["project"], row["file"], path] = expected
    assert wrong == {}


def test_each_pod_of_the_corpus_is_judged_on_the_pools_that_it_may_land_on(rooms: Rooms) -> None:
    wrong = {}
    for row in ROWS:
        known = read_claims(claims_of(row), NAMESPACE)
        found = pools_of_questions(rooms, manifest(row), known)
        expected = {path: set(CORPUS["sets"][name]) for path, name in row["gpus"].items()}
        if found != expected:
            wrong[row["project"], row["file"]] = (found, expected)
    assert wrong == {}


KEYS = ["cloud.google.com/gke-accelerator", "example.com/generation", "nvidia.com/mig.strategy"]
VALUES = ["nvidia-l4", "nvidia-b200", "8", "9", "mixed", "single"]
OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


def drawn_pod(draw: random.Random) -> tuple[dict[str, Any], str]:
    """A pod with any of the operators, and the resource that it requests."""

    def requirement() -> dict[str, Any]:
        operator = draw.choice(OPERATORS)
        values = [draw.choice(VALUES) for _ in range(draw.randint(1, 3))]
        if operator in ("Gt", "Lt"):
            values = [str(draw.randint(6, 10))]
        stated = {} if operator in ("Exists", "DoesNotExist") else {"values": values}
        return {"key": draw.choice(KEYS), "operator": operator, **stated}

    def term() -> dict[str, Any]:
        names = [node["name"] for node in draw.sample(FLEET, 3)]
        field = {"key": "metadata.name", "operator": draw.choice(["In", "NotIn"]), "values": names}
        fields = {"matchFields": [field]} if draw.random() < 0.2 else {}
        return {"matchExpressions": [requirement() for _ in range(draw.randint(0, 2))], **fields}

    def toleration() -> dict[str, Any]:
        key = draw.choice(["nvidia.com/gpu", "ray.io/node-type", "other", ""])
        value = draw.choice(["present", "worker", ""])
        operator = draw.choice(["Exists", "Equal"]) if key else "Exists"
        effect = draw.choice(["NoSchedule", "NoExecute", ""])
        stated = {"value": value} if operator == "Equal" else {}
        return {"key": key, "operator": operator, "effect": effect, **stated}

    pod: dict[str, Any] = {"tolerations": [toleration() for _ in range(draw.randint(0, 2))]}
    if draw.random() < 0.3:
        node = draw.choice(FLEET)
        pod["nodeSelector"] = (
            dict(draw.sample(sorted(node["labels"].items()), 1)) if node["labels"] else {}
        )
    if draw.random() < 0.7:
        terms = {"nodeSelectorTerms": [term() for _ in range(draw.randint(1, 3))]}
        pod["affinity"] = {"nodeAffinity": {REQUIRED: terms}}
    resource = draw.choice([*sorted(HANDED_OUT), "nvidia.com/gpu", "nvidia.com/gpu"])
    pod["containers"] = [{"name": "a", "image": "a", "resources": {"limits": {resource: "1"}}}]
    return pod, resource


def test_drawn_pods_are_judged_on_the_pools_that_the_scheduler_would_choose(rooms: Rooms) -> None:
    draw, wrong, landed = random.Random(19), [], 0
    for _ in range(600):
        pod, resource = drawn_pod(draw)
        expected = {n["pool"] for n in FLEET if fits(pod, {resource}, n, {resource})}
        if not expected:
            continue  # nothing to judge; what the gate says then is in pools.yaml
        landed += 1
        document = {"apiVersion": "v1", "kind": "Pod", "spec": pod}
        found = pools_of_questions(rooms, document, {})
        if found != {"a": expected}:
            wrong.append((pod, found, expected))
    assert landed > 150
    assert wrong == []
