"""Define the networks, their inputs, and the result in double precision. Python 3.8 or newer.

Bound of a result as a share of the largest value: each of ``L`` layers adds sums of ``k`` terms to
what came before. Errors of random sign add up as the square root of their number, and four standard
deviations are ``4 sqrt(L k) u`` (Higham and Mary, SIAM J. Sci. Comput. 41, 2019). In fp16 the sums
may be in fp16, too, and weights and inputs are rounded as well, which is within the same bound.
"""

import math
import random
import struct
from collections import namedtuple

import canary_numerics as numerics
import canary_onnx as onnx

Size = namedtuple("Size", "layers channels side batch")
SMALL = Size(3, 4, 8, 2)
"""Small enough for the interpreter to compute."""
LARGE = Size(4, 64, 56, 32)
_PERIOD = 4099


class Network:
    """Network of a size with random weights and inputs that no image knows.

    Attributes:
        size: of this module.
        onnx: the file's bytes.
        given: input as bytes of fp32.
    """

    def __init__(self, size):
        source = random.SystemRandom()
        self.size = size
        terms = 9 * size.channels
        line = [source.uniform(-1, 1) for _ in range(_PERIOD)]
        weights = [value * math.sqrt(3 / terms) for value in line]
        self._weights = [
            _tile(weights, size.channels * terms, 101 * layer) for layer in range(size.layers)
        ]
        self.given = _tile(line, size.batch * size.channels * size.side**2, 57)
        self.onnx = self._file()

    def _file(self):
        """Return convolutions of 3 x 3, each clipped at zero and added to its input, as ONNX."""
        size, nodes, tensors, given = self.size, [], [], "x"
        for number, raw in enumerate(self._weights):
            result = "y" if number == size.layers - 1 else f"s{number}"
            tensors.append(onnx.tensor(f"w{number}", [size.channels] * 2 + [3, 3], raw))
            named = [given, f"w{number}"], f"c{number}"
            nodes += [
                onnx.node("Conv", *named, pads=[1, 1, 1, 1]),
                onnx.node("Relu", [f"c{number}"], f"r{number}"),
                onnx.node("Add", [given, f"r{number}"], result),
            ]
            given = result
        shape = [size.batch, size.channels, size.side, size.side]
        return onnx.model(nodes, tensors, shape, shape)

    def bound(self, precision):
        """Return the largest error allowed in a precision."""
        sums = self.size.layers * 9 * self.size.channels
        return 4 * math.sqrt(sums) * numerics.ROUNDING[precision]

    def error(self, result):
        """Return the largest error of a result, bytes of fp32, as a share of the largest value."""
        found = _numbers(result)
        right = self.right()
        if not all(math.isfinite(value) for value in found):
            return math.inf
        worst = max(abs(ours - wanted) for ours, wanted in zip(found, right))
        return worst / max(abs(value) for value in right)

    def error_at(self, result, count):
        """Return the largest error of some places, all channels of each, as `error` does.

        For a network whose whole result would take an interpreter hours.
        """
        size, source = self.size, random.SystemRandom()
        found, weights = _numbers(result), [_numbers(raw) for raw in self._weights]
        if not all(map(math.isfinite, found)):
            return math.inf
        given, worst = _numbers(self.given), 0.0
        for _ in range(count):
            image, row, column = (source.randrange(n) for n in (size.batch, size.side, size.side))
            known = {}
            right = self._place(given, weights, (image, row, column), size.layers, known)
            start = image * size.channels * size.side**2 + row * size.side + column
            ours = found[start : start + size.channels * size.side**2 : size.side**2]
            worst = max(worst, *(abs(a - b) for a, b in zip(ours, right)))
        return worst / max(map(abs, found))

    def _place(self, given, weights, place, layer, known):
        """Return all channels of a place after a number of layers, from its neighbourhood."""
        if (place, layer) in known:
            return known[place, layer]
        (image, row, column), count, side = place, self.size.channels, self.size.side
        if layer == 0:
            start = image * count * side * side + row * side + column
            values = list(given[start : start + count * side * side : side * side])
        else:
            values = self._place(given, weights, place, layer - 1, known)
            taps = []
            for y in range(max(row - 1, 0), min(row + 2, side)):
                for x in range(max(column - 1, 0), min(column + 2, side)):
                    near = self._place(given, weights, (image, y, x), layer - 1, known)
                    taps.append(((y - row + 1) * 3 + x - column + 1, near))
            line = weights[layer - 1]
            sums = [
                sum(
                    sum(a * b for a, b in zip(line[at + tap : at + 9 * count : 9], near))
                    for tap, near in taps
                )
                for at in range(0, 9 * count * count, 9 * count)
            ]
            values = [value + max(total, 0.0) for value, total in zip(values, sums)]
        known[place, layer] = values
        return values

    def right(self):
        """Return the result in double precision, in one list."""
        size, values = self.size, _numbers(self.given)
        for weights in map(_numbers, self._weights):
            values = [
                value
                for image in range(size.batch)
                for channel in range(size.channels)
                for value in self._channel(values, weights, image, channel)
            ]
        return values

    def _channel(self, values, weights, image, channel):
        """Yield one channel of an image after one layer, row by row."""
        count, side = self.size.channels, self.size.side
        start = image * count * side * side
        for row in range(side):
            for column in range(side):
                total = 0.0
                for other in range(count):
                    at, weight = start + other * side * side, (channel * count + other) * 9
                    for y in range(max(row - 1, 0), min(row + 2, side)):
                        for x in range(max(column - 1, 0), min(column + 2, side)):
                            tap = weight + (y - row + 1) * 3 + x - column + 1
                            total += weights[tap] * values[at + y * side + x]
                yield values[start + (channel * side + row) * side + column] + max(total, 0.0)


def _tile(line, count, offset):
    """Return bytes of fp32: values of a line that begins again, from an offset."""
    raw = struct.pack(f"<{len(line)}f", *line[offset:], *line[:offset])
    return (raw * (count // len(line) + 1))[: 4 * count]


def _numbers(raw):
    return struct.unpack(f"<{len(raw) // 4}f", raw)
