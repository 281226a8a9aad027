"""What a pool states of its nodes is read strictly, and comes back in one spelling."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatgate.core.node import NODE_COMPONENTS, parse_node_version, read_node, read_platform
from compatgate.core.parts import NODE, parts_of
from compatgate.core.request import change_pool, change_stack, parse_pool
from compatgate.core.stack import parse_stack
from compatgate.errors import BadInput

SCHEMA = Path(__file__).parents[3] / "matrix/schema/target.schema.json"


def test_a_node_is_read_in_canonical_order_and_spelling():
    node = read_node(
        {"distribution": "Ubuntu-24.04", "kernel-modules": "Open", "secure-boot": True}, "node"
    )
    assert list(node.items()) == [
        ("kernel-modules", "open"),
        ("distribution", "ubuntu-24.04"),
        ("secure-boot", "on"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("kernel-modules", "closed", "one of open, proprietary, nouveau"),
        ("kernel-module", "open", "did you mean kernel-modules?"),
        ("fabric-manager", "newest", "like 580.95.05"),
        ("dcgm", 4.2, "like 4.2.3"),
        ("kernel", "", "like 6.8"),
        ("vbios", "x" * 300, "at most"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(name, value, says):
    with pytest.raises(BadInput) as caught:
        read_node({name: value}, "pool.node")
    assert caught.value.field == f"pool.node.{name}"
    assert says in f"{caught.value.problem} {caught.value.hint}"


def test_versions_of_nodes_compare_by_their_numbers():
    kernel = parse_node_version("6.8.0-45-generic")
    assert kernel.parts == (6, 8, 0, 45)
    assert parse_node_version("6.8.0-9-generic") < kernel < parse_node_version("6.11")
    assert parse_node_version("1.17.4~rc.1") < parse_node_version("1.17.4")
    assert parse_node_version("v25.10.0") > parse_node_version("25.3.4")


def test_a_change_sets_and_removes_parts_of_the_node(facts):
    pool = parse_pool(
        {
            "gpu": "B200",
            "driver": "580.95.05",
            "platform": "AWS/p6-b200",
            "sharing": "mps",
            "node": {"kernel-modules": "proprietary", "kernel": "6.8"},
        },
        facts.gpus,
    )
    assert (pool.platform, pool.sharing) == ("aws/p6-b200", "mps")
    changed = change_pool(
        pool, {"kernel-modules": "open", "kernel": None, "sharing": None}, facts.gpus
    )
    assert changed.node == {"kernel-modules": "open"}
    assert changed.sharing is None
    assert changed.platform == "aws/p6-b200"
    assert parts_of(["kernel-modules", "platform"]) == NODE


def test_a_part_of_the_node_is_no_part_of_a_stack():
    with pytest.raises(BadInput, match="belongs to the nodes of a pool"):
        parse_stack({"cuda": "12.4", "fabric-manager": "580.95.05"})
    with pytest.raises(BadInput, match="name of a platform"):
        read_platform("a/b/c", "platform")


def test_the_schema_of_targets_has_every_part():
    pools = json.loads(SCHEMA.read_text())["properties"]["spec"]["properties"]["pools"]
    known = pools["items"]["properties"]["node"]["properties"]
    assert list(known) == list(NODE_COMPONENTS)
    for name, component in NODE_COMPONENTS.items():
        values = [one for one in known[name].get("enum", ()) if isinstance(one, str)]
        assert tuple(values) == component.choices, name


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"kernel-module": "open"}, "pool.kernel-module", "did you mean node.kernel-modules?"),
        ({"diver": "580.95.05"}, "pool.diver", "did you mean driver?"),
        ({"memory": 80}, "pool.memory", "known: name, driver"),
    ],
)
def test_a_wrong_key_of_a_pool_names_the_right_one(facts, body, field, says):
    with pytest.raises(BadInput) as caught:
        parse_pool({"gpu": "B200", **body}, facts.gpus)
    assert caught.value.field == field
    assert says in caught.value.hint


def test_a_misspelt_change_names_the_part_of_the_node():
    with pytest.raises(BadInput) as caught:
        change_stack(parse_stack({"cuda": "12.8"}), {"kernel-module": "open"})
    assert caught.value.hint == "did you mean kernel-modules?"


def test_a_kernel_may_end_in_a_plus():
    assert read_node({"kernel": "6.1.58+"}, "node") == {"kernel": "6.1.58+"}
    assert parse_node_version("6.1.58+").parts == (6, 1, 58)
