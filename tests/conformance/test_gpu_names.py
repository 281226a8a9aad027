"""Every spelling in ``gpu_names.yaml`` means what it says there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables import read_table

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.errors import BadInput

TABLE = read_table(Path(__file__).with_name("gpu_names.yaml"))


def rows(section: str) -> list[Any]:
    return [
        pytest.param(row, spelling, id=spelling or repr(spelling))
        for row in TABLE[section]
        for spelling in row["spellings"]
    ]


@pytest.mark.parametrize(("row", "spelling"), rows("products"))
def test_a_spelling_names_one_product(row: dict[str, Any], spelling: str, gpus: Gpus) -> None:
    found = resolve_gpu(spelling, gpus)
    assert found.sku == row["sku"]
    assert found is gpus.gpus[row["sku"]]
    assert "{}.{}".format(*found.capability) == row["capability"]


@pytest.mark.parametrize(("row", "spelling"), rows("families"))
def test_a_spelling_names_a_family(row: dict[str, Any], spelling: str, gpus: Gpus) -> None:
    found = resolve_gpu(spelling, gpus)
    assert found.name == row["name"]
    assert found.product
    assert found.memory_gb == row["memory_gb"]
    assert "{}.{}".format(*found.capability) == row["capability"]


@pytest.mark.parametrize(("row", "spelling"), rows("mig"))
def test_a_spelling_names_a_slice(row: dict[str, Any], spelling: str, gpus: Gpus) -> None:
    found = resolve_gpu(spelling, gpus)
    assert found.sku == row["sku"]
    assert found.mig is not None
    assert row.get("memory_gb") in (None, found.memory_gb)


@pytest.mark.parametrize(("row", "spelling"), rows("capabilities"))
def test_a_spelling_names_a_capability(row: dict[str, Any], spelling: str, gpus: Gpus) -> None:
    found = resolve_gpu(spelling, gpus)
    assert (found.name, found.architecture) == (row["name"], row["architecture"])
    assert "{}.{}".format(*found.capability) == row["capability"]
    assert not found.product


@pytest.mark.parametrize(("row", "spelling"), rows("errors"))
def test_a_spelling_is_refused_with_what_to_write(
    row: dict[str, Any], spelling: str, gpus: Gpus
) -> None:
    with pytest.raises(BadInput) as caught:
        resolve_gpu(spelling, gpus)
    assert (caught.value.field, caught.value.value) == ("gpu", spelling)
    for part in row["says"]:
        assert part in caught.value.detail


def test_the_table_has_at_least_150_spellings() -> None:
    assert sum(len(row["spellings"]) for section in TABLE.values() for row in section) >= 150
