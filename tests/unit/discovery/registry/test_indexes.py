"""Which manifests of an index a runtime may choose."""

from __future__ import annotations

import pytest

from compatgate.discovery.registry.image_spec import (
    Descriptor,
    Platform,
    choose_manifests,
    parse_config,
    parse_manifest,
    parse_platform,
)
from compatgate.errors import BadInput, DamagedContent


def descriptors(*texts: str | None) -> list[Descriptor]:
    """Descriptors of ``os/architecture/variant``; None has no platform."""
    return [
        Descriptor(
            f"sha256:{n:064x}", 10, platform=None if text is None else Platform(*text.split("/"))
        )
        for n, text in enumerate(texts)
    ]


def choose(*texts: str | None, wanted: str = "linux/amd64") -> tuple[list[int], int]:
    """Positions of the chosen manifests, and the number of doubts."""
    listed = descriptors(*texts)
    found = choose_manifests(listed, parse_platform(wanted), "image")
    return [listed.index(one) for one in found.descriptors], len(found.open)


@pytest.mark.parametrize(
    ("texts", "chosen"),
    [
        (["linux/amd64"], [0]),
        (["linux/arm64", "linux/amd64", "unknown/unknown"], [1]),
        (["linux/amd64/v3", "linux/amd64"], [1, 0]),
        (["linux/amd64/v1", "linux/amd64"], [0, 1]),
        (["linux/amd64/V2", "Linux/x86_64"], [1, 0]),
        (["linux/amd64/v4"], [0]),
        (["linux/amd64", "linux/amd64"], [0, 1]),
        (["windows/amd64", "linux/amd64"], [1]),
        (["linux/386", "linux/amd64"], [1]),
    ],
)
def test_every_manifest_that_a_node_may_choose_counts(texts, chosen) -> None:
    assert choose(*texts) == (chosen, 0)


@pytest.mark.parametrize(
    ("texts", "chosen"),
    [
        (["linux/arm64/v8", "linux/amd64"], [0]),
        (["linux/arm64", "linux/arm64/v8", "linux/aarch64/8"], [0, 1, 2]),
        (["linux/arm64/v9", "linux/arm64", "linux/arm/v7"], [1, 0]),
    ],
)
def test_arm_has_v8_unless_it_says_otherwise(texts, chosen) -> None:
    assert choose(*texts, wanted="linux/arm64") == (chosen, 0)


def test_a_stated_variant_is_chosen_alone() -> None:
    texts = ["linux/amd64/v3", "linux/amd64", "linux/amd64/v2"]
    assert choose(*texts, wanted="linux/amd64/v3") == ([0], 0)
    assert choose(*texts[1:], wanted="linux/amd64/v3") == ([0, 1], 0)


@pytest.mark.parametrize("vague", [None, "", "linux", "/amd64"])
def test_a_manifest_without_a_whole_platform_is_open_beside_others(vague) -> None:
    assert choose(vague) == ([0], 0)
    assert choose(vague, "linux/amd64") == ([1], 1)
    assert choose("linux/amd64", vague) == ([0], 1)
    assert choose("linux/arm64", vague) == ([1], 1)


def test_the_same_manifest_twice_is_one() -> None:
    (one,) = descriptors("linux/amd64")
    found = choose_manifests([one, one], Platform("linux", "amd64"), "image")
    assert found.descriptors == (one,)


def test_an_index_without_the_platform_names_those_it_has() -> None:
    with pytest.raises(BadInput) as caught:
        choose("linux/arm64/v8", "linux/s390x", "unknown/unknown")
    assert caught.value.hint == "it has linux/arm64, linux/s390x"


MANIFEST = (
    b'{"schemaVersion": 2, "config": {"digest": "sha256:%064d", "size": 1}, "layers": [%s]%s}'
)
LAYER = b'{"digest": "sha256:%064d", "size": 1}' % 1


@pytest.mark.parametrize(
    "manifest",
    [
        MANIFEST % (0, LAYER, b', "Layers": []'),
        MANIFEST % (0, LAYER, b', "layers": []'),
        MANIFEST % (0, LAYER, b', "layer\xc5\xbf": []'),
        MANIFEST % (0, LAYER, b', "CONFIG": {}'),
        MANIFEST % (0, b'{"digest": "sha256:%064d", "size": 1, "Digest": "x"}' % 1, b""),
    ],
)
def test_a_key_that_runtimes_read_otherwise_is_refused(manifest) -> None:
    assert parse_manifest(MANIFEST % (0, LAYER, b""), "", "image")
    with pytest.raises(DamagedContent):
        parse_manifest(manifest, "", "image")


def test_labels_may_differ_in_case_alone() -> None:
    labels = b'{"config": {"Labels": {"os": "a", "OS": "b"}, "Size": 1}, "Size": 3}'
    assert parse_config(labels, "image").config
