"""The solver finds stacks that pass, the best first, and none that the gate would refuse."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import product
from typing import Any

import pytest

from compatgate.core.candidates import parse_wants
from compatgate.core.constraints import parse_constraint
from compatgate.core.evaluate import assess, evaluate
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build, Framework, Pin, Release
from compatgate.core.facts.nvidia import Source
from compatgate.core.facts.records import Library, PackageRecords, Record
from compatgate.core.matrix import Entry, EntryIndex, Evidence, Matrix, Waiver
from compatgate.core.request import CanaryPolicy, Policy, Pool, Target
from compatgate.core.solve import Problem, Solved, solve
from compatgate.core.stack import parse_stack, parse_stack_text
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

H100, A100 = "driver=580.95.05,gpu=H100-SXM5-80GB", "driver=535.183.01,gpu=A100-SXM4-80GB"
V100 = "driver=535.183.01,gpu=V100-SXM2-16GB"
Ask = Callable[..., Solved]


@pytest.fixture
def find(facts: Facts, pool_of: Callable[..., Pool], now: datetime) -> Ask:
    """Solve for wants on described pools, each a target of its own."""

    def ask(want: str, *pools: str, base: str = "", **options: Any) -> Solved:
        targets = tuple(Target("", (pool_of(pool),)) for pool in pools)
        start = parse_stack(parse_stack_text(base)) if base else None
        problem = Problem(parse_wants([want]), targets, base=start, **options)
        return solve(problem, facts=facts, matrix=Matrix(), now=now)

    return ask


def versions(solved: Solved, name: str) -> list[str]:
    return [solution.stack[name] for solution in solved.solutions]


def test_every_stack_passes_and_its_verdict_is_that_of_the_gate(
    find: Ask, facts: Facts, pool_of: Callable[..., Pool], now: datetime
) -> None:
    for want in ("torch>=2.6,xformers", "vllm", "jax", "tensorflow,python<3.13", "cuda"):
        for solution in find(want, H100, A100).solutions:
            for pool, verdict in zip((H100, A100), solution.verdicts, strict=True):
                target = Target("", (pool_of(pool),))
                again = evaluate(parse_stack(solution.stack), target, facts=facts, now=now)
                assert (again.id, again.verdict in ("pass", "warn")) == (verdict.id, True)


def test_the_newest_comes_first_and_an_older_gpu_gets_an_older_stack(find: Ask) -> None:
    newest, oldest = find("torch", H100), find("torch", V100)
    keys = [parse_version("torch", text).key for text in versions(newest, "torch")]
    assert keys == sorted(keys, reverse=True)
    assert parse_version("torch", versions(oldest, "torch")[0]) < parse_version(
        "torch", versions(newest, "torch")[0]
    )


def test_what_a_package_is_built_on_is_part_of_the_stack(find: Ask) -> None:
    assert versions(find("vllm==0.33.0", H100), "torch")[0].startswith("2.14.0")


def test_few_changes_come_before_new_versions(find: Ask) -> None:
    older = find("torch,xformers", H100).solutions[-1].stack
    base = ",".join(f"{name}={text}" for name, text in older.items())
    found = find("torch", H100, base=base)
    assert found.solutions[0].stack == older
    changed = [{c.name for c in one.changes if c.before} for one in found.solutions]
    follow = {"xformers", "cudnn", "nccl"}
    counts = [len(names - follow if "torch" in names else names) for names in changed]
    assert counts == sorted(counts)
    assert counts[-1] > 0


def test_a_want_without_gpu_code_is_no_reason_for_none(find: Ask) -> None:
    for want in ("torch,numpy", "torch,numpy<2"):
        found = find(want, H100)
        assert found.solutions, want
        assert not found.unknown
    assert versions(find("torch,numpy==1.26.4", H100), "numpy") == ["1.26.4"] * 5
    with pytest.raises(BadInput, match="names no part with GPU code"):
        find("numpy,scipy", H100)


def test_over_several_targets_the_frontier_comes_first(find: Ask) -> None:
    found = find("torch,xformers", H100, A100)
    keys = [
        tuple(parse_version(name, one.stack[name]).key for name in ("torch", "xformers"))
        for one in found.solutions
    ]
    older = [any(a[0] <= b[0] and a[1] <= b[1] and a != b for b in keys) for a in keys]
    assert keys
    assert older == sorted(older)
    assert all(len(one.verdicts) == 2 for one in found.solutions)


def test_nothing_known_and_nothing_that_passes_are_told_apart(find: Ask) -> None:
    assert find("torch>=9", H100).unknown == (
        "no known version of torch meets >=9; the newest that the facts know is 2.15.0",
    )
    assert "; leave it out if it has no GPU code" in find("no-such-thing", H100).unknown[0]
    assert "; did you mean xformers? otherwise leave it" in find("xfromers", H100).unknown[0]
    refused = find("torch>=2.15", V100)
    assert not refused.solutions
    assert "CG405" in {rule for miss in refused.misses for rule in miss.to_json()["rules"]}


def test_a_misspelt_component_is_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(BadInput, match=r"want.torhc: 'torhc' is not a component") as caught:
        parse_wants(["torhc>=2.6"])
    assert caught.value.hint == "did you mean torch?"


def test_stacks_with_warnings_can_be_left_out(find: Ask) -> None:
    found = find("torch", H100, warnings=False)
    assert {verdict.verdict for one in found.solutions for verdict in one.verdicts} == {"pass"}


@pytest.mark.parametrize(
    ("want", "field"),
    [("", "want"), ("torch>=2,torch<3", "want"), (">=2", "want"), ("driver>=535", "want.driver")],
)
def test_malformed_wants_name_their_field(find: Ask, want: str, field: str) -> None:
    with pytest.raises(BadInput) as error:
        find(want, H100)
    assert error.value.field == field


def test_a_target_that_requires_canaries_gets_what_a_run_measured(
    facts: Facts, pool_of: Callable[..., Pool], now: datetime
) -> None:
    pool = pool_of(H100)
    assert pool.gpu
    assert pool.driver
    measured = {"cuda": "13.0", "torch": "2.14.0", "python": "3.12"}
    components = {name: parse_version(name, text) for name, text in measured.items()}
    finished = int(now.timestamp()) - 60
    run = Evidence("run_1", "smoke", pool.gpu.sku, pool.driver, components, "passed", finished)
    policy = Policy(canary=CanaryPolicy(require=True))
    problem = Problem(parse_wants(["torch"]), (Target("t", (pool,), policy),))
    found = solve(problem, facts=facts, matrix=Matrix(evidence=[run]), now=now)
    assert [solution.stack for solution in found.solutions] == [measured]
    assert not solve(problem, facts=facts, matrix=Matrix(), now=now).solutions


# --- against brute force ---------------------------------------------------------------------

SOURCE = Source("a test", None, "published")
CAPABILITIES = [(7, 0), (8, 0), (8, 6), (9, 0)]
GPUS = ["V100-SXM2-16GB", "A100-SXM4-80GB", "L4", "H100-SXM5-80GB"]
CUDAS = [(11, 8), (12, 4), (13, 0)]
PYTHONS = ["3.10", "3.12"]
SEEDS = (*range(int(os.environ.get("COMPATGATE_SOLVE_SEEDS", "40"))), 42, 437)
"""Of random facts; thousands are worth a run once in a while. 42: no CUDA fits the builds of any
stack. 437: a waiver lets a part of the refused stacks pass."""


def small_facts(dice: random.Random, facts: Facts) -> Facts:
    """Return the shipped facts with a few random releases of torch, vLLM and a package."""

    def build(cuda: tuple[int, int], *, default: bool) -> Build:
        sass = tuple(sorted(dice.sample(CAPABILITIES, dice.randint(1, 2))))
        accepts = f"{cuda[0]}.{cuda[1]}.*"
        label = f"cu{cuda[0]}{cuda[1]}"
        return Build(
            cuda, cuda[0], accepts, SOURCE, label=label, default=default, sass=sass, ptx=()
        )

    torch = []
    for text in ("3.0.0", "3.1.0"):
        cudas = dice.sample(CUDAS, dice.randint(1, 2))
        builds = tuple(build(cuda, default=cuda is cudas[0]) for cuda in cudas)
        pythons = tuple(sorted(dice.sample(PYTHONS, dice.randint(1, 2))))
        torch.append(Release(parse_version("torch", text), builds, SOURCE, python=pythons))
    records = []
    for text in ("1.0.0", "1.1.0"):
        code = {f"sm_{a}{b}": 1 for a, b in dice.sample(CAPABILITIES, 2)}
        library = Library("gadget/core.so", sass=code, units=1)
        pin = dice.choice(["torch==3.0.0", "torch==3.1.0", "torch>=3.1", "torch"])
        wheel = f"gadget-{text}-cp310-cp310-manylinux_x86_64.whl"
        records.append(Record("gadget", text, wheel, requires=(pin,), libraries=(library,)))
    pinned = parse_version("torch", dice.choice(["3.0.0", "3.1.0"]))
    pin = Pin("torch", f"=={pinned}", pinned, True, 3, True, SOURCE)
    vllm = Release(
        parse_version("vllm", "5.0.0"),
        (Build((12, 4), 12, "12.*", SOURCE, default=True),),
        SOURCE,
        pins={"torch": pin},
    )
    tables: dict[str, Any] = {
        "framework/torch": Framework("torch", tuple(torch)),
        "framework/vllm": Framework("vllm", (vllm,)),
        "packages/gadget": PackageRecords(tuple(records)),
    }
    return Facts(
        lambda name, kind: tables.get(name) or facts.load(name, kind),
        f"sha256:{dice.random()}",
        frameworks=frozenset(("torch", "vllm")),
        recorded=frozenset(("gadget",)),
    )


def small_matrix(dice: random.Random) -> Matrix:
    """Return a matrix with at most one entry and one waiver."""
    torch = parse_constraint("torch", dice.choice(["==3.0.0", ">=3.1", ">=3"]))
    cuda = parse_constraint("cuda", dice.choice(["12.4.*", ">=12", "11.8.*"]))
    entry = Entry("e", ("t",), {"torch": torch, "cuda": cuda}, "blessed")
    waiver = Waiver(
        "w",
        (dice.choice(["CG405", "CG411", "CG412", "CG801"]),),
        ("t",),
        "me",
        "a test",
        "2030-01-01",
        components={"torch": torch} if dice.random() < 0.5 else {},
    )
    waivers = [waiver] if dice.random() < 0.4 else []
    return Matrix(1, EntryIndex([entry]), waivers)


def every_stack(facts: Facts, wants: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Yield every stack of the small facts that has the wanted parts."""
    table = facts.framework("torch")
    assert table
    torch = [
        (f"{r.version}{label}", b.cuda)
        for r in table.releases
        for b in r.builds
        for label in ({"", f"+{b.label}"} if b.default else {f"+{b.label}"})
    ]
    packages = [v.text for v in facts.recorded_versions("gadget")] if "gadget" in wants else [""]
    for (text, cuda), python, package in product(torch, PYTHONS, packages):
        assert cuda
        body = {"cuda": f"{cuda[0]}.{cuda[1]}", "python": python, "torch": text}
        body |= {"gadget": package} if package else {}
        yield body | ({"vllm": "5.0.0"} if "vllm" in wants else {})


