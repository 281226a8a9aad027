"""From a stack to a spec: only what NFD can see, and never a rule that says nothing."""

from __future__ import annotations

import pytest

from compatgate.core.facts import Facts
from compatgate.core.stack import parse_stack
from compatgate.discovery.integrations.nfd_spec import (
    build_spec,
    load_devices,
    read_spec,
    write_spec,
)
from compatgate.errors import BadInput, InconclusiveInput


def written(facts: Facts, platform: str = "linux/amd64", **stack):
    return build_spec(parse_stack(stack), facts, load_devices(), platform=platform)


def asked(found) -> dict:
    """Of the first rule's GPU."""
    return found.spec.compatibilities[0].rules[0].match_features[0].match_expressions


def test_a_stack_asks_for_a_gpu_of_nvidia_and_its_driver(facts: Facts) -> None:
    found = written(facts, cuda="12.4", torch="2.4.1+cu124")
    assert write_spec(found.spec).startswith("version: v1alpha1\ncompatibilities:\n- rules:\n")
    gpu, module = found.spec.compatibilities[0].rules
    assert {name: one.value for name, one in asked(found).items()} == {
        "vendor": ("10de",),
        "class": ("0300", "0302"),
    }
    assert gpu.name == "NVIDIA GPU"
    assert module.match_features[0].match_expressions["nvidia"].op == "Exists"


def test_gpus_without_code_are_excluded_and_unknown_ones_are_not(facts: Facts) -> None:
    found = written(facts, cuda="12.4", arch=["sm_80", "sm_86"])
    excluded = asked(found)["device"]
    assert excluded.op == "NotIn"
    assert "2330" in excluded.value  # H100
    assert "1db1" in excluded.value  # V100
    assert "20b0" not in excluded.value  # A100
    assert "26b9" not in excluded.value  # L40S: 8.9 runs sm_86
    assert any("another id is not checked" in text for text in found.left_out)


def test_ids_are_texts_to_every_reader_of_yaml(facts: Facts) -> None:
    text = write_spec(written(facts, cuda="12.4", arch=["sm_80"]).spec)
    assert '- "1e38"\n' in text  # a number to Go's reader, were it not quoted
    assert '- "0300"\n' in text


def test_ptx_runs_on_what_is_newer(facts: Facts) -> None:
    excluded = asked(written(facts, cuda="12.4", arch=["compute_80"]))["device"].value
    assert "1db1" in excluded
    assert "2330" not in excluded


def test_code_for_every_known_gpu_excludes_none(facts: Facts) -> None:
    assert "device" not in asked(written(facts, cuda="12.4", arch=["compute_50"]))


def test_what_nfd_cannot_see_is_said_and_not_asked_for(facts: Facts) -> None:
    found = written(facts, cuda="12.4", require=["cuda>=12.4"])
    text = write_spec(found.spec)
    assert "driver: at least 525.60.13 for CUDA 12.4" in found.left_out
    assert "NVIDIA_REQUIRE: cuda>=12.4" in found.left_out
    assert "Not checked by these rules: driver: at least 525.60.13" in text.replace("\n    ", " ")
    assert "local.label" not in text
    assert "matchAny" not in text


def test_an_image_that_was_not_read_whole_excludes_no_gpu(facts: Facts) -> None:
    body = {"cuda": "12.4", "arch": ["sm_80"]}
    found = written(facts, **body, open=["the layers were not read, as requested"])
    assert "device" not in asked(found)
    assert any("not all of the image was read" in text for text in found.left_out)
    assert "device" in asked(written(facts, **body, open=["cudnn: only the major is known"]))


@pytest.mark.parametrize(
    ("stack", "platform", "why"),
    [
        ({"open": ["nothing"]}, "linux/amd64", "no part of the stack needs a GPU"),
        ({"cuda": "12.4"}, "linux/arm64", "may run on Jetson"),
        ({"cuda": "12.4", "arch": ["compute_80"]}, "linux/arm64", "may run on Jetson"),
        ({"cuda": "12.4", "arch": ["sm_87"]}, "linux/amd64", "no GPU with a known PCI id"),
    ],
)
def test_a_spec_that_would_say_nothing_or_lie_is_not_written(
    facts: Facts, stack, platform, why
) -> None:
    with pytest.raises(InconclusiveInput, match=why):
        written(facts, platform, **stack)


def test_code_that_no_jetson_runs_is_told_apart_on_arm(facts: Facts) -> None:
    assert asked(written(facts, "linux/arm64", cuda="12.4", arch=["sm_90"]))["device"].value


def test_a_spec_is_read_as_it_was_written(facts: Facts) -> None:
    spec = written(facts, cuda="12.4", arch=["sm_80"]).spec
    assert read_spec(write_spec(spec)) == spec


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("version: v1", "is not an image-compatibility spec"),
        ("version: v1\ncompatibilities: []", "has version 'v1'"),
        ("version: v1alpha1\ncompatibilities: 3", "is not an image-compatibility spec"),
        (
            "version: v1alpha1\ncompatibilities: [{rules: [{}]}]",
            "is not an image-compatibility spec",
        ),
    ],
)
def test_other_texts_are_refused(text, problem) -> None:
    with pytest.raises(BadInput, match=problem):
        read_spec(text)
