"""Whatever a file holds, its reader gives a result or an error of ours, soon and in little memory.

Real samples are damaged by what a seed decides, so that a failure is one number to repeat.
``HYPOTHESIS_PROFILE=long`` searches further; ``tests/fuzz/run_atheris.py`` is led by coverage.
"""

from __future__ import annotations

import random
import resource
import struct
import time
from contextlib import suppress

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
TARGETS = targets()


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
    with suppress(CompatgateError):
        target.run(data)
    assert time.process_time() - start < LONGEST_S
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MAX_MIB * 1024
