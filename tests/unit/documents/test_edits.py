"""Documents that change in a file keep its comments, order and form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from compatgate.core.facts.nvidia import Gpus
from compatgate.documents.edits import edit_file, split_documents
from compatgate.documents.sources import Source
from compatgate.documents.specs import TYPES, Document, key_of, to_body
from compatgate.documents.validation import read_documents

FILE = """\
# The fleet. Ask team-gpu before you change it.
apiVersion: compatgate.dev/v1
kind: Target
metadata:
  name: prod   # as in the inventory
  labels: {tier: prod}
spec:
  policy: {mode: enforce, requireEntry: true}
  pools:
    # the first cluster
    - name: a100
      gpu: A100-SXM4-80GB
      driver: "535.183.01"   # frozen until May
      count: 512
    # the second cluster
    - {name: l4, gpu: L4, driver: 550.54.15}
---
# torch, from training
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: torch24}
spec:
  targets: [prod]
  status: blessed     # by suite dl-core
  components:
    pytorch: "~=2.4.0"
    cuda: "12.4.*"    # not 12.5
---
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: other}
spec: {targets: ["*"], components: {cuda: "12.1.*"}, status: candidate}
"""
Change = Callable[[dict[str, Any]], None]


def read(text: str, gpus: Gpus) -> dict[tuple[str, str], Document]:
    return {key_of(one): one for one in read_documents([Source("f", text)], gpus, ["t"])}


def changed(document: Document, change: Change) -> Document:
    body = to_body(document)
    change(body)
    kind = TYPES[body["kind"]]
    return msgspec.convert(body, kind)


@pytest.fixture
def edit(gpus: Gpus) -> Callable[..., str]:
    """Edits one document of the file, and holds the result to it."""

    def run(kind: str, name: str, change: Change) -> str:
        wanted = read(FILE, gpus)
        wanted[kind, name] = changed(wanted[kind, name], change)  # type: ignore[index]
        found = edit_file(Source("f", FILE), wanted, gpus)
        assert found.rewritten == ()
        assert read(found.text, gpus) == wanted
        return found.text

    return run


def test_a_file_that_does_not_differ_keeps_every_byte(gpus: Gpus) -> None:
    assert edit_file(Source("f", FILE), read(FILE, gpus), gpus).text == FILE


def test_a_value_changes_alone(edit: Callable[..., str]) -> None:
    def change(body: dict[str, Any]) -> None:
        body["spec"]["pools"][0]["driver"] = "570.124.06"

    assert edit("Target", "prod", change) == FILE.replace("535.183.01", "570.124.06")


def test_a_component_is_found_by_another_spelling(edit: Callable[..., str]) -> None:
    def change(body: dict[str, Any]) -> None:
        body["spec"]["components"]["torch"] = "~=2.5.0"

    assert edit("Entry", "torch24", change) == FILE.replace("~=2.4.0", "~=2.5.0")


def test_comments_stay_where_pools_and_labels_come_and_go(edit: Callable[..., str]) -> None:
    def change(body: dict[str, Any]) -> None:
        body["spec"]["pools"] = [
            {"name": "h100", "gpu": "H100-SXM5-80GB", "driver": "570.124.06"},
            body["spec"]["pools"][0],
        ]
        body["metadata"]["labels"] = {"tier": "gold"}

    text = edit("Target", "prod", change)
    for comment in ("# The fleet", "# as in the inventory", "# frozen until May", "# not 12.5"):
        assert comment in text
    assert "labels: {tier: gold}" in text


def test_a_document_that_is_gone_takes_only_its_own_text(gpus: Gpus) -> None:
    wanted = read(FILE, gpus)
    del wanted["Entry", "torch24"]
    found = edit_file(Source("f", FILE), wanted, gpus)
    first, second, third = split_documents(FILE) or []
    assert found.text == first + third
    assert "# torch, from training" in second
    assert edit_file(Source("f", FILE), {}, gpus).text == ""


def test_a_list_of_documents_is_written_anew_and_said(gpus: Gpus) -> None:
    text = '[{"apiVersion": "compatgate.dev/v1", "kind": "Entry", "metadata": {"name": "e"},'
    text += ' "spec": {"targets": ["*"], "components": {"cuda": "12.1.*"}, "status": "blessed"}}]'
    wanted = read(text, gpus)
    wanted["Entry", "e"] = changed(
        wanted["Entry", "e"], lambda body: body["spec"].update(status="revoked")
    )
    found = edit_file(Source("f.json", text), wanted, gpus)
    assert found.rewritten == ("Entry e",)
    assert read(found.text, gpus) == wanted


_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "reason": st.text(
            st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40
        ),
        "status": st.sampled_from(["candidate", "blessed", "deprecated", "revoked"]),
        "components": st.dictionaries(
            st.sampled_from(["cuda", "torch", "driver", "nccl"]),
            st.sampled_from(["12.*", ">=2,<3", "==1.0", "12.10"]),
            min_size=1,
        ),
        "gpus": st.lists(st.sampled_from(["L4", "H100-SXM5-80GB"]), unique=True),
        "replacement": st.sampled_from(["torch24", "yes", "# none", "0x10"]),
    },
)


@settings(max_examples=25, phases=[Phase.generate])
@given(one=_VALUES, other=_VALUES)
def test_whatever_changes_the_file_has_the_wanted_documents(
    gpus: Gpus, one: dict[str, Any], other: dict[str, Any]
) -> None:
    wanted = read(FILE, gpus)
    for name, value in (("torch24", one), ("other", other)):
        before = wanted["Entry", name]
        wanted["Entry", name] = changed(before, lambda body, new=value: body["spec"].update(new))  # type: ignore[misc]
    found = edit_file(Source("f", FILE), wanted, gpus)
    assert read(found.text, gpus) == wanted
    assert edit_file(Source("f", found.text), wanted, gpus).text == found.text
    assert "# The fleet" in found.text
