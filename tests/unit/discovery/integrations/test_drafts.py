"""Files of other projects as pools: what they tell, and what they do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatgate.core.facts import Facts
from compatgate.discovery.integrations.drafts import draft_target, read_drafts, read_snapshot_pools
from compatgate.documents.sources import Source
from compatgate.errors import BadInput

FOLDER = Path(__file__).parents[3] / "fixtures" / "neighbours"
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


def test_a_snapshot_tells_gpu_and_driver_of_its_node(facts: Facts) -> None:
    draft = read(facts, sample("aicr-snapshot-gb200.yaml"))
    [pool] = draft.pools
    assert (pool.gpu, pool.driver, pool.missing) == ("NVIDIA GB200", "580.82.07", ())
    assert any("first of 4 GPUs" in note for note in draft.notes)
    assert any("MIG" in note for note in draft.notes)


def test_a_snapshot_whose_driver_is_not_the_declared_one_says_so(facts: Facts) -> None:
    text = sample("aicr-snapshot-gb200.yaml").replace(
        "driver.version: 580.82.07", "driver.version: 580.95.05"
    )
    draft = read(facts, text)
    assert draft.pools[0].driver == "580.82.07"
    assert any(note.startswith("ClusterPolicy declares driver 580.95.05") for note in draft.notes)


def test_without_nvidia_smi_the_driver_is_not_known(facts: Facts) -> None:
    [pool] = read(facts, sample("aicr-snapshot-criteria.yaml")).pools
    assert (pool.gpu, pool.missing) == ("h100", ("driver",))
    assert pool.why == {"driver": "nvidia-smi did not answer on the node"}
    [pool] = read(facts, sample("aicr-snapshot-cpu.yaml")).pools
    assert pool.missing == ("gpu", "driver")


def test_cut_off_lists_of_nodes_are_not_counted(facts: Facts) -> None:
    draft = read(facts, sample("aicr-topology.yaml"))
    assert draft.pools[0].missing == ("gpu", "driver")
    assert any("truncated" in note for note in draft.notes)


@pytest.mark.parametrize("lossless", [True, False], ids=["items", "folded"])
def test_whole_lists_of_nodes_give_the_clusters_pools(facts: Facts, lossless) -> None:
    readings = [
        (PRODUCT, "NVIDIA-H100-80GB-HBM3", "n1,n2"),
        (PRODUCT, "NVIDIA-L4", "n3"),
        (DRIVER, "580.82.07", "n1,n2,n3"),
        ("kubernetes.io/arch", "amd64", "n1,n2,n3,cpu1"),
    ]
    items = [{"context": {"key": key, "value": value}, "data": {"node-list": names}}
             for key, value, names in readings]  # fmt: skip
    several = {PRODUCT}
    data = {f"{key}.{value}" if key in several else key: f"{value}|{names}"
            for key, value, names in readings}  # fmt: skip
    subtype = {"subtype": "label", "data": data, **({"items": items} if lossless else {})}
    body = {
        "kind": "Snapshot",
        "apiVersion": "aicr.run/v1",
        "measurements": [{"type": "NodeTopology", "subtypes": [subtype]}],
    }
    draft = read(facts, json.dumps(body))
    assert [(pool.count, pool.driver, pool.cpu) for pool in draft.pools] == [
        (2, "580.82.07", "x86_64"),
        (1, "580.82.07", "x86_64"),
    ]


def test_recipes_say_what_is_meant_and_not_what_they_leave_to_others(facts: Facts) -> None:
    [pool] = read(facts, sample("aicr-recipe-gb200.yaml")).pools
    assert (pool.gpu, pool.missing) == ("gb200", ("driver",))
    assert "components/gpu-operator/values-eks-training.yaml" in pool.why["driver"]
    [pool] = read(facts, sample("aicr-recipe-old.yaml")).pools
    assert (pool.gpu, pool.driver) == ("gb200", "580.82.07")
    text = sample("aicr-recipe-gb200.yaml").replace(
        "kernelModuleConfig:", 'version: "595.91.07"\n        kernelModuleConfig:'
    )
    assert read(facts, text).pools[0].driver == "595.91.07"
    text = sample("aicr-recipe-b200.yaml").replace("accelerator: b200", "accelerator: any")
    assert read(facts, text).pools[0].why["gpu"] == "the recipe is for any accelerator"


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
    draft = read(facts, sample("aicr-snapshot-gb200.yaml"))
    filled = draft.filled(facts.gpus, driver="595.91.07", gpu=None)
    assert filled.pools[0].driver == "595.91.07"
    assert "driver: the files say 580.82.07, 595.91.07 is stated" in filled.notes
    with pytest.raises(BadInput):
        draft.filled(facts.gpus, driver="newest")


def test_the_document_is_one_that_import_takes(facts: Facts, gate_documents) -> None:
    draft = read(facts, sample("aicr-snapshot-gb200.yaml"))
    [document] = gate_documents(draft_target(draft, "staging", facts.gpus))
    assert document.metadata.name == "staging"
    open_ = read(facts, sample("aicr-recipe-gb200.yaml"))
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


def test_a_recipe_beside_something_else_is_refused(facts: Facts) -> None:
    with pytest.raises(BadInput, match="a recipe cannot be combined"):
        read(facts, sample("aicr-recipe-gb200.yaml"), sample("nvidiadriver.yaml"))


def test_no_driver_at_all_is_an_error_that_says_why(facts: Facts) -> None:
    policy = sample("clusterpolicy.yaml").replace(
        "enabled: true\n    use_ocp", "useNvidiaDriverCRD: true\n    use_ocp"
    )
    with pytest.raises(BadInput, match="none is given"):
        read(facts, policy)


def test_a_probe_is_not_taken_for_a_snapshot(facts: Facts) -> None:
    text = (
        '{"compatgate": "probe/v1", "pools": [], "stack": {}, "host": {"notes": ["measurements"]}}'
    )
    assert read_snapshot_pools(text, facts, origin="probe") is None
