"""No failure domain ever has two drivers: domains, their order, and the waves."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compatgate.core.compare.waves import CLIQUE, PlannedNode, order_upgrade
from compatgate.core.request import Pool

LEAF = "network.topology.nvidia.com/leaf"
NEW = "580.95.05"
H100, GB200 = Pool("h100", None, None), Pool("gb200", None, None)


def node(name: str, pool: str | None = "h100", driver: str = "535.1", **labels: str) -> PlannedNode:
    keys = {"clique": CLIQUE, "leaf": LEAF, "rack": "example.com/rack"}
    return PlannedNode(name, pool, driver, {keys[k]: v for k, v in labels.items()})


def test_cliques_of_one_nvlink_domain_and_nodes_of_one_rack_go_together() -> None:
    nodes = [
        node("a", clique="uuid-1.0"),
        node("b", clique="uuid-1.7"),
        node("c", leaf="s1"),
        node("d", leaf="s1", clique="uuid-1.7"),
        node("e"),
    ]
    order = order_upgrade([H100], nodes, NEW, {}, {})
    domains = [domain for wave in order.waves for domain in wave.domains]
    assert [(d.kind, d.name, d.nodes) for d in domains] == [
        ("node", "e", ("e",)),
        ("nvlink", "uuid-1", ("a", "b", "c", "d")),
    ]


def test_a_rack_label_of_the_operator_is_used() -> None:
    nodes = [node("a", rack="r1"), node("b", rack="r1"), node("c", leaf="s1"), node("d", leaf="s1")]
    order = order_upgrade([H100], nodes, NEW, {}, {}, ("example.com/rack",))
    domains = {d.name: d.nodes for wave in order.waves for d in wave.domains}
    assert domains == {"r1": ("a", "b"), "c": ("c",), "d": ("d",)}


def test_multi_node_nvlink_without_a_label_is_one_domain(pool_of: Callable[[str], Pool]) -> None:
    pool = replace(pool_of("driver=580.65.06,gpu=GB200"), name="gb200")
    order = order_upgrade([pool], [node("a", "gb200"), node("b", "gb200")], NEW, {}, {})
    assert [d.kind for wave in order.waves for d in wave.domains] == ["pool"]
    assert any("no label names the NVLink domain" in remark for remark in order.remarks)


def test_a_domain_that_has_begun_comes_first_and_one_that_is_done_not_at_all() -> None:
    nodes = [
        node("a", leaf="s1"),
        node("b", leaf="s2"),
        node("c", leaf="s2", driver=NEW),
        node("d", leaf="s3", driver=NEW),
    ]
    order = order_upgrade([H100], nodes, NEW, {}, {})
    domains = [domain for wave in order.waves for domain in wave.domains]
    assert [(d.name, d.done) for d in domains] == [("s2", 1), ("s1", 0)]
    assert domains[0].mixed == ("535.1", NEW)
    assert "1 node has the driver already" in order.remarks


def test_a_domain_with_a_node_of_a_held_pool_is_held() -> None:
    pools = [H100, replace(H100, name="v100")]
    nodes = [node("a", leaf="s1"), node("b", "v100", leaf="s1"), node("c"), node("x", None)]
    order = order_upgrade(pools, nodes, NEW, {"v100": "CG105"}, {})
    assert [d.nodes for wave in order.waves for d in wave.domains] == [("c",)]
    assert order.left == 3
    assert [row.held for row in order.pools] == [None, "CG105"]


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 4), st.sampled_from(["535.1", NEW])),
        max_size=60,
    )
)
def test_every_domain_is_in_one_wave_and_the_first_wave_is_one_domain(
    drawn: list[tuple[int, int, str]],
) -> None:
    nodes = [
        node(f"n{number}", driver=driver, leaf=f"s{leaf}", **({"clique": f"u{c}.1"} if c else {}))
        for number, (leaf, c, driver) in enumerate(drawn)
    ]
    order = order_upgrade([H100], nodes, NEW, {}, {})
    wave_of = {name: wave.number for wave in order.waves for d in wave.domains for name in d.nodes}
    for label in (CLIQUE, LEAF):
        for value in {n.labels[label] for n in nodes if label in n.labels}:
            alike = {wave_of.get(n.name) for n in nodes if n.labels.get(label) == value}
            assert len(alike) == 1
    if order.waves:
        assert len(order.waves[0].domains) == 1
    assert len(wave_of) == sum(wave.nodes for wave in order.waves)
    left = [n for n in nodes if n.name not in wave_of]
    assert all(n.driver == NEW for n in left)
