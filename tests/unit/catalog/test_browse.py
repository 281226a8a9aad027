"""Records are found the way people name them."""

from __future__ import annotations

import pytest

from compatgate.catalog import read_source, sources
from compatgate.catalog.browse import find_records, find_source
from compatgate.errors import BadInput


def names(source: str, wanted: str) -> list[str]:
    found = find_records(source, read_source(source, []), wanted)
    key = {"gpus": "name", "cuda_driver": "cuda"}.get(source, "version")
    return [str(record[key]) for records in found.values() for record in records]


def test_a_record_answers_to_its_key() -> None:
    assert names("cuda_driver", "12.4.1") == ["12.4.1"]


def test_a_series_finds_its_releases() -> None:
    assert names("cuda_driver", "12.4") == ["12.4.1", "12.4.0"]


def test_one_field_of_a_key_is_enough() -> None:
    document = read_source("ngc_containers", [])
    for wanted, products in (("24.05", ["paddlepaddle", "mxnet"]), ("24.05 mxnet", ["mxnet"])):
        found = find_records("ngc_containers", document, wanted)["containers"]
        assert [record["product"] for record in found] == products


@pytest.mark.parametrize("spelling", ["A100-SXM4-80GB", "a100 sxm4 80gb", "NVIDIA A100-SXM4-80GB"])
def test_a_gpu_answers_to_every_spelling(spelling: str) -> None:
    assert names("gpus", spelling) == ["A100-SXM4-80GB"]


def test_a_family_finds_its_products() -> None:
    found = names("gpus", "H100")
    assert len(found) > 2
    assert all(name.startswith("H100") for name in found)


def test_an_unknown_record_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"torch has no '2.4.7' \(did you mean 2.4.1"):
        names("frameworks/torch", "2.4.7")


def test_a_framework_names_its_file() -> None:
    assert find_source("torch", sources.names()) == "frameworks/torch"
    assert find_source("pytorch", sources.names()) == "frameworks/torch"
    assert find_source("onnxruntime-gpu", sources.names()) == "frameworks/onnxruntime-gpu"
    assert find_source("gpus", sources.names()) == "gpus"


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean vgpu or gpus"):
        find_source("gpu", sources.names())
    with pytest.raises(BadInput, match="one of compilers, components"):
        find_source("zzzz", sources.names())


def test_peaks_are_found_by_the_gpu_as_gpus_are() -> None:
    peaks = read_source("gpu_peaks", [])
    for wanted in ("a100 sxm4 80gb", "A100-SXM4-80GB"):
        assert [gpu["name"] for gpu in find_records("gpu_peaks", peaks, wanted)["gpus"]] == [
            "A100-SXM4-80GB"
        ]
    assert {gpu["name"] for gpu in find_records("gpu_peaks", peaks, "H200")["gpus"]} == {
        "H200-SXM5",
        "H200-NVL",
    }
