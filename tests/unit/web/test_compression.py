"""Pages are compressed, by what a browser unpacks; programs get JSON as it is."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
import zstandard

from compatgate.service.access.browser_sessions import form_token, is_form_token


def _unzstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


@pytest.mark.parametrize(
    ("accepted", "chosen", "unpack"),
    [("gzip, deflate, br, zstd", "zstd", _unzstd), ("gzip", "gzip", gzip.decompress)],
)
def test_a_page_is_compressed(client: Any, accepted: str, chosen: str, unpack: Any) -> None:
    plain = client.get("/ui/matrix")
    packed = client.get("/ui/matrix", headers={"Accept-Encoding": accepted})
    assert packed.headers["Content-Encoding"] == chosen
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert len(packed.data) < len(plain.data) / 2
    assert unpack(packed.data).startswith(b"<!doctype html>")
    assert "Content-Encoding" not in plain.headers


def test_json_is_sent_as_it_is(client: Any) -> None:
    answer = client.get("/api/v1/targets", headers={"Accept-Encoding": "gzip, zstd"})
    assert "Content-Encoding" not in answer.headers
    assert answer.get_json()["items"]


def test_the_length_of_a_page_tells_nothing_of_its_forms_token() -> None:
    tokens = {form_token("session") for _ in range(10)}
    assert len(tokens) == 10
    assert all(is_form_token("session", token) for token in tokens)
    halves = [{token[:64] for token in tokens}, {token[64:] for token in tokens}]
    assert all(len(half) == 10 for half in halves)


@pytest.mark.parametrize("given", ["", "0" * 128, "ü" * 128, "zz", "00" * 63, "00" * 65])
def test_what_is_not_a_forms_token_is_none(given: str) -> None:
    assert not is_form_token("session", given)
    assert not is_form_token("other", form_token("session"))
