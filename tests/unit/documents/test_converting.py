"""Documents into what the rules read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.documents.convert import to_entry, to_target, to_waiver
from compatgate.documents.quantities import parse_duration
from compatgate.documents.specs import Document, EntryDoc, TargetDoc, WaiverDoc
from compatgate.errors import BadInput

Read = Callable[..., list[Document]]


def test_a_target_has_its_pools_resolved(read: Read, gpus: Gpus) -> None:
    (document,) = read(
        """
        apiVersion: compatgate.dev/v1
        kind: Target
        metadata: {name: t}
        spec:
          pools:
            - {name: slice, gpu: NVIDIA H100 80GB HBM3 MIG 1g.10gb, driver: "550.54.15", count: 3}
          policy: {mode: warn, canary: {require: true, maxAge: 12h, suites: [a, b]}}
        """
    )
    assert isinstance(document, TargetDoc)
    target = to_target(document, gpus)
    (pool,) = target.pools
    assert pool.gpu is not None
    assert pool.gpu.sku == "H100-SXM5-80GB-MIG-1g.10gb"
    assert pool.driver is not None
    assert pool.driver.text == "550.54.15"
    assert (target.policy.mode, target.policy.canary.max_age_s) == ("warn", 12 * 3600)
    assert target.policy.canary.suites == ("a", "b")


def test_an_entry_has_its_constraints_parsed_and_knows_its_revision(
    read: Read, gpus: Gpus, entry: Callable[..., str]
) -> None:
    (document,) = read(entry(components='{driver: ">=535,<536", torch: "~=2.4.0"}'))
    assert isinstance(document, EntryDoc)
    found = to_entry(document, gpus, 7)
    assert found.revision == 7
    assert [len(c.clauses) for c in found.components.values()] == [2, 1]


def test_a_family_of_gpus_stands_for_its_members(
    read: Read, gpus: Gpus, entry: Callable[..., str]
) -> None:
    (document,) = read(entry(gpus="[A100]"))
    assert isinstance(document, EntryDoc)
    meant = to_entry(document, gpus, 1).gpus
    assert "A100-SXM4-80GB" in meant
    assert "A100-PCIe-40GB" in meant
    assert not any(name.startswith("H100") for name in meant)


def test_a_slice_is_named_by_product_and_profile_however_they_are_spelled(
    read: Read, gpus: Gpus, entry: Callable[..., str]
) -> None:
    (document,) = read(
        entry(gpus='["NVIDIA A100-SXM4-80GB MIG 1g.10gb", "H100 80GB HBM3 1g.10gb"]')
    )
    assert isinstance(document, EntryDoc)
    assert to_entry(document, gpus, 1).gpus == (
        "A100-SXM4-80GB-MIG-1g.10gb",
        "H100-SXM5-80GB-MIG-1g.10gb",
    )


def test_a_slice_of_a_family_stands_for_that_slice_of_its_members(
    read: Read, gpus: Gpus, entry: Callable[..., str]
) -> None:
    (document,) = read(entry(gpus='["A100 1g.10gb"]'))
    assert isinstance(document, EntryDoc)
    meant = to_entry(document, gpus, 1).gpus
    assert "A100-SXM4-80GB-MIG-1g.10gb" in meant
    assert all(name.endswith("-MIG-1g.10gb") for name in meant)


@pytest.mark.parametrize(
    ("name", "named", "others"),
    [
        ("A100-SXM4-80GB", {"A100-SXM4-80GB"}, {"A100-SXM4-80GB 1g.10gb", "A100-PCIe-80GB"}),
        (
            "A100-SXM4-80GB/mig-1g.10gb",
            {"A100-SXM4-80GB 1g.10gb"},
            {"A100-SXM4-80GB", "A100-SXM4-80GB 2g.20gb", "A100-SXM4-80GB 1g.10gb+me"},
        ),
        (
            "A100-SXM4-80GB/mig-*",
            {"A100-SXM4-80GB 1g.10gb", "A100-SXM4-80GB 1g.10gb+me", "A100-SXM4-80GB 7g.80gb"},
            {"A100-SXM4-80GB", "A100-PCIe-80GB 1g.10gb", "A100-SXM4-40GB 1g.5gb"},
        ),
        (
            "A100/MIG-*",
            {"A100-SXM4-80GB 1g.10gb", "A100-SXM4-40GB 1g.5gb"},
            {"A100-SXM4-80GB", "A100", "H100-SXM5-80GB 1g.10gb"},
        ),
    ],
)
def test_an_entry_names_whole_gpus_a_slice_or_every_slice(
    read: Read,
    gpus: Gpus,
    entry: Callable[..., str],
    name: str,
    named: set[str],
    others: set[str],
) -> None:
    (document,) = read(entry(gpus=f'["{name}"]'))
    assert isinstance(document, EntryDoc)
    assert document.spec.gpus == (name,)
    found = to_entry(document, gpus, 1)
    assert {one for one in named | others if found.names(resolve_gpu(one, gpus))} == named
    assert not found.names(None)


def test_a_product_of_gpus_stands_for_itself(
    read: Read, gpus: Gpus, entry: Callable[..., str]
) -> None:
    (document,) = read(entry(gpus='[a100 sxm4 80gb, "NVIDIA L4"]'))
    assert isinstance(document, EntryDoc)
    assert to_entry(document, gpus, 1).gpus == ("A100-SXM4-80GB", "L4")


def test_a_waiver_carries_its_match(read: Read) -> None:
    (document,) = read(
        """
        apiVersion: compatgate.dev/v1
        kind: Waiver
        metadata: {name: w}
        spec:
          rules: [CG803]
          targets: ["*"]
          match: {image: "x/*", components: {cudnn: "8.9.*"}}
          owner: me
          reason: because
          expires: 2027-01-31
        """
    )
    assert isinstance(document, WaiverDoc)
    waiver = to_waiver(document)
    assert (waiver.image, waiver.expires, list(waiver.components)) == (
        "x/*",
        "2027-01-31",
        ["cudnn"],
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, meant: timedelta) -> None:
    assert parse_duration(text) == meant


@pytest.mark.parametrize("text", ["", "0d", "-1d", "1", "d", "1 d", "1y", "1.5h", "1d\n", "١d"])
def test_anything_else_is_not_a_duration(text: str) -> None:
    with pytest.raises(BadInput, match="not a duration"):
        parse_duration(text)
