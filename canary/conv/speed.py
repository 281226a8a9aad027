"""Time a convolution in reduced precision, channels last."""

import canary_models as models
import canary_timing as timing
import torch
from shapes import channels_last, gradients


def measure(shape, options, device):
    """Report three times of a shape: forward, backward, and both in deterministic mode."""
    clock = timing.TorchClock(torch) if device.type == "cuda" else timing.WallClock()
    half = models.reduced_precision(device)
    given, weights = (channels_last(t.to(device, half)) for t in shape.tensors(options.seed))
    back = torch.ones_like(shape.run(given, weights))

    cache = timing.TorchCache(torch, device)

    def forward():
        with torch.no_grad():
            shape.run(given, weights)

    def both():
        gradients(shape, given, weights, lambda _: back)

    models.usual_arithmetic()
    _report(f"{shape.name}-forward", forward, clock, options, cache)
    _report(f"{shape.name}-training", both, clock, options, cache)
    models.plain_arithmetic()
    _report(f"{shape.name}-deterministic", both, clock, options, cache)


def _report(name, call, clock, options, cache):
    times = timing.repeat(call, clock, options, before=cache)
    timing.report(name, "ms", times, timing.milliseconds)
