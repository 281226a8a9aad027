"""Where a pod may land, by the nodes that the gate knows: held to the scheduler's predicates."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.documents.convert import to_target
from compatgate.documents.specs import (
    MatchSpec,
    PolicySpec,
    PoolSpec,
    TargetDoc,
    TargetMetadata,
    TargetSpec,
)
from compatgate.service.cluster.landing import KnownNodes, Landing
from compatgate.service.cluster.node_index import KnownNode, NodeIndex, Nodes, Taint
from compatgate.service.cluster.scheduling import landing_nodes

PRODUCT = "nvidia.com/gpu.product"
A100, H100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"
GPU = "nvidia.com/gpu"
RESEARCH = Taint("team", "NoSchedule", "research")


def a_node(name: str, product: str = A100, **of: Any) -> KnownNode:
    """A node as GPU Feature Discovery and the kubelet tell of it."""
    skus = {A100: "A100-SXM4-80GB", H100: "H100-SXM5-80GB", L4: "L4"}
    labels = {PRODUCT: product, "kubernetes.io/hostname": name, **of.pop("labels", {})}
    of.setdefault("gpus", (skus.get(product, product),))
    of.setdefault("driver", "535.183.01")
    return KnownNode(of.pop("cluster", "prod"), name, labels, **of)


def known(
    facts: Facts, nodes: list[KnownNode], targets: dict[str, TargetSpec], **of: Any
) -> KnownNodes:
    documents = {
        name: TargetDoc("compatgate.dev/v1", TargetMetadata(name), spec)
        for name, spec in targets.items()
    }
    resolved = {name: to_target(one, facts.gpus) for name, one in documents.items()}
    return KnownNodes(NodeIndex(nodes), resolved, targets, facts.gpus, **of)


PROD = {
    "a100": TargetSpec(
        (PoolSpec("old", "A100-SXM4-80GB", "535.183.01"),
         PoolSpec("new", "A100-SXM4-80GB", "580.95.05")),
        MatchSpec(("ml-*",), {PRODUCT: A100}),
    ),
    "h100": TargetSpec(
        (PoolSpec("whole", "H100-SXM5-80GB", "580.95.05"),
         PoolSpec("slices", "H100-SXM5-80GB-MIG-1g.10gb", "580.95.05")),
        MatchSpec(("research-*",), {PRODUCT: H100}),
    ),
    "lab": TargetSpec((PoolSpec("l4", "L4", "550.54.15"),), MatchSpec(("lab",), {})),
}  # fmt: skip
NODES = [
    a_node("a1", labels={"zone": "x"}),
    a_node("a2", driver="580.95.05", labels={"zone": "y"}),
    a_node("a3", driver="570.1", labels={"zone": "z"}),
    a_node("h1", H100, driver="580.95.05", labels={"zone": "x"}, taints=(RESEARCH,)),
    a_node("h2", H100, driver="580.95.05", labels={"zone": "m"},
           gpus=("H100-SXM5-80GB", "H100-SXM5-80GB-MIG-1g.10gb"),
           resources=(GPU, "nvidia.com/mig-1g.10gb"), taints=(RESEARCH,)),
    a_node("h3", H100, driver="580.95.05", labels={"zone": "s"},
           gpus=("H100-SXM5-80GB-MIG-1g.10gb",), resources=(GPU,)),
    a_node("l1", L4, target="lab", labels={"zone": "l"}),
    a_node("o1", "NVIDIA-T4", gpus=("T4",), labels={"zone": "o"}),
]  # fmt: skip


def pools(found: Landing, resource: str | None = GPU) -> dict[str, set[str]]:
    return {
        one.target: {pool.name for pool in one.pools if pool.gives(resource)}
        for one in found.targets
        if one.reached
    }


def zone(value: str) -> dict[str, Any]:
    return {"nodeSelector": {"zone": value}}


TOLERANT = {"tolerations": [{"key": "team", "operator": "Exists"}]}
SLICE = "nvidia.com/mig-1g.10gb"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
BY_FIELD = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a2"]}]}
CASES: list[tuple[str, dict[str, Any], str | None, dict[str, set[str]]]] = [
    ("a label that no target states", zone("x"), GPU, {"a100": {"old"}}),
    ("the driver tells pools apart", zone("y"), GPU, {"a100": {"new"}}),
    ("a driver that no pool declares: each of its GPU", zone("z"), GPU, {"a100": {"old", "new"}}),
    ("a taint keeps it away", zone("m"), GPU, {}),
    ("unless it is tolerated", {**zone("m"), **TOLERANT}, GPU, {"h100": {"whole"}}),
    ("two targets", {**zone("x"), **TOLERANT}, GPU, {"a100": {"old"}, "h100": {"whole"}}),
    ("a slice of a mixed node", {**zone("m"), **TOLERANT}, SLICE, {"h100": {"slices"}}),
    ("a slice handed out as a GPU", zone("s"), GPU, {"h100": {"slices"}}),
    ("a resource that the node does not hand out", zone("s"), SLICE, {}),
    ("a request past the scheduler", zone("s"), None, {"h100": {"slices"}}),
    ("the annotation of a node names its target", zone("l"), GPU, {"lab": {"l4"}}),
    ("nodes of no target", zone("o"), GPU, {}),
    ("a zone that is not there", zone("q"), GPU, {}),
    ("a node by name, whatever its taints", {"nodeName": "h1"}, GPU, {"h100": {"whole"}}),
    ("a node by field",
     {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [BY_FIELD]}}}},
     GPU, {"a100": {"new"}}),
    ("a label that reports leave out",
     {"nodeSelector": {"zone": "y", "beta.kubernetes.io/os": "x"}}, GPU, {"a100": {"new"}}),
]  # fmt: skip


def test_known_nodes_tell_the_pools(facts: Facts) -> None:
    nodes = known(facts, NODES, PROD)
    for name, spec, resource, expected in CASES:
        requested = [resource] if resource else []
        found = nodes.landing("elsewhere", spec, requested, ())
        assert pools(found, resource) == expected, name


def test_of_targets_with_the_same_nodes_those_of_the_namespace_count(facts: Facts) -> None:
    pool = (PoolSpec("p", "A100-SXM4-80GB", "535.183.01"),)
    shared = {
        "strict": TargetSpec(pool, MatchSpec(("ml-*",), {PRODUCT: A100})),
        "lax": TargetSpec(pool, MatchSpec(("dev-*",), {PRODUCT: A100})),
        "zoned": TargetSpec(pool, MatchSpec((), {PRODUCT: A100, "zone": "x"})),
    }
    nodes = known(facts, NODES[:3], shared)
    anywhere = {"nodeSelector": {PRODUCT: A100}}
    for namespace, spec, expected in [
        ("ml-a", anywhere, {"strict", "zoned"}),
        ("dev-a", anywhere, {"lax", "zoned"}),
        ("else", zone("x"), {"zoned"}),
        ("else", zone("y"), {"strict", "lax"}),
    ]:
        assert set(nodes.landing(namespace, spec, [GPU], ()).reached) == expected


def test_nodes_of_other_clusters_do_not_widen_where_a_pod_may_land(facts: Facts) -> None:
    far = [*NODES, a_node("b1", H100, cluster="far", driver="580.95.05")]
    everywhere = TOLERANT
    several = known(facts, far, PROD)
    assert several.landing("ml-a", everywhere, [GPU], ("a100",)).reached == ("a100",)
    one = known(facts, far, PROD, cluster="prod")
    assert set(one.landing("ml-a", everywhere, [GPU], ()).reached) == {"a100", "h100", "lab"}
    assert known(facts, far, PROD, cluster="far").landing("ml-a", {}, [GPU], ()).reached == (
        "h100",
    )


def host(name: str) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": name}}


def test_a_pod_that_names_assigned_nodes_can_mean_no_other(facts: Facts) -> None:
    nodes = known(facts, [*NODES, a_node("a9", assigned="lab", labels={"zone": "x"})], PROD)
    assert nodes.landing("x", host("a9"), [GPU], ()).is_certain
    assert nodes.landing("x", host("a9"), [GPU], ()).reached == ("lab",)
    assert not nodes.landing("x", host("a1"), [GPU], ()).is_certain
    seen = known(facts, [a_node("a1", assigned=""), *NODES[1:]], PROD)
    assert seen.landing("x", host("a1"), [GPU], ()).is_certain
    assert seen.landing("x", host("a1"), [GPU], ()).reached == ("a100",)
    assert not nodes.landing("x", zone("x"), [GPU], ()).is_certain
    assert not nodes.landing("x", host("new"), [], ()).is_certain


@pytest.mark.parametrize("namespace", ["ml-a", "lab", "elsewhere"])
@pytest.mark.parametrize("clusters", [("prod",), ("prod", "far")])
@pytest.mark.parametrize("node", ["a1", "ghost"])
def test_a_report_adds_a_target_and_takes_none_away(
    facts: Facts, namespace: str, clusters: tuple[str, ...], node: str
) -> None:
    """A known node is reported for another target, or an invented one is, in any cluster."""
    lax = TargetSpec((PoolSpec("l4", "L4", "550.54.15"),), MatchSpec((), {"team": "lab"}))
    targets = {**PROD, "lax": lax}
    others = [one for one in NODES if one.name != node]
    for target, cluster in itertools.product(("lab", "lax"), clusters):
        reported = a_node(node, target=target, cluster=cluster)
        far = [a_node("f1", L4, cluster=name) for name in clusters]
        found = known(facts, [*others, reported, *far], targets)
        spec = {"nodeSelector": {PRODUCT: A100, **host(node)["nodeSelector"]}}
        assert {"a100", target} <= set(found.landing(namespace, spec, [GPU], ()).reached)
        assert "a100" in found.landing(namespace, {"nodeName": node}, [GPU], ()).reached


def policed(mode: Any, match: dict[str, str], **policy: Any) -> TargetSpec:
    pool = (PoolSpec("p", "A100-SXM4-80GB", "535.183.01"),)
    return TargetSpec(pool, MatchSpec((), match), PolicySpec(mode, **policy))


LAXER = [
    policed("audit", {PRODUCT: A100, "zone": "x"}, require_entry=True),
    policed("enforce", {PRODUCT: A100, "zone": "x"}),
    policed("enforce", {PRODUCT: A100, "zone": "x"}, require_entry=True, on_unknown="allow"),
    policed("enforce", {PRODUCT: A100, "zone": "x"}, require_entry=True, stated_stacks="accept"),
]


def test_nodes_stay_with_a_target_that_is_stricter_than_one_that_states_more(facts: Facts) -> None:
    generic = {PRODUCT: A100}
    prod = policed("enforce", generic, require_entry=True, stated_stacks="ignore")
    equal = replace(prod, match=MatchSpec((), {PRODUCT: A100, "zone": "x"}))
    assert equal.policy == prod.policy
    for other, reached in ((equal, {"more"}), *((one, {"prod", "more"}) for one in LAXER)):
        nodes = known(facts, NODES[:3], {"prod": prod, "more": other})
        for spec in (zone("x"), host("a1")):
            landing = nodes.landing("any", spec, [GPU], ())
            assert set(landing.reached) == reached, other.policy
        assert nodes.landing("any", zone("y"), [GPU], ()).reached == ("prod",)
    named = known(facts, NODES[:3], {"prod": prod, "more": equal}).landing("x", host("a1"), [], ())
    assert named.displaced == ("prod",)


def test_nodes_that_change_and_go_leave_the_index(facts: Facts) -> None:
    index = NodeIndex(NODES)
    selected = landing_nodes(index, zone("x"), ())
    assert _names(index, selected) == {"a1"}
    index.replace([a_node("a1", labels={"zone": "new"})], [("prod", "h3")])
    assert _names(index, landing_nodes(index, zone("x"), ())) == set()
    assert _names(index, landing_nodes(index, zone("new"), ())) == {"a1"}
    assert _names(index, landing_nodes(index, zone("s"), ())) == set()
    assert len(index) == len(NODES) - 1
    assert index.clusters == {"prod": 7}


def test_a_node_with_more_labels_than_are_known_may_have_any(facts: Facts) -> None:
    index = NodeIndex([a_node("a1", is_cut=True), a_node("a2")])
    assert _names(index, landing_nodes(index, zone("x"), ())) == {"a1"}
    assert _names(index, landing_nodes(index, {"nodeSelector": {PRODUCT: L4}}, ())) == set()


@pytest.mark.parametrize("seed", range(4))
def test_a_selection_is_that_of_the_schedulers_predicates(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [_random_node(chance, number) for number in range(150)]
    index = NodeIndex(nodes[:100])
    index.replace(nodes[100:])
    for _ in range(300):
        spec = _random_pod(chance)
        expected = {node.name for node in nodes if _admits(node, spec)}
        assert _names(index, landing_nodes(index, spec, ())) == expected, spec


def _names(index: NodeIndex, nodes: Nodes) -> set[str]:
    return {name for _, name in sorted(index.keys()) if index.with_fact("name", name) & nodes}


KEYS, VALUES = ("a", "b", "c"), ("1", "2", "3", "x")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
TAINTS = [Taint(*one) for one in itertools.product("tu", EFFECTS, "vw")]


def _random_node(chance: random.Random, number: int) -> KnownNode:
    labels = {key: chance.choice(VALUES) for key in KEYS if chance.random() < 0.7}
    taints = tuple(chance.sample(TAINTS, chance.choice((0, 0, 1, 2))))
    return KnownNode("c", f"n{number}", labels, taints=taints)


def _random_pod(chance: random.Random) -> dict[str, Any]:
    def expression() -> dict[str, Any]:
        operator = chance.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        some = {"In": 2, "NotIn": 2, "Gt": 1, "Lt": 1}.get(operator, 0)
        values = [chance.choice(VALUES[:3] if some == 1 else VALUES) for _ in range(some)]
        return {"key": chance.choice(KEYS), "operator": operator, "values": values}

    spec: dict[str, Any] = {}
    if chance.random() < 0.4:
        spec["nodeSelector"] = {chance.choice(KEYS): chance.choice(VALUES)}
    if chance.random() < 0.7:
        terms = [
            {"matchExpressions": [expression() for _ in range(chance.choice((1, 2)))]}
            for _ in range(chance.choice((1, 2)))
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    spec["tolerations"] = [
        chance.choice([
            {"operator": "Exists"}, {"key": "t", "operator": "Exists"},
            {"key": "t", "operator": "Equal", "value": "v"}, {"key": "u", "value": "w"},
            {"key": "u", "operator": "Exists", "effect": "NoSchedule"},
        ])
        for _ in range(chance.choice((0, 1, 2)))
    ]  # fmt: skip
    return spec


def _admits(node: KnownNode, spec: dict[str, Any]) -> bool:
    """The scheduler's predicates, node by node: NodeAffinity and TaintToleration."""
    if any(node.labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = [term for one in required.values() for term in one["nodeSelectorTerms"]]
    if terms and not any(
        all(_holds(node.labels, one) for one in term["matchExpressions"]) for term in terms
    ):
        return False
    return all(
        any(_tolerates(one, taint) for one in spec["tolerations"])
        for taint in node.taints
        if taint.effect != "PreferNoSchedule"
    )


def _holds(labels: Any, expression: dict[str, Any]) -> bool:
    have, values = labels.get(expression["key"]), expression["values"]
    match expression["operator"]:
        case "In":
            return have in values
        case "NotIn":
            return have not in values
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
    if have is None or not have.isdigit():
        return False
    bound = int(values[0])
    return int(have) > bound if expression["operator"] == "Gt" else int(have) < bound


def _tolerates(one: dict[str, Any], taint: Taint) -> bool:
    if one.get("effect", taint.effect) != taint.effect or one.get("key", taint.key) != taint.key:
        return False
    return one.get("operator", "Equal") == "Exists" or one.get("value", "") == taint.value
