"""Define a network whose exact answers are known in any precision.

Weights are -1 and 1; inputs and the outputs of layers are whole numbers from -8 to 8. TF32, fp16
and bf16 represent them exactly, and sums stay far below 2^24, so the order of adding does not
matter either. An answer is either right or wrong. Needs only Python 3.8.
"""

import hashlib
import struct

import canary_onnx as onnx

LAYERS, QUESTIONS = 4, 4
MOST = 8


class Network:
    """Layers of a square product and a clip; the last layer has no clip.

    Args:
        seed: seed of weights and questions.
        width: width of all layers.
    """

    def __init__(self, seed, width):
        self.width = width
        self._layers = [_signs(f"{seed}:{layer}", width) for layer in range(LAYERS)]
        self.questions = [_digits(f"{seed}:question {n}", width) for n in range(QUESTIONS)]
        self.answers = [self._answer(question) for question in self.questions]

    def onnx(self):
        """Return the network as an ONNX file, with a variable batch size."""
        limits = {"least": -MOST, "most": MOST}
        tensors = [onnx.tensor(name, [], packed([limit])) for name, limit in limits.items()]
        nodes, given = [], "x"
        for number, layer in enumerate(self._layers):
            last = number == LAYERS - 1
            weights = packed([float(sign) for row in layer for sign in row])
            tensors.append(onnx.tensor(f"w{number}", [self.width] * 2, weights))
            summed = "y" if last else f"s{number}"
            nodes.append(onnx.node("MatMul", [given, f"w{number}"], summed))
            if not last:
                given = f"c{number}"
                nodes.append(onnx.node("Clip", [summed, *limits], given))
        shape = ["batch", self.width]
        return onnx.model(nodes, tensors, shape, shape)

    def _answer(self, values):
        for number, layer in enumerate(self._layers):
            sums = [0] * self.width
            for value, row in zip(values, layer):
                if value:
                    sums = [total + value * sign for total, sign in zip(sums, row)]
            last = number == LAYERS - 1
            values = sums if last else [min(max(total, -MOST), MOST) for total in sums]
        return [float(value) for value in values]


def packed(values):
    """Encode numbers as the server expects and returns them: fp32, little-endian."""
    return struct.pack(f"<{len(values)}f", *values)


def _signs(name, width):
    raw = hashlib.shake_128(name.encode()).digest(width * width)
    signs = [1 if byte & 1 else -1 for byte in raw]
    return [signs[row * width : (row + 1) * width] for row in range(width)]


def _digits(name, width):
    raw = hashlib.shake_128(name.encode()).digest(width)
    return [byte % (2 * MOST + 1) - MOST for byte in raw]
