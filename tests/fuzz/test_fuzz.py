"""Whatever a file holds, its reader gives a result or an error of ours, soon and in little memory.

Real samples are damaged by what a seed decides, so that a failure is one number to repeat.
``HYPOTHESIS_PROFILE=long`` searches further; ``tests/fuzz/run_atheris.py`` is led by coverage.
"""

from __future__ import annotations

import json
import random
import re
import resource
import struct
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from targets import targets

from compatgate.errors import CompatgateError

LONGEST_S = 5.0
MAX_MIB = 400
_NUMBERS = (0, 1, 7, 8, 13, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
_WORDS = (b"", b"\0", b"\n", b'"', b"'", b"[", b"{", b"}", b"]", b"<", b"&", b"\xff\xfe", b"${X}",
          b"{{", b"%", b"-1", b"1e999", b"null", b"true", b"==", b"+cu", b"9" * 400, b"[" * 3000,
          "é\u2028".encode(), b"\xed\xa0\x80", b"- ", b": ", b"*a", b"&a ", b"!!x ")  # fmt: skip
_VALUES: tuple[Any, ...] = (None, True, -1, 1.5, "", "x", [], [1], {}, {"a": 1}, [[]], 10**30)
TARGETS = targets()
PYTHON = re.compile(
    r"has no attribute|NoneType|not subscriptable|index out of range|object is not|Traceback"
    r"|(?:Key|Value|Type|Attribute|Index|Unicode\w+)Error|invalid literal for|unsupported operand"
    r"|Expecting |codec can't|Expected `|<class |could not convert|positional argument"
)
"""Words of Python's own exceptions, and of the libraries that read formats."""


def damaged(samples: list[bytes], seed: int) -> bytes:
    """One of the samples with a few places cut, doubled, overwritten or taken from another."""
    chance = random.Random(seed)
    data = bytearray(chance.choice(samples))
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randrange(len(data) + 1)
        if chance.random() < 0.3:  # headers decide most
            at = min(at, chance.randrange(600))
        end = at + chance.choice((0, 1, 2, 4, 8, 50, 1000))
        match chance.randrange(7):
            case 0:
                data[at:end] = chance.choice(_WORDS)
            case 1:
                number, order = chance.choice(_NUMBERS), chance.choice("<>")
                wide = struct.pack(f"{order}Q", number)
                size = chance.choice((1, 2, 4, 8))
                data[at : at + size] = wide[:size] if order == "<" else wide[-size:]
            case 2:
                data[at:at] = data[at:end] * chance.choice((1, 2, 50))
            case 3:
                other = chance.choice(samples)
                place = chance.randrange(len(other) + 1)
                data[at:end] = other[place : place + chance.choice((4, 40, 1000))]
            case 4:
                data[at:end] = chance.randbytes(end - at)
            case 5 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 6 if chance.random() < 0.3:
                del data[at:]
    return bytes(data)


def swapped(samples: list[bytes], seed: int) -> bytes | None:
    """A sample of JSON with one value, or one key's value, of another type; None without one."""
    chance = random.Random(seed)
    try:
        whole = json.loads(chance.choice(samples))
    except ValueError:
        return None
    node, steps = whole, chance.randrange(1, 7)
    while isinstance(node, (dict, list)) and node:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key, steps = chance.choice(keys), steps - 1
        if not steps or not isinstance(node[key], (dict, list)) or not node[key]:
            node[key] = chance.choice(_VALUES)
            break
        node = node[key]
    return json.dumps(whole).encode()


def read_or_explain(name: str, data: bytes) -> None:
    """Read; an error names what is wrong in words of this program."""
    try:
        TARGETS[name].run(data)
    except CompatgateError as error:
        said = " ".join(str(one) for one in (error.detail, error.hint, error))
        assert not PYTHON.search(said), said


def test_the_samples_themselves_are_read() -> None:
    for name, target in TARGETS.items():
        for sample in target.samples:
            with suppress(CompatgateError):  # some samples are outputs that say an error
                assert target.run(sample) is not None, name


@pytest.mark.parametrize("name", TARGETS)
@given(seed=st.integers(0, 2**48))
def test_a_damaged_file_gives_a_result_or_an_error_that_explains_itself(name, seed) -> None:
    target = TARGETS[name]
    data = damaged(target.samples, seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    read_or_explain(name, data)
    assert time.process_time() - start < LONGEST_S
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MAX_MIB * 1024


@pytest.mark.parametrize("name", TARGETS)
@given(seed=st.integers(0, 2**48))
def test_a_value_of_another_type_gives_a_result_or_an_error_that_explains_itself(
    name: str, seed: int
) -> None:
    data = swapped(TARGETS[name].samples, seed)
    if data is not None:
        read_or_explain(name, data)
