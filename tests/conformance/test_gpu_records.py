"""Every GPU of the shipped table: its names, and the MIG profiles that are published for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables import read_table

from compatgate.catalog import load_facts
from compatgate.core.gpus import mig_profiles, normalise, resolve_gpu

FILE = Path(__file__).parents[2] / "matrix" / "facts" / "gpus.yaml"
RECORDS: list[dict[str, Any]] = read_table(FILE)["gpus"]
GPUS = load_facts(overlays=[]).gpus


class TestTheShippedTable:
    @pytest.mark.parametrize("name", GPUS.gpus)
    def test_a_canonical_name_resolves_to_itself(self, name: str) -> None:
        assert resolve_gpu(name, GPUS) is GPUS.gpus[name]

    @pytest.mark.parametrize(
        ("alias", "name"), [(a, r["name"]) for r in RECORDS for a in r.get("aliases", ())]
    )
    def test_a_printed_name_resolves_to_its_product(self, alias: str, name: str) -> None:
        assert resolve_gpu(alias, GPUS).name == name
        assert resolve_gpu(alias.replace(" ", "-"), GPUS).name == name

    def test_no_two_products_share_a_spelling(self) -> None:
        spelled = [(normalise(r["name"]), r["name"]) for r in RECORDS]
        spelled += [(normalise(a), r["name"]) for r in RECORDS for a in r.get("aliases", ())]
        owners: dict[str, set[str]] = {}
        for spelling, name in spelled:
            owners.setdefault(spelling, set()).add(name)
        assert {s: names for s, names in owners.items() if len(names) > 1} == {}

    def test_names_have_no_character_that_a_label_or_a_resource_name_cannot_have(self) -> None:
        assert all(r["name"].replace("-", "").isalnum() for r in RECORDS)

    def test_every_addition_says_where_it_comes_from(self) -> None:
        for record in RECORDS:
            assert record["source"]
            assert record["confidence"]
            assert ("aliases" in record) == ("aliases_source" in record)
            assert ("mig_profiles" in record) == ("mig_profiles_source" in record)


class TestMigProfiles:
    @pytest.mark.parametrize(
        ("name", "profile"), [(r["name"], p) for r in RECORDS for p in r.get("mig_profiles", ())]
    )
    def test_every_published_profile_is_accepted(self, name: str, profile: str) -> None:
        found = resolve_gpu(f"{name}-MIG-{profile}", GPUS)
        assert (found.name, found.mig) == (name, profile)
        assert resolve_gpu(found.sku, GPUS) == found

    @pytest.mark.parametrize("record", [r for r in RECORDS if r.get("mig_profiles")], ids=str)
    def test_the_profiles_told_from_memory_are_published_ones(self, record: dict[str, Any]) -> None:
        assert set(mig_profiles(GPUS.gpus[record["name"]])) <= set(record["mig_profiles"])
