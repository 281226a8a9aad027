"""Export and import are inverse, and differences are told field by field."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.core.facts.nvidia import Gpus
from compatgate.documents.sources import Source, read_paths
from compatgate.documents.specs import (
    Document,
    EntryDoc,
    EntryMetadata,
    EntrySpec,
    compare_documents,
    to_body,
)
from compatgate.documents.text import to_json, to_yaml
from compatgate.documents.validation import read_documents
from compatgate.resources import matrix_dir


@pytest.fixture(scope="module")
def examples(gpus: Gpus) -> list[Document]:
    return read_documents(read_paths([matrix_dir() / "examples"]), gpus)


@pytest.mark.parametrize("write", [to_yaml, to_json])
def test_what_is_exported_is_imported_as_the_same_documents(
    examples: list[Document], gpus: Gpus, write: Callable[..., str]
) -> None:
    text = write(to_body(document) for document in examples)
    assert read_documents([Source("export", text)], gpus) == examples


@given(
    reason=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60),
    version=st.sampled_from(["12.10", "12.4.*", "8907", ">=1,<2", "1e3", "no", "null", "0x10"]),
)
def test_text_of_any_kind_survives_an_export(gpus: Gpus, reason: str, version: str) -> None:
    spec = EntrySpec(("*",), {"vllm": "0.14.*", "cuda": "12.*"}, "blessed", reason, (), version)
    document = EntryDoc("compatgate.dev/v1", EntryMetadata("no"), spec)
    text = to_yaml([to_body(document)])
    assert read_documents([Source("export", text)], gpus) == [document]


def test_a_difference_names_the_field_and_both_values(read: Callable[..., list[Document]]) -> None:
    text = (
        "{apiVersion: compatgate.dev/v1, kind: Target, metadata: {name: t}, spec: {pools: ["
        "{name: a, gpu: L4, driver: '535.183.01'}, {name: b, gpu: L4, driver: '535.183.01'}]}}"
    )
    after = text.replace("{name: a, gpu: L4, driver: '535.183.01'}, ", "").replace("535", "550")
    (change,) = compare_documents(read(text), read(after))
    assert (change.kind, change.name, change.action) == ("Target", "t", "change")
    fields = [(field.path, field.after) for field in change.fields]
    assert fields == [("spec.pools.a", None), ("spec.pools.b.driver", "550.183.01")]


def test_the_order_of_components_is_not_a_difference(
    read: Callable[..., list[Document]], entry: Callable[..., str]
) -> None:
    one = read(entry(components='{cuda: "12.*", torch: "2.*"}'))
    other = read(entry(components='{torch: "2.*", cuda: "12.*"}'))
    assert compare_documents(one, other) == []


def test_made_and_deleted_documents_are_told_targets_first(
    read: Callable[..., list[Document]], entry: Callable[..., str], examples: list[Document]
) -> None:
    changes = compare_documents(read(entry()), examples)
    assert [c.action for c in changes if c.name == "torch24"] == ["delete"]
    kinds = [c.kind for c in changes]
    assert kinds == sorted(kinds, key=["Target", "Entry", "Waiver"].index)
    assert {c.action for c in changes if c.name != "torch24"} == {"create"}
