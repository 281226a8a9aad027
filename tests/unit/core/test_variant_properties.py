"""Variant properties are those on which the pools of a target agree, as real tools read them."""

from __future__ import annotations

import pytest
from variant_wheels import VARIANTS, describe
from variantlib.api import get_variants_by_priority

from compatgate.catalog import load_facts
from compatgate.check.variants import BUNDLE, POOLS, TARGET, VariantProvider
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Pair
from compatgate.core.variant_properties import find_forced_arch, list_all, list_properties
from compatgate.errors import BadInput

PLUGIN = "compatgate.check.variants:VariantProvider"
A100 = "driver=535.104.05,gpu=A100-SXM4-80GB"


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts([])


@pytest.mark.parametrize(
    ("capabilities", "forced", "code"),
    [
        ([(8, 0)], (8, 0), "80_real 80_virtual"),
        ([(8, 0), (8, 9)], (8, 0), "80_real 80_virtual"),
        ([(8, 0), (9, 0)], None, "80_virtual"),
        ([(8, 7)], None, "87_real 80_virtual"),  # no code of an A100 on Jetson Orin
        ([(10, 3)], (10, 3), "103_real 102_real 100_real 100_virtual"),  # 101 is a Tegra part
        ([(9, 0), (10, 0)], None, "90_virtual"),
    ],
)
def test_code_runs_on_every_gpu(
    facts: Facts, capabilities: list[Pair], forced: Pair | None, code: str
) -> None:
    found = list_properties([(12, 4)], capabilities, facts.arch).features["sm_arch"]
    assert (find_forced_arch(capabilities, facts.arch), " ".join(found)) == (forced, code)


def test_bounds_admit_the_oldest_and_the_newest_driver(facts: Facts) -> None:
    found = list_properties([(13, 0), (12, 2)], [(8, 0)], facts.arch).features
    assert found["cuda_version_lower_bound"][:4] == ("12.2", "12.1", "12.0", "12")
    upper = found["cuda_version_upper_bound"]
    assert (upper[0], upper[-1]) == ("15.20", "13.1")
    everything = list_all().features
    assert all(set(values) <= set(everything[name]) for name, values in found.items())


def test_what_is_not_known_is_absent_and_explained(facts: Facts) -> None:
    found = list_properties([], [], facts.arch)
    assert found.features == {}
    assert len(found.missing) == 2


def test_the_reference_library_chooses_by_the_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POOLS, f"{A100}; driver=550.54.15,gpu=L4")
    body = describe(VARIANTS, PLUGIN)
    body["variants"] = {"cu122_sm80": VARIANTS["cu122_sm80"], "cu122_sm90": VARIANTS["cu122_sm90"]}
    found = get_variants_by_priority(variants_json=body)
    assert [variant.label for variant in found] == ["cu122_sm80", "null"]


@pytest.mark.parametrize("set_to", [{}, {POOLS: A100, TARGET: "prod"}])
def test_one_place_is_to_be_named(set_to: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (POOLS, TARGET, BUNDLE):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_to.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match=f"{POOLS}: the environment names"):
        VariantProvider.get_supported_configs()
