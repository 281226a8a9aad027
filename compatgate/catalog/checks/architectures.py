"""Toolkits, compute capabilities and GPU products agree."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.core.gpus import normalise
from compatgate.core.versions import show


def series_has_architectures(context: Context) -> Iterator[Problem]:
    """Every toolkit series has a row that says what it can target."""
    table = context.facts.arch
    for series in {toolkit.version.major_minor for toolkit in context.facts.cuda_driver.toolkits}:
        if show(series) not in table.toolkits:
            yield Problem(
                "series-has-architectures",
                f"cuda_arch_support {show(series)}",
                "the toolkit is in cuda_driver and has no row here",
            )


def targets_match_capabilities(context: Context) -> Iterator[Problem]:
    """A toolkit targets a capability exactly from its first to its last toolkit."""
    table = context.facts.arch
    for toolkit in table.toolkits.values():
        for name, fact in table.capabilities.items():
            last = fact.last_toolkit or toolkit.cuda
            expected = fact.first_toolkit <= toolkit.cuda <= last
            if expected != (fact.capability in toolkit.sass):
                yield Problem(
                    "targets-match-capabilities",
                    f"cuda_arch_support {show(toolkit.cuda)} {name}",
                    "listed" if not expected else "not listed",
                )
        for pair in toolkit.sass:
            if show(pair) not in table.capabilities:
                yield Problem(
                    "targets-match-capabilities",
                    f"cuda_arch_support {show(toolkit.cuda)} {show(pair)}",
                    "no fact on this capability",
                )


def target_bounds(context: Context) -> Iterator[Problem]:
    """The lowest and highest target stated are those of the list."""
    for row in context.documents["cuda_arch_support"]["toolkits"]:
        targets = context.facts.arch.toolkits[row["cuda"]].sass
        if (row["sass_min"], row["sass_max"]) != (show(targets[0]), show(targets[-1])):
            yield Problem(
                "target-bounds",
                f"cuda_arch_support {row['cuda']}",
                f"{row['sass_min']} to {row['sass_max']} is not its list",
            )


def tegra_and_families(context: Context) -> Iterator[Problem]:
    """Tegra capabilities and families are capabilities; a Tegra part has no family but itself."""
    table = context.facts.arch
    known = {fact.capability for fact in table.capabilities.values()}
    for pair in (*table.tegra, *(p for family in table.families for p in family)):
        if pair not in known:
            yield Problem("tegra-and-families", show(pair), "no fact on this capability")
    for family in table.families:
        if len(family) > 1 and set(family) & set(table.tegra):
            yield Problem("tegra-and-families", show(family[0]), "a Tegra part shares its family")


def gpu_matches_capability(context: Context) -> Iterator[Problem]:
    """A product's first and last branch and toolkit are those of its capability."""
    table, branches = context.facts.arch, context.facts.driver_branches.branches
    rows = {row["name"]: row for row in context.documents["gpus"]["gpus"]}
    for name, gpu in context.facts.gpus.gpus.items():
        fact = table.capabilities.get(show(gpu.capability))
        if fact is None:
            yield Problem(
                "gpu-matches-capability",
                f"gpus {name}",
                f"nothing is known of capability {show(gpu.capability)}",
            )
            continue
        if gpu.last_branch != fact.last_branch:
            yield Problem(
                "gpu-matches-capability",
                f"gpus {name} last branch",
                f"{gpu.last_branch}, its capability says {fact.last_branch}",
            )
        first = rows.get(name, {}).get("first_toolkit")
        if first and first != show(fact.first_toolkit):
            yield Problem(
                "gpu-matches-capability",
                f"gpus {name} first toolkit",
                f"{first}, its capability says {show(fact.first_toolkit)}",
            )
        expected = [b.branch for b in branches.values() if b.cuda == fact.first_toolkit]
        if gpu.first_branch and expected and gpu.first_branch not in expected:
            yield Problem(
                "gpu-matches-capability",
                f"gpus {name} first branch",
                f"{gpu.first_branch}, CUDA {show(fact.first_toolkit)} came with"
                f" {' or '.join(map(str, expected))}",
            )


def gpu_facts(context: Context) -> Iterator[Problem]:
    """Branches exist, MIG drivers are on parts that have MIG, spellings name one product."""
    branches = context.facts.driver_branches.branches
    for name, gpu in context.facts.gpus.gpus.items():
        for branch in (gpu.first_branch, gpu.last_branch):
            if branch and branch not in branches:
                yield Problem("gpu-facts", f"gpus {name}", f"branch {branch} does not exist")
        if gpu.mig_driver and not gpu.mig_capable:
            yield Problem("gpu-facts", f"gpus {name}", "a MIG driver without MIG")
    named: dict[str, str] = {}
    for row in context.documents["gpus"]["gpus"]:
        for spelling in (row["name"], *(row.get("aliases") or ())):
            first = named.setdefault(normalise(spelling), row["name"])
            if first != row["name"]:
                yield Problem("gpu-facts", f"gpus {spelling}", f"names {first} and {row['name']}")


CHECKS: tuple[Check, ...] = (
    series_has_architectures,
    targets_match_capabilities,
    target_bounds,
    tegra_and_families,
    gpu_matches_capability,
    gpu_facts,
)
