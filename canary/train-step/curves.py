"""Compare loss curves of two small models with curves that were computed in fp64.

`make_reference.py` writes ``reference.json``.
"""

import contextlib
import json
import os

import canary_models as models
import canary_numerics as numerics
import torch

REFERENCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference.json")
STEPS = 40
BATCH, TIME, SIDE = 16, 32, 16
MODELS = {
    "transformer": lambda: models.Transformer(64, 2, 4, TIME, fused=False),
    "convnet": lambda: models.Convnet(16, 2),
}
FULL, REDUCED = 2e-5, 0.03
"""Largest difference of a loss from the reference's, as a share of the first loss.

In full fp32 on two CPU builds the curves stay within 3e-7, in bf16 within 7e-3 (README.md).
"""


def check(name, seed, device):
    """Train in fp32 twice and in reduced precision once, and report three checks."""
    models.plain_arithmetic()
    wanted = reference(name, seed)
    losses, digest = train(name, seed, device, torch.float32)
    again = train(name, seed, device, torch.float32)[1]
    half = models.reduced_precision(device)
    reduced, _ = train(name, seed, device, torch.float32, half)
    _held(f"{name}-fp32", losses, wanted, FULL)
    _held(f"{name}-reduced", reduced, wanted, REDUCED, f"{half}".replace("torch.", ""))
    numerics.check_same(f"{name}-same-bits", [digest, again], "trainings, all weights")


def reference(name, seed):
    """Return losses in fp64, stored for the shipped seeds and computed for others."""
    with open(REFERENCE, encoding="utf-8") as file:
        stored = json.load(file)["losses"].get(str(seed), {}).get(name)
    return stored or train(name, seed, torch.device("cpu"), torch.float64)[0]


def train(name, seed, device, dtype, autocast=None):
    """Train a model from its seed's weights on its seed's data.

    Args:
        name: name in `MODELS`.
        seed: seed of weights and data.
        device: device to train on.
        dtype: type of weights and inputs.
        autocast: precision of products, if different.

    Returns:
        The loss of each step, and a digest of the final weights.
    """
    model = models.filled(MODELS[name](), seed).to(device=device, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        given, wanted = _batch(name, seed, step)
        given = given.to(device, dtype if given.is_floating_point() else given.dtype)
        with _within(device, autocast):
            outputs = model(given)
        loss = models.loss_of(outputs, wanted.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = torch.cat([weight.detach().flatten() for weight in model.state_dict().values()])
    return losses, numerics.bits(weights)


def _batch(name, seed, step):
    if name == "transformer":
        return models.sequences(seed, BATCH, TIME, step)
    return models.images(seed, BATCH, SIDE, step)


def _within(device, autocast):
    if autocast is None:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=autocast)


def _held(name, losses, wanted, bound, what=""):
    """Report how far a curve is from the expected one; a short one is infinitely far."""
    apart = [abs(a - b) / wanted[0] for a, b in zip(losses, wanted)]
    whole = len(losses) == len(wanted) and all(distance == distance for distance in apart)
    numerics.check_error(name, max(apart) if whole else float("inf"), bound, what)
