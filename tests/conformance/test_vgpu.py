"""Every published boundary of vGPU software and of shared GPUs, and machines that were seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import WORST, Walk
from tables import read_table

from compatgate.check.question import read_pool
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import Matrix
from compatgate.core.request import Pool, Target, parse_pool
from compatgate.core.rule import Verdict
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules import BY_ID
from compatgate.core.stack import parse_stack
from compatgate.discovery.node_labels import group_nodes, read_nodes
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import Pools, group_pools

HERE = Path(__file__).parent
MACHINES: dict[str, dict[str, Any]] = read_table(HERE / "vgpu_machines.yaml")
CASES: list[dict[str, Any]] = read_table(HERE / "vgpu_cases.yaml")
TEXTS = HERE.parent / "fixtures" / "vgpu"
STACK = {"cuda": "11.4"}
PLAIN = parse_stack(STACK)

Said = Callable[..., str]


@pytest.fixture(scope="module")
def says(facts: Facts) -> Said:
    """Say the worst outcome of a rule on a described pool."""

    def said(rule: str, pool: Pool | dict[str, Any], needs: str = "") -> str:
        asked = pool if isinstance(pool, Pool) else parse_pool(pool, facts.gpus)
        stack = parse_stack({**STACK, "needs": needs}) if needs else PLAIN
        context = RuleContext(
            stack, asked, Target("", (asked,)), facts, Matrix(), today="2026-11-21", now=1.8e9
        )
        answer = BY_ID[rule].answer(context)
        if isinstance(answer, str):
            return answer
        outcomes = {problem.outcome for problem in answer}
        return next((one for one in WORST if one in outcomes), "pass")

    return said


def test_machines_with_vgpus_are_read_as_what_they_are(facts: Facts) -> None:
    assert {path.name for path in TEXTS.iterdir()} == set(MACHINES)
    for name, expected in MACHINES.items():
        text = (TEXTS / name).read_text()
        found: Any
        if name.startswith("labels-"):
            found = group_nodes(read_nodes(text), facts)
        else:
            found = group_pools(parse_nvidia_smi(text), facts.gpus)
        assert sorted(_lines(found, facts)) == sorted(expected["pools"]), name
        assert bool(found.notes) == ("note" in expected), (name, found.notes)
        assert expected.get("note", "") in " ".join(found.notes), name
        assert len({pool.name for pool in found.pools}) == len(found.pools), name


def _lines(found: Pools, facts: Facts) -> Iterator[str]:
    for seen in found.pools:
        body = seen.to_body()
        pool = parse_pool(body, facts.gpus)
        parts = (
            pool.gpu.sku if pool.gpu else None,
            pool.driver.text if pool.driver else None,
            pool.platform,
            pool.node.get("vgpu-manager"),
        )
        yield " ".join(part or "-" for part in parts)


def test_cases_come_out_as_published(says: Said, ask: Callable[..., Verdict]) -> None:
    for case in CASES:
        pool = read_pool(case["pool"])
        assert says(case["rule"], pool, case.get("needs", "")) == case["says"], case
        if "fix" in case:
            stack = {**STACK, "needs": case["needs"]} if "needs" in case else STACK
            findings = ask(pool, stack).findings
            offered = [f.set for one in findings if one.rule == case["rule"] for f in one.fixes]
            assert case["fix"] in offered, (case, offered)


def test_each_pair_of_host_and_guest_release_is_judged_by_its_window(
    says: Said, walk: Walk
) -> None:
    document = walk.read("vgpu")
    windows = {row["host"]: row for row in document["windows"]}
    releases = [r for r in document["releases"] if r["host"] and r["guest_linux"]]
    asked = 0
    for host in releases:
        for guest in releases:
            pool = {
                "driver": guest["guest_linux"],
                "gpu": "NVIDIA A40-48Q",
                "node": {"vgpu-manager": host["host"]},
            }
            expected = _expected(_major(host), _major(guest), windows)
            assert says("CG135", pool) == expected, (host["release"], guest["release"])
            asked += 1
    assert asked > 3000


def _major(release: dict[str, Any]) -> int:
    return int(release["release"].split(".")[0])


def _expected(host: int, guest: int, windows: dict[int, dict[str, Any]]) -> str:
    window = windows.get(host)
    if guest == host or (window and guest in window["guests"]):
        return "pass"
    if guest > host:
        return "fail"
    if window and guest in (window["accepts"] or ()):
        return "warn"
    return "fail" if window and guest < window["lowest"] else "unknown"


def test_each_driver_of_a_release_is_a_guest_driver(says: Said, walk: Walk) -> None:
    document = walk.read("vgpu")
    drivers = [(r["guest_linux"], "linux") for r in document["releases"]]
    drivers += [(r["guest_windows"], "windows") for r in document["releases"]]
    drivers += [(row["driver"], row.get("os", "linux")) for row in document["clouds"]]
    stated = [(driver, system) for driver, system in drivers if driver]
    assert len(stated) > 140
    for driver, system in stated:
        pool = {"driver": driver, "gpu": "GRID T4-8C", "os": system}
        assert says("CG136", pool) == "pass", (driver, system)


def test_each_type_is_known_to_the_branches_that_name_it(says: Said, walk: Walk) -> None:
    document = walk.read("vgpu")
    newest = {
        int(r["guest_linux"].split(".")[0]): r["guest_linux"]
        for r in document["releases"]
        if r["guest_linux"] and r["host"]
    }
    branches = sorted({branch for row in document["types"] for branch in row["branches"]})
    for row in document["types"]:
        series = next(iter(row["memory_gb"]))
        gpu = f"{row['prefix']}-{row['memory_gb'][series][-1]}{series}"
        other = "unknown" if row["confidence"] == "derived" else "fail"
        for branch in branches:
            expected = "pass" if branch in row["branches"] else other
            pool = {"driver": newest[branch], "gpu": gpu}
            assert says("CG137", pool) == expected, (gpu, branch)
        for first in row.get("since", {}).values():
            assert says("CG137", {"driver": first, "gpu": gpu}) == "pass", (gpu, first)
            earlier = {"driver": walk.below(first), "gpu": gpu}
            assert says("CG137", earlier) == "unknown", (gpu, first)


def test_each_name_is_a_sku_of_its_product_with_its_memory(
    says: Said, walk: Walk, facts: Facts
) -> None:
    names = 0
    for row in walk.read("vgpu")["types"]:
        for series, sizes in row["memory_gb"].items():
            for size in sizes:
                ending = f"{size}{series}"
                for spelling in (f"NVIDIA {row['prefix']}", f"grid-{row['prefix']}"):
                    gpu = resolve_gpu(f"{spelling}-{ending}", facts.gpus)
                    assert gpu.sku == f"{row['prefix'].replace(' ', '-')}-{ending}"
                    assert resolve_gpu(gpu.sku, facts.gpus) == gpu
                    assert (gpu.memory_gb or 0) == size
                    assert gpu.name == (row["product"] or row["prefix"])
                runs = ending in row["cuda_only"] if "cuda_only" in row else series in ("C", "Q")
                expected = "pass" if runs else "fail"
                assert says("CG142", {"driver": "535.309.01", "gpu": gpu.sku}) == expected, gpu.sku
                names += 1
        for ending in row.get("mig_backed", ()):
            gpu = resolve_gpu(f"NVIDIA {row['prefix']}-{ending}", facts.gpus)
            assert gpu.mig is None
            assert gpu.vgpu
    assert names > 800
