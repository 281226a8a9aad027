"""Time a convolution in reduced precision, channels last, and compare what was timed last."""

import canary_models as models
import canary_timing as timing
import torch
import whole
from right import TRANSFORMS
from shapes import channels_last, gradients


def measure(shape, options, device):
    """Report three times of a shape: forward, backward, and both in deterministic mode.

    Returns:
        The worst of the timed results as a share of its bound, and which one it is.
    """
    on_gpu = device.type == "cuda"
    clock = timing.TorchClock(torch) if on_gpu else timing.WallClock()
    half = models.reduced_precision(device)
    given, weights = (channels_last(t.to(device, half)) for t in shape.tensors(options.seed))
    back = models.numbers(options.seed, "back", tuple(shape.run(given, weights).shape))
    back = channels_last(back.to(device, half))
    cache = timing.TorchCache(torch, device)
    name = "fp16" if half == torch.float16 else "bf16"
    found = []

    def forward():
        with torch.no_grad():
            return (shape.run(given, weights),)

    def both():
        return gradients(shape, given, weights, lambda _: back)

    def report(what, call):
        times, results = timing.repeat_kept(call, clock, options, before=cache)
        timing.report(f"{shape.name}-{what}", "ms", times, timing.milliseconds)
        factor = TRANSFORMS.get(name, 1)
        share, part = whole.worst(shape, given, weights, back, results, name, on_gpu, factor)
        found.append((share, f"{shape.name}-{what}, {part}"))

    models.usual_arithmetic()
    report("forward", forward)
    report("training", both)
    models.plain_arithmetic()
    report("deterministic", both)
    return max(found)
