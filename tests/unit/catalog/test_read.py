"""Single values of the fact files, as domain experts write them."""

from __future__ import annotations

import pytest

from compatgate.catalog.build import framework, values
from compatgate.catalog.build.nvidia import last_day
from compatgate.core.facts.nvidia import Reference, Source

TOLD = Source("here", None)


@pytest.mark.parametrize(
    ("text", "title", "url"),
    [
        (
            "docs: Support Matrix (9.10.2), https://docs.nvidia.com/x/index.html",
            "Support Matrix (9.10.2)",
            "https://docs.nvidia.com/x/index.html",
        ),
        (
            "NVIDIA guide, Forward Compatibility - https://docs.nvidia.com/f.html",
            "NVIDIA guide, Forward Compatibility",
            "https://docs.nvidia.com/f.html",
        ),
        (
            "pytorch/pytorch PR #175253 (RELEASE.md)",
            "pytorch/pytorch PR #175253 (RELEASE.md)",
            "https://github.com/pytorch/pytorch/pull/175253",
        ),
        (
            "github.com/vllm-project/vllm/pull/47628 (0.24.0 wheels)",
            "github.com/vllm-project/vllm/pull/47628 (0.24.0 wheels)",
            "https://github.com/vllm-project/vllm/pull/47628",
        ),
        (
            "https://docs.vllm.ai/en/v0.4.0",
            "https://docs.vllm.ai/en/v0.4.0",
            "https://docs.vllm.ai/en/v0.4.0",
        ),
        ("package metadata of torch==2.4.1", "package metadata of torch==2.4.1", None),
    ],
)
def test_a_source_has_a_title_and_the_first_address(text: str, title: str, url: str | None) -> None:
    assert values.source(text, confidence="published") == Source(title, url, "published")


def test_several_sources_stay_apart_and_the_first_with_an_address_leads() -> None:
    found = values.source(["one", "two - https://b.example.org/x"], "one", None)
    leads = Source("two", "https://b.example.org/x", "derived", (Reference("one"),))
    assert found == leads
    assert values.source("one; two - https://b.example.org/x") == leads
    assert values.source() == Source("", None, "derived")


def test_semicolons_in_brackets_and_quotations_part_nothing() -> None:
    text = 'values (Linux; Windows) of "a; b"; https://b.example.org/x'
    found = values.source(text)
    assert found.url == "https://b.example.org/x"
    assert found.also == (Reference('values (Linux; Windows) of "a; b"'),)


def test_a_file_of_a_public_repository_has_an_address() -> None:
    found = values.source("carried in astral-sh/uv crates/uv-torch/src/backend.rs")
    assert found.url == "https://github.com/astral-sh/uv/blob/HEAD/crates/uv-torch/src/backend.rs"
    assert values.source("and/or README.txt, see notes").url is None


@pytest.mark.parametrize(
    ("text", "pair"),
    [("12.4", (12, 4)), ("12.4.1", (12, 4)), ("11.2 update 1", (11, 2)), ("12.1u1", (12, 1))],
)
def test_a_cuda_is_read_as_major_and_minor(text: str, pair: tuple[int, int]) -> None:
    assert values.pair(text) == pair


def test_what_is_no_cuda_is_refused() -> None:
    with pytest.raises(ValueError, match="'soon' is not a CUDA version"):
        values.pair("soon")


@pytest.mark.parametrize(
    ("text", "parts"),
    [("580", (580,)), ("r450", (450,)), ("r418.39", (418, 39)), ("525.60.13", (525, 60, 13))],
)
def test_a_branch_alone_means_any_release_of_it(text: str, parts: tuple[int, ...]) -> None:
    assert values.driver(text).parts == parts


@pytest.mark.parametrize(
    ("date", "day"),
    [
        ("2024-02", "2024-02-29"),
        ("2026-02", "2026-02-28"),
        ("2026-06", "2026-06-30"),
        ("2022-11-22", "2022-11-22"),
    ],
)
def test_a_month_stands_for_its_last_day(date: str, day: str) -> None:
    assert last_day(date) == day


class TestPins:
    def test_an_exact_pin_warns_above_and_fails_below(self) -> None:
        pin = framework.read_pins("cudnn", {"spec": "==9.1.0.70"}, TOLD)
        assert (pin.spec, pin.exact, pin.places) == ("==9.1.0.70", True, 3)

    def test_a_range_is_written_with_its_floor_first(self) -> None:
        pin = framework.read_pins("cudnn", {"spec": "<10.0,>=9.8"}, TOLD)
        assert (pin.spec, pin.exact, pin.places) == (">=9.8,<10.0", False, 2)
        assert pin.floor is not None
        assert pin.floor.text == "9.8"

    def test_a_range_without_a_floor_has_none(self) -> None:
        assert framework.read_pins("cudnn", {"spec": "<10"}, TOLD).floor is None

    def test_any_release_of_a_major_has_no_floor_and_may_be_optional(self) -> None:
        pin = framework.read_pins("cudnn", {"spec": "8.*", "optional": True}, TOLD)
        assert (pin.floor, pin.places, pin.same_major, pin.optional) == (None, 1, True, True)
        assert not framework.read_pins("cudnn", {"spec": "8.*"}, TOLD).optional

    def test_an_optional_range_never_fails(self) -> None:
        pin = framework.read_pins("nccl", {"spec": ">=2.9,<2.19", "optional": True}, TOLD)
        assert (pin.spec, pin.optional, pin.same_major) == (">=2.9,<2.19", True, False)
        assert pin.floor is None
