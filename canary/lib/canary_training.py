"""Provide models of a size that keeps a GPU busy, and a typical training step.

Import it after `canary_env.torch`. Python 3.8 or newer, PyTorch 1.13 or newer.
"""

import copy
from collections import namedtuple

import canary_models as models
import canary_numerics as numerics
import torch

Size = namedtuple("Size", "batch amount model data")
"""Field ``amount``: tokens or images of a step."""

ON_GPU = {
    "transformer": Size(
        16, 16 * 512, lambda: models.Transformer(512, 8, 8, 512), (models.sequences, 512)
    ),
    "convnet": Size(64, 64, lambda: models.Convnet(64, 4), (models.images, 128)),
}
ON_CPU = {
    "transformer": Size(
        2, 2 * 16, lambda: models.Transformer(32, 1, 2, 16), (models.sequences, 16)
    ),
    "convnet": Size(2, 2, lambda: models.Convnet(8, 2), (models.images, 16)),
}


def size_of(name, device):
    """Return the size of a model for a device."""
    return (ON_GPU if device.type == "cuda" else ON_CPU)[name]


class Stepper:
    """A training step: autocast, backward, AdamW, channels last.

    Attributes:
        model: that is trained; its gradients are those of the last step, times ``factor``.
        factor: keeps gradients within the range of fp16; AdamW is invariant to it.
    """

    def __init__(self, name, seed, device):
        size = size_of(name, device)
        make, extent = size.data
        self._given, self._wanted = (part.to(device) for part in make(seed, size.batch, extent))
        self.model = models.filled(size.model(), seed).to(device)
        if self._given.dim() == 4:
            self.model = self.model.to(memory_format=torch.channels_last)
            self._given = self._given.contiguous(memory_format=torch.channels_last)
        self._half = models.reduced_precision(device)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.factor = 1024.0 if self._half == torch.float16 else 1.0
        # Batch norms see the whole batch; a transformer's sequences do not see each other.
        self._rows = size.batch if self._given.dim() == 4 else 1

    def gradients(self):
        """Compute gradients."""
        with torch.autocast(self._given.device.type, dtype=self._half):
            loss = models.loss_of(self.model(self._given), self._wanted)
        self._optimizer.zero_grad(set_to_none=True)
        (loss * self.factor).backward()

    def step(self):
        """Compute gradients, and change the weights."""
        self.gradients()
        self._optimizer.step()

    def error(self):
        """Compute gradients with the weights as they are, and compare them with fp64.

        Returns:
            As `gradients_error`.
        """
        self.gradients()
        found = {n: part.grad / self.factor for n, part in self.model.named_parameters()}
        exact = copy.deepcopy(self.model).double()
        return gradients_error(found, exact, self._given, self._wanted, self._rows)


def gradients_error(found, model, given, wanted, rows=1):
    """Return the largest error of a gradient in the 2-norm, and the name of its weight.

    Args:
        found: name to gradient.
        model: in double precision.
        given: its input.
        wanted: the classes of its outputs.
        rows: inputs that are computed at once.
    """
    model.zero_grad(set_to_none=True)
    given = given.double() if given.is_floating_point() else given
    for at in range(0, len(given), rows):
        outputs, right = model(given[at : at + rows]), wanted[at : at + rows]
        (models.loss_of(outputs, right) * len(right) / len(given)).backward()
    return max(
        (numerics.rows_error(found[name].double().flatten(), part.grad.flatten()), name)
        for name, part in model.named_parameters()
    )