def test_the_solver_finds_a_stack_whenever_brute_force_does(
    facts: Facts, pool_of: Callable[..., Pool], now: datetime
) -> None:
    outcomes = []
    for seed in SEEDS:
        dice = random.Random(seed)
        small, matrix = small_facts(dice, facts), small_matrix(dice)
        pools = [
            pool_of(f"driver={dice.choice(['535.183.01', '580.95.05'])},gpu={gpu}")
            for gpu in dice.sample(GPUS, dice.choice([1, 1, 2]))
        ]
        policy = Policy(require_entry=dice.random() < 0.3)
        targets = tuple(Target("t", (pool,), policy) for pool in pools)
        wants = dice.choice([("torch",), ("torch", "gadget"), ("gadget",), ("vllm",)])
        stacks = list(every_stack(small, wants))
        base = parse_stack(dice.choice(stacks)) if dice.random() < 0.5 else None
        problem = Problem(parse_wants([",".join(wants)]), targets, base=base)
        found = solve(problem, facts=small, matrix=matrix, now=now)

        def passes(body: dict[str, Any]) -> bool:
            stack = parse_stack(body)
            said = [
                assess(stack, one, facts=small, matrix=matrix, now=now, with_fixes=False)  # noqa: B023
                for one in targets  # noqa: B023
            ]
            return all(v.allowed and v.verdict in ("pass", "warn") for v in said)

        assert all(passes(solution.stack) for solution in found.solutions), seed
        expected = any(map(passes, stacks))
        assert bool(found.solutions) is expected, (seed, wants, found)
        assert found.complete
        assert expected or found.misses, seed
        assert not any(passes(miss.stack) for miss in found.misses), seed
        outcomes.append(expected)
    assert 0.2 < sum(outcomes) / len(SEEDS) < 0.8
