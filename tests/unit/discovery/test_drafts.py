"""Files of other projects as pools: what they tell, and what they do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatgate.core.facts import Facts
from compatgate.discovery.drafts import draft_target, read_drafts
from compatgate.documents.sources import Source
from compatgate.errors import BadInput

FOLDER = Path(__file__).parents[2] / "fixtures" / "neighbours"
PRODUCT = "nvidia.com/gpu.product"
DRIVER = "nvidia.com/cuda.driver-version.full"


def sample(name: str) -> str:
    return (FOLDER / name).read_text()


def read(facts: Facts, *texts: str):
    return read_drafts([(f"file{n}", text) for n, text in enumerate(texts)], facts)


def node(name: str, **labels: str) -> dict:
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}


def nodes(*bodies: dict) -> str:
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": bodies})


GB200 = node("n1", **{PRODUCT: "NVIDIA-GB200", DRIVER: "580.82.07"})


def test_nodes_tell_gpus_and_the_operator_tells_drivers(facts: Facts) -> None:
    h100 = node("n1", **{PRODUCT: "NVIDIA-H100-80GB-HBM3", DRIVER: "570.86.15"})
    l4 = node("n2", **{PRODUCT: "NVIDIA-L4"})
    driver = sample("nvidiadriver.yaml")
    draft = read(facts, nodes(h100, l4), driver)
    assert {pool.driver for pool in draft.pools} == {"570.148.08"}
    assert (
        "NVIDIADriver nvidiadriver-sample declares driver 570.148.08, n1 has 570.86.15"
        in draft.notes
    )


def test_what_the_operator_leaves_open_the_labels_may_tell(facts: Facts) -> None:
    h100 = node("n1", **{PRODUCT: "NVIDIA-H100-80GB-HBM3", DRIVER: "570.86.15"})
    bare = node("n2", **{PRODUCT: "NVIDIA-L4"})
    draft = read(facts, nodes(h100, bare), sample("clusterpolicy.yaml"))
    drivers = {pool.name: pool.driver for pool in draft.pools}
    assert sorted(map(str, drivers.values())) == ["570.86.15", "None"]
    [unknown] = [pool for pool in draft.pools if pool.driver is None]
    assert "operator installs its default" in unknown.why["driver"]


def test_a_selector_names_the_gpu_where_no_node_does(facts: Facts) -> None:
    text = sample("nvidiadriver.yaml").replace(
        "nodeSelector: {}", f"nodeSelector: {{{PRODUCT}: NVIDIA-L4}}"
    )
    [pool] = read(facts, text).pools
    assert (pool.gpu, pool.driver) == ("NVIDIA-L4", "570.148.08")


def test_what_is_stated_decides_and_the_contradiction_is_noted(facts: Facts) -> None:
    draft = read(facts, nodes(GB200))
    filled = draft.filled(facts.gpus, driver="595.91.07", gpu=None)
    assert filled.pools[0].driver == "595.91.07"
    assert "driver: the files say 580.82.07, 595.91.07 is stated" in filled.notes
    with pytest.raises(BadInput):
        draft.filled(facts.gpus, driver="newest")


def test_the_document_is_one_that_import_takes(facts: Facts, gate_documents) -> None:
    draft = read(facts, nodes(GB200))
    [document] = gate_documents(draft_target(draft, "staging", facts.gpus))
    assert document.metadata.name == "staging"
    open_ = read(facts, sample("nvidiadriver.yaml"))
    with pytest.raises(BadInput):
        gate_documents(draft_target(open_, "next", facts.gpus))


@pytest.fixture
def gate_documents(facts: Facts):
    """Read a document as ``matrix import`` does."""
    from compatgate.documents.validation import read_documents

    return lambda body: read_documents([Source("target.json", json.dumps(body))], facts.gpus)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("a: [", "is not YAML"),
        ("- 1", "is not an object"),
        ("a: &x 1\nb: *x", "aliases are not supported"),
        ("[" * 80 + "]" * 80, "contains no objects"),
        ("a:\n" + "".join(f"{' ' * n}b:\n" for n in range(1, 90)), "nested too deeply"),
        ("kind: Pod\napiVersion: v1", "is Pod v1"),
        ("kind: Snapshot\napiVersion: velero.io/v1", "is Snapshot velero.io/v1"),
        ("kind: NodeList\nitems: []", "contains no objects"),
    ],
)
def test_other_texts_are_refused_by_name(facts: Facts, text, problem) -> None:
    with pytest.raises(BadInput, match=problem):
        read(facts, text)


def test_no_driver_at_all_is_an_error_that_says_why(facts: Facts) -> None:
    policy = sample("clusterpolicy.yaml").replace(
        "enabled: true\n    use_ocp", "useNvidiaDriverCRD: true\n    use_ocp"
    )
    with pytest.raises(BadInput, match="none is given"):
        read(facts, policy)
