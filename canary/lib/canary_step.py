"""A training step that every framework can do, and its right results in fp64. Needs NumPy.

Images are convolved (3 x 3), bent by a hyperbolic tangent, and every place is multiplied with a
matrix; the loss is half the sum of squared differences. So one step needs cuDNN and cuBLAS,
forwards and backwards. All is fp32, computed as the framework does by default: TF32 is allowed.
Python 3.8 or newer.
"""

from collections import namedtuple

import canary_numerics as numerics
import canary_timing as timing
import numpy

Size = namedtuple("Size", "batch side channels outputs")
SIZES = {"cuda": Size(32, 32, 128, 512), "cpu": Size(2, 8, 8, 16)}
ROUNDINGS = 16
"""Largest error of a row in the 2-norm, in roundings of TF32.

A step that rounds every factor of every product to TF32 is off by 1.2, one that cuts them off by
4.3. A tile of 128 x 128 outputs that is lost is off by 1100.
"""


class Step:
    """Data of a step, and its results in double precision.

    Attributes:
        images: batch x height x width x channels.
        kernel: 3 x 3 x channels x channels.
        matrix: channels x outputs.
        wanted: a row of outputs for each place of each image.

    Args:
        options: of `canary_program`.
    """

    def __init__(self, options):
        size, source = SIZES[options.device], numpy.random.RandomState(options.seed)
        self._size, rows = size, size.batch * size.side**2

        def numbers(scale, *shape):
            return (source.standard_normal(shape) * scale).astype("float32")

        self.images = numbers(1.0, size.batch, size.side, size.side, size.channels)
        self.kernel = numbers((9 * size.channels) ** -0.5, 3, 3, size.channels, size.channels)
        self.matrix = numbers(size.channels**-0.5, size.channels, size.outputs)
        self.wanted = numbers(1.0, rows, size.outputs)

    def time(self, name, call, options):
        """Time a call that returns when its results are there; report them, and return the last."""
        times, results = timing.repeat_kept(call, timing.WallClock(), options)
        timing.report(name, "ms", times, timing.milliseconds)
        return results

    def check(self, name, results):
        """Check outputs, and gradients of kernel and matrix where there are some."""
        parts = ("outputs", "gradient of the kernel", "gradient of the matrix")
        shares = []
        for part, found, right in zip(parts, results, self._right(len(results) > 1)):
            found = numpy.asarray(found, dtype="float64").reshape(right.shape)
            shares.append((numerics.rows_error(found, right), part))
        error, part = max(shares)
        numerics.check_error(name, error, ROUNDINGS * numerics.ROUNDING["tf32"], part)

    def _right(self, gradients):
        """Yield the results in double precision, the convolution tap by tap."""
        size = self._size
        padded = numpy.pad(self.images.astype("float64"), ((0, 0), (1, 1), (1, 1), (0, 0)))
        taps = [(i, j) for i in range(3) for j in range(3)]

        def seen(i, j):
            return padded[:, i : i + size.side, j : j + size.side].reshape(-1, size.channels)

        kernel, matrix = self.kernel.astype("float64"), self.matrix.astype("float64")
        bent = numpy.tanh(sum(seen(*tap) @ kernel[tap] for tap in taps))
        outputs = bent @ matrix
        yield outputs
        if gradients:
            back = outputs - self.wanted
            inner = (back @ matrix.T) * (1 - bent * bent)
            yield numpy.stack([seen(*tap).T @ inner for tap in taps])
            yield bent.T @ back
