"""What the database has of a verdict: a packed row can be read by every later version."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import zstandard

from compatgate.core.performance import sha256
from compatgate.core.rule import Verdict
from compatgate.errors import DamagedContent, Unavailable
from compatgate.service.gate.decisions.batches import decode_claims, encode_claims
from compatgate.service.gate.questions import verdict_bodies
from compatgate.service.gate.questions.verdict_bodies import (
    DICTIONARIES,
    FIRST_NUMBER,
    dictionary_path,
    load_dictionary,
    pack_body,
    read_body,
)

BODY = (
    '{"id":"vd_8ae1cac5536166d5fd59a65630d0ff8c","verdict":"fail","allowed":false,"mode":"enforce",'
    '"target":"prod-a100","findings":[{"rule":"CG203","name":"toolkit-arch","outcome":"fail"}],'
    '"decided_at":"2026-11-23T08:03:30.762Z"}'
)
PACKED = {
    0: "KLUv/SDgfQUAogwnH1BpqgNAGViFpqO+ilus9HdekTxjIDv3bUWxlDEz02uNF6AFYNDEkrJDCRIy55iF"
    "FJ19LsLNrzW/HDRim4r4coQm18yXAGOciE1enhQNCECFPMOAPXFIHifPvVz1rOEoFfogd768m4wu6bM3"
    "R8RLJ+A6du6FCOG+HL51Z5/tsezFy9vhnLKmpdYGKHaK1zorKdW2nd4D4cXZ+Z0RBQB8EIDnMZnmscqc"
    "pJYyAw==",
    1: "KLUv/SMBAEdD4O0BAENDCFkIQRJueaSwiwRPxCwL9qZTqlO4uu96kp5dW1Q1bwx9Bwj8AE8m/HqmhqTZ"
    "pqP4UdCNEFgjjdp0mwk=",
}
"""`BODY` as rows have it, by dictionary; never change a line, only add one."""


@pytest.mark.parametrize("dictionary", [0, *DICTIONARIES])
def test_rows_of_every_version_can_be_read(dictionary: int) -> None:
    packed = base64.b64decode(PACKED[dictionary])
    named = zstandard.get_frame_parameters(packed).dict_id
    assert named == (FIRST_NUMBER + dictionary if dictionary else 0)
    assert read_body("", packed) == BODY


def test_rows_before_schema_0007_hold_the_json() -> None:
    assert read_body(BODY, None) == BODY


@pytest.mark.parametrize("number", DICTIONARIES)
def test_a_dictionary_is_the_one_that_was_released(number: int) -> None:
    assert sha256(Path(dictionary_path(number)).read_bytes()) == DICTIONARIES[number]
    assert load_dictionary(number).dict_id() == FIRST_NUMBER + number


def test_a_verdict_takes_less_than_half_with_the_dictionary(ask: Callable[..., Verdict]) -> None:
    for stack in ("cuda=12.4,cudnn=9.1.0,torch=2.4.1", "torch=2.11.0,python=3.9", "tensorflow=2.9"):
        verdict = ask("driver=535.183.01,gpu=B200", stack)
        body = msgspec.json.encode(verdict.to_json())
        packed = pack_body(body.decode())
        assert read_body("", packed) == body.decode()
        assert len(packed) < len(zstandard.compress(body)) / 2, stack


@pytest.mark.parametrize("dictionary", PACKED)
def test_a_damaged_row_says_so(dictionary: int) -> None:
    packed = base64.b64decode(PACKED[dictionary])
    for damaged in (b"", packed[:3], packed[:-9], b"x" + packed[1:]):
        with pytest.raises(DamagedContent, match="a stored verdict is damaged"):
            read_body("", damaged)


def test_a_row_of_a_newer_version_names_the_way_out() -> None:
    sample = Path(dictionary_path(1)).read_bytes()
    number = FIRST_NUMBER + 99
    newer = zstandard.ZstdCompressionDict(sample[:4] + number.to_bytes(4, "little") + sample[8:])
    packed = zstandard.ZstdCompressor(dict_data=newer).compress(BODY.encode())
    with pytest.raises(Unavailable, match="needs dictionary 99, known is") as caught:
        read_body("", packed)
    assert "upgrade compatgate" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read: No such file"), (b"other", "was changed: its digest does not match")],
)
def test_an_incomplete_installation_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "verdicts_1.zdict"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(verdict_bodies, "dictionary_path", lambda _: str(file))
    with pytest.raises(Unavailable, match=problem) as caught:
        load_dictionary.__wrapped__(1)
    assert caught.value.hint == "reinstall compatgate"


@pytest.mark.parametrize(
    ("claims", "stored"),
    [
        ({}, None),
        (
            {"vd_" + "2" * 32: "ab" * 32, "vd_" + "1" * 32: "0" * 64},
            base64.b64encode(b"\x11" * 16 + bytes(32) + b"\x22" * 16 + b"\xab" * 32).decode(),
        ),
        ({"vd_1": "ab" * 32}, '{"vd_1":"' + "ab" * 32 + '"}'),
        ({"vd_" + "1" * 32: "AB" * 32}, '{"vd_' + "1" * 32 + '":"' + "AB" * 32 + '"}'),
    ],
)
def test_digests_of_verdicts_are_stored_short(claims: dict[str, str], stored: str | None) -> None:
    assert encode_claims(claims) == stored
    assert decode_claims(stored) == claims
