"""Compare whole timed results of a convolution with the definition, tap by tap, in fp64.

Freivalds' check (`canary_numerics.whole_product`) for a convolution: channels are folded with
random signs, so that a few of them stand for all, and an error in any element shows in full. The
folded convolution is computed by products of matrices; no convolution of the library takes part.
"""

import itertools

import canary_numerics as numerics
import torch
from torch.nn import functional

PARTS = ("output", "input gradient", "weight gradient")
_IMAGES = 8
"""Images at once; the doubles of a whole batch would fill a small GPU."""


class Taps:
    """The three bilinear functions of a convolution, from its definition.

    Tensors have groups as a dimension of their own: batch x groups x channels x places, and weights
    groups x outputs x inputs x kernel.
    """

    def __init__(self, shape, outputs):
        self._shape, self._outputs = shape, outputs

    def output(self, given, weights):
        """Convolve."""
        padded = functional.pad(given, [self._shape.padding] * (2 * len(self._shape.size)))
        return sum(
            torch.einsum("ngc...,gkc->ngk...", padded[where], weights[tap])
            for tap, where in self._taps()
        )

    def input_gradient(self, weights, back):
        """Return the gradient of the input for a gradient of the output."""
        pad = self._shape.padding
        size = [extent + 2 * pad for extent in self._shape.size]
        padded = back.new_zeros((*back.shape[:2], weights.shape[2], *size))
        for tap, where in self._taps():
            padded[where] += torch.einsum("ngk...,gkc->ngc...", back, weights[tap])
        inner = [slice(pad, pad + extent) for extent in self._shape.size]
        return padded[(..., *inner)]

    def weight_gradient(self, given, back):
        """Return the gradient of the weights for a gradient of the output."""
        padded = functional.pad(given, [self._shape.padding] * (2 * len(self._shape.size)))
        kernel = self._shape.kernel
        found = back.new_zeros((*back.shape[1:3], given.shape[2], *kernel))
        flat = back.flatten(3)
        for tap, where in self._taps():
            found[tap] = torch.einsum("ngkp,ngcp->gkc", flat, padded[where].flatten(3))
        return found

    def _taps(self):
        """Yield where a tap is in the weights, and what it meets in the padded input."""
        stride, dilation = self._shape.stride, self._shape.dilation
        for tap in itertools.product(*map(range, self._shape.kernel)):
            starts = [place * dilation for place in tap]
            ends = [start + stride * (n - 1) + 1 for start, n in zip(starts, self._outputs)]
            yield (..., *tap), (..., *(slice(a, b, stride) for a, b in zip(starts, ends)))


def worst(shape, given, weights, back, results, precision, cuts, factor=1.0):
    """Return the worst result as a share of its bound, and which one it is.

    Args:
        shape: of the convolution.
        given: its input, as the timed call read it.
        weights: its weights.
        back: gradient of the output.
        results: output, and the gradients of input and weights where they were computed.
        precision: of inputs and results.
        cuts: sums are those of tensor cores.
        factor: how much further off than a sum algorithms that transform may be.
    """
    taps = Taps(shape, back.shape[2:])
    given, back = _grouped(given, 1, shape.groups), _grouped(back, 1, shape.groups)
    weights = _grouped(weights, 0, shape.groups).double()
    found = [_grouped(each, dim, shape.groups) for each, dim in zip(results, (1, 1, 0))]
    allowed = [numerics.variance(n, output=precision, cuts=cuts) for n in shape.terms()]
    outputs, inputs = (_signs(weights.shape[dim], weights.device) for dim in (1, 2))
    shares = dict.fromkeys(PARTS[: len(found)], 0.0)

    def compare(which, result, signs, dim, exact, squares):
        off = (_fold(result.double(), signs, dim) - exact).abs()
        share = numerics.worst_share(off, squares, allowed[which]) / factor
        shares[PARTS[which]] = max(shares[PARTS[which]], share)

    of_weights = [torch.zeros((), dtype=weights.dtype, device=weights.device)] * 2
    for at in range(0, len(given), _IMAGES):
        part = slice(at, at + _IMAGES)
        x, dy = given[part].double(), back[part].double()
        exact = taps.output(x, _fold(weights, outputs, 1))
        compare(0, found[0][part], outputs, 2, exact, taps.output(x * x, _squares(weights, 1)))
        if len(found) > 1:
            exact = taps.input_gradient(_fold(weights, inputs, 2), dy)
            squares = taps.input_gradient(_squares(weights, 2), dy * dy)
            compare(1, found[1][part], inputs, 2, exact, squares)
            pairs = (x, _fold(dy, outputs, 2)), (x * x, _squares(dy, 2))
            of_weights = [s + taps.weight_gradient(*p) for s, p in zip(of_weights, pairs)]
    if len(found) > 1:
        compare(2, found[2], outputs, 1, *of_weights)
    return max((share, name) for name, share in shares.items())


def _grouped(tensor, dim, groups):
    """Split the channels into groups and the channels of each."""
    return tensor.unflatten(dim, (groups, tensor.shape[dim] // groups))


def _signs(channels, device):
    """Return random signs, a column for each fold; one channel needs no folding."""
    shape = channels, min(channels, numerics.VECTORS)
    return (torch.randint(2, shape, dtype=torch.float64) * 2 - 1).to(device)


def _fold(tensor, signs, dim):
    return torch.tensordot(tensor, signs, dims=([dim], [0])).movedim(-1, dim)


def _squares(tensor, dim):
    return (tensor * tensor).sum(dim, keepdim=True)
