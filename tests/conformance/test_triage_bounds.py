"""A bound that triage names is a fact that check reads: none stands in the texts alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from compatgate.catalog import load_facts
from compatgate.core.facts import Facts
from compatgate.core.facts.errors import Cause
from compatgate.core.versions import format_parts

BOUND = re.compile(r"\d+(?:\.\d+)+|(?<=branch )\d{3}|GLIBC_[\d.]+")


def _computes(name: str) -> Callable[[Facts], str]:
    return lambda facts: facts.precision.computing(name)[0]


def _above_issue(number: str) -> Callable[[Facts], str]:
    """Return the lowest capability that has no row of an issue."""

    def read(facts: Facts) -> str:
        issue = next(one for one in facts.known_issues.issues if one.id == number)
        known = sorted(one.capability for one in facts.arch.capabilities.values())
        return format_parts(next(one for one in known if one > max(issue.capabilities)))

    return read


def _first_with_standard(name: int) -> Callable[[Facts], str]:
    def read(facts: Facts) -> str:
        with_it = [one.cuda for one in facts.compilers.standards if name in one.accepts]
        return min(re.findall(r"\d+\.\d+", " ".join(str(one) for one in with_it)), key=float)

    return read


FACTS: dict[tuple[str, str], Callable[[Facts], str]] = {
    ("gpu-lacks-feature", "8.0"): _computes("bf16"),
    ("gpu-lacks-feature", "8.9"): _computes("fp8"),
    ("cublas-not-supported", "8.0"): _computes("bf16"),
    ("triton-gpu-too-old", "7.0"): _above_issue("KI-0046"),
    ("cxx-standard", "11.0"): _first_with_standard(17),
    ("cxx-standard", "12.0"): _first_with_standard(20),
}
"""The fact of each bound, by cause."""
OUTSIDE = {
    ("container-cgroup-devices", "1.8.0"): "a pool does not say which version of cgroups it has",
    ("mkl-mismatch", "2024.1"): "no part of the GPU's stack",
    ("mkl-mismatch", "2024.0"): "no part of the GPU's stack",
}
"""Bounds that no question states, and why."""


def bounds(cause: Cause) -> set[tuple[str, str]]:
    """Return the bounds in a cause's texts."""
    return {
        (cause.id, found)
        for text in (cause.means, cause.next, *cause.fixes)
        for found in BOUND.findall(text)
    }


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts(overlays=[])


def test_every_bound_of_a_cause_is_listed(facts: Facts) -> None:
    named = {bound for cause in facts.error_signatures.causes for bound in bounds(cause)}
    assert named == FACTS.keys() | OUTSIDE.keys()


@pytest.mark.parametrize("bound", FACTS, ids="-".join)
def test_a_bound_is_the_fact_that_check_reads(bound: tuple[str, str], facts: Facts) -> None:
    assert FACTS[bound](facts) == bound[1]


def test_attention_of_the_causes_is_that_of_the_packages(facts: Facts) -> None:
    newest = facts.statements("flash-attn")[0]
    assert newest.least_capability == (8, 0)
    assert _computes("bf16")(facts) == "8.0"


def test_a_newer_branch_never_has_an_older_cuda(facts: Facts) -> None:
    """CG202 denies a driver by the CUDA of a newer branch, which is certain while this holds."""
    branches = facts.driver_branches.branches.values()
    published = sorted((one.branch, one.cuda) for one in branches if one.cuda)
    assert [cuda for _, cuda in published] == sorted(cuda for _, cuda in published)
