"""Provide models of a size that keeps a GPU busy, and a typical training step.

Import it after `canary_env.torch`. Python 3.8 or newer, PyTorch 1.13 or newer.
"""

from collections import namedtuple

import canary_models as models
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


def stepper(name, seed, device):
    """Return a function for a training step: autocast, backward, AdamW, channels last."""
    size = size_of(name, device)
    make, extent = size.data
    given, wanted = (part.to(device) for part in make(seed, size.batch, extent))
    model = models.filled(size.model(), seed).to(device)
    if given.dim() == 4:
        model = model.to(memory_format=torch.channels_last)
        given = given.contiguous(memory_format=torch.channels_last)
    half = models.reduced_precision(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # Keeps gradients within the range of fp16; AdamW is invariant to a factor.
    factor = 1024.0 if half == torch.float16 else 1.0

    def step():
        with torch.autocast(device.type, dtype=half):
            loss = models.loss_of(model(given), wanted)
        optimizer.zero_grad(set_to_none=True)
        (loss * factor).backward()
        optimizer.step()

    return step
