"""Define convolutions of networks in use."""

import math
from collections import namedtuple

import canary_models as models
import torch
from torch.nn import functional


class Shape(
    namedtuple("Shape", "name batch inputs outputs size kernel stride padding groups dilation")
):
    """A convolution.

    ``size`` and ``kernel`` are the image's and the kernel's, along each dimension.
    """

    def run(self, given, weights):
        """Run the convolution."""
        function = functional.conv3d if len(self.size) == 3 else functional.conv2d
        how = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return function(given, weights, groups=self.groups, **how)

    def tensors(self, seed):
        """Return input and weights of a seed, fp32 on the CPU."""
        given = self.batch, self.inputs, *self.size
        weights = self.outputs, self.inputs // self.groups, *self.kernel
        return models.numbers(seed, "given", given), models.numbers(seed, "weights", weights)

    def terms(self):
        """Return the number of summed products: for output, input gradient and weight gradient."""
        kernel = math.prod(self.kernel)
        reach = [self.dilation * (k - 1) + 1 for k in self.kernel]
        places = [(s + 2 * self.padding - r) // self.stride + 1 for s, r in zip(self.size, reach)]
        forward = self.inputs // self.groups * kernel
        return forward, self.outputs // self.groups * kernel, self.batch * math.prod(places)


SHAPES = (
    Shape("stem", 32, 3, 64, (224, 224), (7, 7), 2, 3, 1, 1),
    Shape("square", 32, 128, 128, (56, 56), (3, 3), 1, 1, 1, 1),
    Shape("strided", 32, 256, 512, (28, 28), (3, 3), 2, 1, 1, 1),
    Shape("pointwise", 32, 512, 2048, (14, 14), (1, 1), 1, 0, 1, 1),
    Shape("depthwise", 32, 384, 384, (56, 56), (3, 3), 1, 1, 384, 1),
    Shape("grouped", 32, 256, 256, (28, 28), (3, 3), 1, 1, 32, 1),
    Shape("dilated", 8, 256, 256, (64, 64), (3, 3), 1, 4, 1, 4),
    Shape("volume", 4, 32, 64, (32, 64, 64), (3, 3, 3), 1, 1, 1, 1),
)
"""ResNet's stem, body and stride, ResNet's last 1x1, ConvNeXt, ResNeXt, DeepLab, 3-D U-Net."""


def smaller(shape):
    """Return a shape of the same kind, small enough for a reference in fp64 on the CPU."""
    size = tuple(min(extent, 14 if len(shape.size) == 3 else 28) for extent in shape.size)
    return shape._replace(batch=2, size=size)


def smallest(shape):
    """Return a shape of the same kind for a machine without a GPU, with a quarter of the channels.

    CPUs without instructions for half precision take seconds for the whole ones.
    """
    quarter = 4 if shape.inputs % 4 == 0 else 1  # not of the three colours
    return smaller(shape)._replace(
        batch=1,
        size=tuple(8 for _ in shape.size),
        inputs=shape.inputs // quarter,
        outputs=shape.outputs // quarter,
        groups=max(shape.groups // quarter, 1),
    )


def gradients(shape, given, weights, back):
    """Return the output, and the gradients of input and weights for a gradient of the output.

    Args:
        shape: of the convolution.
        given: its input.
        weights: its weights.
        back: function of the output that returns the output's gradient.
    """
    given, weights = (t.detach().requires_grad_(True) for t in (given, weights))
    output = shape.run(given, weights)
    output.backward(back(output))
    return output.detach(), given.grad, weights.grad


def channels_last(tensor):
    """Convert to the memory layout that tensor cores prefer."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()])
