"""Damaged lockfiles: an answer or an error of ours, and nothing else."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_packages import PACKAGES

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.errors import CompatgateError

FILES = sorted((Path(__file__).parent / "files").rglob("*.[ltyi]*"))
PLATFORMS = (
    Platform(),
    Platform("windows", "x86_64", "3.12"),
    Platform("linux", "aarch64", "3.11.4"),
)
PIECES = (
    '"', "'", "[", "]", "{", "}", "=", ":", "\n", "- ", "#", ",", "\\", "==", "@", ";", " and ",
    "[[package]]\n", "[[packages]]\n", 'version = 1\n', "null", "true", "-r x\n", "torch", "+cu",
    "2.4.1", "é", "\u2028", "\x7f", "(", ")", "or", "extra == 'x'", "*", "!", "&a", "*a", "%",
)  # fmt: skip


def _mutated(text: str, data: st.DataObject) -> str:
    """A lockfile with a few pieces cut, doubled, moved or replaced."""
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 400)))
        piece = data.draw(st.sampled_from([*PIECES, "", text[start:end] * 2]))
        text = text[:start] + piece + text[end:]
    return text


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.name}")
@given(data=st.data())
def test_a_damaged_lockfile_gives_an_answer_or_an_error_that_explains_itself(path, data):
    text = path.read_text()
    mutated = _mutated(text, data)
    platform = data.draw(st.sampled_from(PLATFORMS))
    with contextlib.suppress(CompatgateError):
        reading = read_lockfile(
            path.name, mutated.encode("utf-8", "replace"), known=PACKAGES, platform=platform
        )
        assert reading.observations or reading.open


VALUES = (
    '""', "0", "true", "[]", "{}", '["x"]', '[{}]', '{ name = "torch" }', '"*"', '"${X}"', '"2.4"',
    '"https://["', '"a and b"', "1979-05-27", '"\\u0000"', "null", "- x", '"os_name == 1"',
)  # fmt: skip
_VALUE = re.compile(r"(?m)^(\s*(?:- )?[\w\-]+(?: = |: )).*$")


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.name}")
@given(data=st.data())
def test_values_of_any_type_give_an_answer_or_an_error_that_explains_itself(path, data):
    text = path.read_text()
    places = [match.span() for match in _VALUE.finditer(text)] or [(0, 0)]
    for start, end in sorted(
        data.draw(st.sets(st.sampled_from(places), min_size=1, max_size=4)), reverse=True
    ):
        match = _VALUE.match(text, start)
        value = data.draw(st.sampled_from(VALUES))
        text = text[:start] + (match[1] if match else "") + value + text[end:]
    with contextlib.suppress(CompatgateError):
        reading = read_lockfile(
            path.name, text.encode(), known=PACKAGES, platform=data.draw(st.sampled_from(PLATFORMS))
        )
        assert reading.observations or reading.open


@given(name=st.sampled_from(sorted({p.name for p in FILES})), data=st.binary(max_size=300))
def test_arbitrary_bytes_give_an_answer_or_an_error_that_explains_itself(name, data):
    with contextlib.suppress(CompatgateError):
        read_lockfile(name, data, known=PACKAGES, platform=Platform())
