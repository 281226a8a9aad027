"""What is signed: in-toto's own library and the published schema take it for what it is."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as Message
from jsonschema import Draft202012Validator

from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.resources import matrix_dir
from compatgate.service.audit.statement import (
    PREDICATE_TYPE,
    stack_digest,
    stated_digest,
)

from .conftest import DIGEST, IMAGE, NOW

READ = {"image": IMAGE, "basis": "image"}
SCHEMA = json.loads((matrix_dir() / "schema" / "verdict-attestation.schema.json").read_text())


def parsed(statement: dict[str, Any]) -> Any:
    """The statement as in-toto's library reads it."""
    message = ParseDict(statement, Message())
    Statement.copy_from_pb(message).validate()
    return message


@pytest.mark.parametrize("changes", [{}, READ, {"image": IMAGE}], ids=["stack", "read", "label"])
def test_in_totos_library_and_the_schema_accept_it(statement: Any, changes: Any) -> None:
    made = statement(**changes)
    message = parsed(made)
    assert message.predicate_type == PREDICATE_TYPE == SCHEMA["$id"]
    assert not list(Draft202012Validator(SCHEMA).iter_errors(made["predicate"]))
    assert set(SCHEMA["required"]) == set(made["predicate"]) == set(SCHEMA["properties"])


def test_an_image_that_the_gate_read_is_the_subject(statement: Any) -> None:
    made = statement(**READ)
    assert made["subject"] == [
        {"name": "registry.example:5000/team/app", "digest": {"sha256": DIGEST}}
    ]
    assert made["predicate"]["image"]["read"] is True


@pytest.mark.parametrize("image", [IMAGE, "app:1", "not a reference", None])
def test_what_was_only_stated_says_nothing_about_an_image(statement: Any, image: Any) -> None:
    made = statement(image=image)
    (subject,) = made["subject"]
    assert subject["name"] == "stack"
    assert DIGEST not in str(subject)
    assert image is None or made["predicate"]["image"]["read"] is False


def test_a_stacks_digest_is_that_of_its_canonical_form(statement: Any) -> None:
    form = '{"arch":["sm_80","sm_90"],"cuda":"12.4","cudnn":"9.1.0"}'
    digest = {"sha256": hashlib.sha256(form.encode()).hexdigest()}
    assert statement()["subject"][0]["digest"] == digest
    assert (
        stated_digest({"libcudnn9": "9.1.0", "arch": ["sm_80", "sm_90"], "cuda": "12.4"}) == digest
    )
    remarks = {"open": ["x"], "unread": ["y"], "conflicts": ["z"]}
    assert stack_digest({"cuda": "12.4", **remarks}) == stack_digest({"cuda": "12.4"})


def test_cuda_of_a_frameworks_label_is_part_of_the_stack() -> None:
    assert stated_digest({"torch": "2.4.1+cu124"}) == stated_digest(
        {"torch": "2.4.1+cu124", "cuda": "12.4"}
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"basis": "what-if"}, "what-if"),
        ({"basis": None}, "before the gate stored"),
        ({"basis": "anything"}, "what-if"),
    ],
)
def test_what_cannot_be_vouched_for_is_refused(about: Any, changes: Any, why: str) -> None:
    with pytest.raises(Conflict, match=why):
        about(**changes)


def test_a_waiver_for_an_image_that_was_not_read_is_not_vouched_for(about: Any) -> None:
    waived = {
        "rule": "CG801", "name": "not-blessed", "outcome": "waived", "component": "stack",
        "pools": ["a"], "message": "m", "have": None, "need": None, "source": None, "fixes": [],
    }  # fmt: skip
    with pytest.raises(Conflict, match="waiver"):
        about(findings=[waived], image=IMAGE)
    assert about(findings=[waived], **READ)
    assert about(findings=[waived])


def test_a_verdict_about_some_pools_is_not_vouched_for_as_one_about_the_target(about: Any) -> None:
    some = {
        "rule": "CG833", "name": "some-pools", "outcome": "not-checked", "component": "pool",
        "pools": ["a"], "message": "m", "have": None, "need": None, "source": None, "fixes": [],
    }  # fmt: skip
    with pytest.raises(Conflict, match="some pools of the target"):
        about(findings=[some])


def test_it_counts_from_when_it_was_last_said(about: Any) -> None:
    later = NOW + timedelta(days=1)
    predicate = about(confirmed=later).predicate
    assert (predicate.decided_at, predicate.confirmed_at) == (NOW, later)
    assert predicate.valid_until == later + timedelta(days=7)
    future = clock.now() + timedelta(days=30)
    assert about(confirmed=future).predicate.confirmed_at <= clock.now()


@pytest.mark.parametrize("until", ["2026-11-23", "2026-11-23T00:00:00+00:00"])
def test_a_date_that_it_rests_on_ends_it_earlier(about: Any, until: str) -> None:
    assert about(valid_until=until).predicate.valid_until == datetime.fromisoformat(
        "2026-11-23T00:00:00+00:00"
    )
    assert about(valid_until="2027-11-23").predicate.valid_until == NOW + timedelta(days=7)


def test_the_stored_verdict_is_named_by_its_digest(stored: Any, about: Any) -> None:
    inputs = {one.name: one.digest["sha256"] for one in about().predicate.inputs}
    assert inputs["verdict"] == hashlib.sha256(stored().encode()).hexdigest()
    assert set(inputs) == {"verdict", "stack", "pools", "facts"}
