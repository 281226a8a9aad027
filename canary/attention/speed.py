"""Time attention with the backend that the framework chooses by itself."""

import canary_models as models
import canary_timing as timing
import torch
from cases import Case, framework, inputs

CASES = (
    Case("causal-64", 4, 16, 2048, 2048, 64, True),
    Case("causal-128", 4, 8, 2048, 2048, 128, True),
    Case("full-64", 4, 16, 2048, 2048, 64, False),
    Case("decode", 16, 16, 1, 4096, 128, False),
)
TRAINED = ("causal-64", "causal-128", "full-64")


def measure(case, options, device):
    """Report the time forward and, for training cases, forward and backward."""
    on_gpu = device.type == "cuda"
    clock = timing.TorchClock(torch) if on_gpu else timing.WallClock()
    if not on_gpu:
        case = case._replace(batch=1, heads=1, queries=min(case.queries, 32), keys=32)
    models.usual_arithmetic()
    half = models.reduced_precision(device)
    given = [tensor.to(device) for tensor in inputs(case, options.seed, half)]

    def forward():
        with torch.no_grad():
            framework(*given, case.causal)

    cache = timing.TorchCache(torch, device)
    tensors = [tensor.requires_grad_(True) for tensor in given]
    back = torch.ones_like(framework(*given, case.causal))

    def both():
        torch.autograd.grad(framework(*tensors, case.causal), tensors, back)

    _report(f"{case.name}-forward", forward, clock, options, cache)
    if case.name in TRAINED:
        _report(f"{case.name}-training", both, clock, options, cache)


def _report(name, call, clock, options, cache):
    times = timing.repeat(call, clock, options, before=cache)
    timing.report(name, "ms", times, timing.milliseconds)
