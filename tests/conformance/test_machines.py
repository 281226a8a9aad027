"""What real machines print is read as the right pools: GPUs, driver, platform, node."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tables import read_table

from compatgate.catalog import load_facts
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.core.node import read_node
from compatgate.discovery.machine import observe_machine
from compatgate.discovery.node_labels import label_platform, read_nodes
from compatgate.discovery.observations import ObservedPool
from compatgate.discovery.platforms import read_label_parts
from compatgate.discovery.probe import Probe, probe_labels, probe_output
from compatgate.errors import BadInput

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures" / "nvidia_smi"
MACHINES: list[dict[str, Any]] = read_table(HERE / "machines.yaml")
EXPECTED: dict[str, Any] = read_table(FIXTURES / "expected.yaml")


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts([])


def pools_of(pools: tuple[ObservedPool, ...], facts: Facts) -> dict[str, int]:
    found: Counter[str] = Counter()
    for pool in pools:
        try:
            name = resolve_gpu(pool.gpu, facts.gpus).sku
        except BadInput:  # a GPU that is older than the facts keeps its printed name
            name = pool.gpu
        found[name] += pool.devices
    return dict(found)


def check_probe(machine: dict[str, Any], found: Probe, facts: Facts) -> None:
    assert pools_of(found.pools, facts) == machine["pools"]
    assert {pool.driver for pool in found.pools} == {machine.get("driver")}
    assert {pool.os for pool in found.pools} == {machine.get("os", "linux")}
    assert {pool.platform for pool in found.pools} == {machine.get("platform")}
    node = read_node(machine["node"], "node")
    assert [dict(pool.node) for pool in found.pools] == [node] * len(found.pools)
    assert list(found.host["node"]) == list(node)
    notes = "; ".join(found.host["notes"])
    assert machine.get("note", "") in notes
    assert bool(notes) is ("note" in machine) or "sm_" in str(machine["pools"])


def check_machine(machine: dict[str, Any], facts: Facts, root: Path) -> None:
    if text := machine.get("smi"):
        check_probe(machine, probe_output(text, facts), facts)
    elif text := machine.get("labels"):
        if "pools" in machine:
            check_probe(machine, probe_labels(text, facts), facts)
        (node,) = read_nodes(text)
        assert label_platform(node.labels, None, facts) == machine["platform"]
        assert read_label_parts(node.labels) == machine["node"]
    else:
        folder = root / "sys/class/dmi/id"
        folder.mkdir(parents=True)
        for name, value in machine["dmi"].items():
            (folder / name).write_text(f"{value}\n")
        found = observe_machine(facts, [], root=str(root), run=lambda _: None)
        assert (found.platform, found.node) == (machine["platform"], {})


def test_every_machine_is_read_as_its_report_says(facts: Facts, tmp_path: Path) -> None:
    wrong = {}
    for number, machine in enumerate(MACHINES):
        assert machine["source"].startswith("https://"), machine["name"]
        try:
            check_machine(machine, facts, tmp_path / str(number))
        except Exception as error:
            wrong[machine["name"]] = f"{type(error).__name__}: {error}"
    assert wrong == {}


def test_at_least_forty_machines_are_read() -> None:
    """Count those of this file, and the outputs of tests/fixtures that hold a pool."""
    outputs = [name for name, one in EXPECTED.items() if "pools" in one]
    assert len({machine["name"] for machine in MACHINES}) == len(MACHINES)
    assert len(MACHINES) + len(outputs) >= 40


def test_a_platform_of_the_facts_has_one_spelling(facts: Facts) -> None:
    names = {machine.platform for machine in facts.platform_machines.machines}
    assert len({name.replace("-", "").replace("/", "") for name in names}) == len(names)
