"""Write H.264 whose decoded frames are known without a decoder: macroblocks of plain samples.

The first frame is plain samples (I_PCM). In the frames after it some macroblocks are plain, all
others are skipped: they must be what they were in the frame before. Nothing is transformed or
filtered, so each frame is exact. Source: ITU-T H.264, clauses 7.3 and 9.2. Python 3.8 or newer.
"""

import hashlib
import os

_BLOCK = 384  # bytes of samples of a macroblock: 16 x 16 and twice 8 x 8
_SPS, _PPS, _IDR, _SLICE = 0x67, 0x68, 0x65, 0x41
_PLAIN_IN_I, _PLAIN_IN_P = 25, 30
_I, _P = 7, 5
_EVERY = 3
"""One of so many macroblocks of a later frame is plain."""


class Bits:
    """Writer of bits, with the numbers of clause 9.1."""

    def __init__(self):
        self._done, self._value, self._count = bytearray(), 0, 0

    def fixed(self, value, count):
        """Write a number of a fixed count of bits."""
        for place in range(count - 1, -1, -1):
            self._value = self._value << 1 | value >> place & 1
            self._count += 1
            if self._count == 8:
                self._done.append(self._value)
                self._value = self._count = 0

    def number(self, value):
        """Write an Exp-Golomb number without a sign."""
        self.fixed(value + 1, 2 * (value + 1).bit_length() - 1)

    def samples(self, content):
        """Fill up the byte with zeros, and write bytes."""
        while self._count:
            self.fixed(0, 1)
        self._done += content

    def unit(self, head):
        """Return the NAL unit: start code, head, and content with bytes against false starts."""
        self.fixed(1, 1)
        self.samples(b"")
        safe, zeros = bytearray(), 0
        for byte in self._done:
            if zeros >= 2 and byte <= 3:
                safe.append(3)
                zeros = 0
            safe.append(byte)
            zeros = zeros + 1 if byte == 0 else 0
        return b"\0\0\0\1" + bytes([head]) + bytes(safe)


def write(across, down, frames):
    """Return a stream of random frames, and the MD5 digest of each frame's planes (4:2:0).

    Args:
        across: macroblocks in a row.
        down: rows of macroblocks.
        frames: number of frames, at most 16.
    """
    count = across * down
    stream = _parameters(across, down)
    blocks = [os.urandom(_BLOCK) for _ in range(count)]
    stream += _first(blocks)
    digests = [_digest(blocks, across, down)]
    for number in range(1, frames):
        plain = {at: os.urandom(_BLOCK) for at in range(number % _EVERY, count, _EVERY)}
        stream += _later(number, plain, count)
        blocks = [plain.get(at, block) for at, block in enumerate(blocks)]
        digests.append(_digest(blocks, across, down))
    return stream, digests


def _parameters(across, down):
    sequence = Bits()
    for value, count in ((66, 8), (0xC0, 8), (40, 8)):  # baseline profile, level 4
        sequence.fixed(value, count)
    # id, frame numbers of 4 bits, order of output as decoded, one reference
    for value in (0, 0, 2, 1):
        sequence.number(value)
    sequence.fixed(0, 1)
    sequence.number(across - 1)
    sequence.number(down - 1)
    sequence.fixed(0b1100, 4)  # frames only, direct 8 x 8, no cropping, no VUI
    picture = Bits()
    for value in (0, 0):  # ids
        picture.number(value)
    picture.fixed(0, 2)  # CAVLC
    for value in (0, 0, 0):  # slice groups, references
        picture.number(value)
    picture.fixed(0, 3)  # no weighted prediction
    for value in (0, 0, 0):  # quantisers
        picture.number(value)
    picture.fixed(0b100, 3)  # slices say whether they are filtered
    return sequence.unit(_SPS) + picture.unit(_PPS)


def _first(blocks):
    bits = _slice(_I, 0)
    bits.number(0)  # id of this picture
    bits.fixed(0, 2)  # keep no earlier picture, no long-term reference
    _end_of_head(bits)
    for block in blocks:
        bits.number(_PLAIN_IN_I)
        bits.samples(block)
    return bits.unit(_IDR)


def _later(number, plain, count):
    bits = _slice(_P, number)
    bits.fixed(0, 3)  # usual references in usual order, kept as usual
    _end_of_head(bits)
    skipped = 0
    for at in range(count):
        if at not in plain:
            skipped += 1
            continue
        bits.number(skipped)
        bits.number(_PLAIN_IN_P)
        bits.samples(plain[at])
        skipped = 0
    if skipped:
        bits.number(skipped)
    return bits.unit(_SLICE)


def _slice(kind, number):
    bits = Bits()
    for value in (0, kind, 0):  # first macroblock, type, id of the parameters
        bits.number(value)
    bits.fixed(number % 16, 4)
    return bits


def _end_of_head(bits):
    bits.number(0)  # quantiser as in the parameters
    bits.number(1)  # not filtered


def _digest(blocks, across, down):
    planes = []
    for start, side in ((0, 16), (256, 8), (320, 8)):
        for row in range(down * side):
            line, inside = blocks[row // side * across :][:across], start + row % side * side
            planes += [block[inside : inside + side] for block in line]
    return hashlib.md5(b"".join(planes)).hexdigest()  # noqa: S324
