"""What the walks share: the fact files as written, and one rule asked about one case."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import ask, facts, gpus, now, pool_of, stack_of  # noqa: F401 - fixtures
from packaging.specifiers import SpecifierSet

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpu
from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import Matrix
from compatgate.core.node import read_node
from compatgate.core.request import Pool, Target
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules import BY_ID
from compatgate.core.stack import parse_stack
from compatgate.core.versions import parse_version

FACTS = Path(__file__).parents[2] / "matrix" / "facts"
WORST = ("fail", "unknown", "warn", "not-checked")
TODAY = "2026-11-21"

Numbers = tuple[int, ...]


@cache
def read_source(name: str) -> dict[str, Any]:
    """A fact file as a domain expert wrote it: read here, not by the adapters under test."""
    loader = type("Loader", (yaml.CSafeLoader,), {})
    loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    document: dict[str, Any] = yaml.load((FACTS / f"{name}.yaml").read_bytes(), loader)
    return document


def read_framework(name: str) -> dict[str, Any]:
    """The file of a framework, likewise."""
    return read_source(f"frameworks/{name}")


def numbers(text: Any) -> Numbers:
    """``535.104.05`` as (535, 104, 5); a branch as r450 is (450,)."""
    return tuple(int(part) for part in str(text).lower().removeprefix("r").split("."))


def as_driver(parts: Numbers) -> str:
    """At least two parts, as a driver is written."""
    return ".".join(f"{part:02d}" for part in (*parts, *(0,) * (2 - len(parts))))


def below(text: Any) -> str:
    """The driver just below: the last part that can be is one less."""
    parts = numbers(text)
    last = max(index for index, part in enumerate(parts) if part)
    return as_driver((*parts[:last], parts[last] - 1, *(999,) * max(1 - last, 0)))


def above(text: Any) -> str:
    """The driver just above."""
    parts = numbers(as_driver(numbers(text)))
    return as_driver((*parts[:-1], parts[-1] + 1))


class Walk:
    """Asks single rules about cases, and collects every answer that is not the expected one."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.wrong: list[str] = []
        self.asked = 0

    read = staticmethod(read_source)
    framework = staticmethod(read_framework)
    numbers = staticmethod(numbers)
    as_driver = staticmethod(as_driver)
    below = staticmethod(below)
    above = staticmethod(above)

    @cache  # noqa: B019 - lives as long as the session
    def gpu(self, name: str) -> Gpu:
        """A GPU by any spelling."""
        return resolve_gpu(name, self.facts.gpus)

    def case(
        self,
        stack: dict[str, Any],
        *,
        driver: str | None = None,
        gpu: str | None = None,
        os: str = "linux",
        cpu: str = "x86_64",
        node: dict[str, str] | None = None,
        today: str = TODAY,
    ) -> RuleContext:
        """A stack on one pool."""
        pool = Pool(
            "pool",
            self.gpu(gpu) if gpu else None,
            parse_version("driver", driver) if driver else None,
            os,  # type: ignore[arg-type]
            cpu,  # type: ignore[arg-type]
            node=read_node(node or {}, "node"),
        )
        target = Target("", (pool,))
        return RuleContext(
            parse_stack(stack), pool, target, self.facts, Matrix(), today=today, now=1_795_000_000.0
        )

    def without_build(self, framework: str, version: str) -> str:
        """What CG401 says of a CUDA without a known build: a complete list alone denies."""
        complete = self.framework(framework).get("complete_builds", ())
        listed = any(SpecifierSet(one["versions"]).contains(version) for one in complete)
        return "fail" if listed else "unknown"

    def says(self, rule: str, stack: dict[str, Any], **pool: Any) -> str:
        """The worst outcome that a rule finds, or ``pass`` or ``not-applicable``."""
        answer = BY_ID[rule].check(self.case(stack, **pool))
        if isinstance(answer, str):
            return answer
        problems = answer if isinstance(answer, Sequence) else (answer,)
        outcomes = {problem.outcome for problem in problems}
        return next((outcome for outcome in WORST if outcome in outcomes), "pass")

    def expect(self, expected: str, rule: str, stack: dict[str, Any], **pool: Any) -> None:
        """Note it when a rule says something else; ``expected`` may name several, ``a|b``."""
        self.asked += 1
        if (said := self.says(rule, stack, **pool)) not in expected.split("|"):
            self.wrong.append(f"{rule} says {said}, not {expected}: {stack} on {pool}")

    def done(self, *, at_least: int = 1) -> None:
        """Fail with everything noted; a walk that asked nothing is no walk."""
        assert self.asked >= at_least, f"only {self.asked} questions were asked"
        if self.wrong:
            shown = "\n".join(self.wrong[:20])
            pytest.fail(f"{len(self.wrong)} of {self.asked} answers:\n{shown}", pytrace=False)


@pytest.fixture
def walk(facts: Facts) -> Walk:
    """A walk over the facts."""
    return Walk(facts)
