"""Check and time hand-written Triton kernels; on a CPU, PyTorch's own functions stand in for them.

With ``TRITON_INTERPRET=1`` and a Triton in the image, its interpreter runs the kernels on a CPU.
"""

import math
import os

import canary_models as models
import canary_numerics as numerics
import canary_timing as timing
import torch

SIDES = {"cuda": 4096, "cpu": 128}
ROWS = {"cuda": (16384, 4096), "cpu": (8, 100)}
_SHARPNESS = 4.0
_PERIOD = 4099
"""Prime: no row of a matrix repeats another one."""


def measure(options, device):
    """Report a check and a metric for each kernel."""
    on_gpu = device.type == "cuda"
    clock = timing.TorchClock(torch) if on_gpu else timing.WallClock()
    cache = timing.TorchCache(torch, device)
    product, softmax = _kernels(device)
    _measure_product(product, options, device, clock)
    _measure_softmax(softmax, options, device, clock, cache)


def _kernels(device):
    if device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        import kernels

        return kernels.product, kernels.softmax
    return (
        lambda a, b, out: torch.matmul(a, b, out=out),
        lambda x, out: torch.softmax(x, dim=1, out=out),
    )


def _measure_product(product, options, device, clock):
    side = SIDES[device.type]
    a, b = (_matrix(options.seed, name, (side, side)).half().to(device) for name in "ab")
    out = torch.empty_like(a)
    times = timing.repeat(lambda: product(a, b, out), clock, options)
    timing.report("triton-product", "TFLOP/s", times, timing.per_second(2 * side**3 / 1e12))
    signs = models.numbers(options.seed, "signs", (side, numerics.VECTORS)).sign().double()
    signs = torch.where(signs == 0, torch.ones_like(signs), signs).to(device)
    share = numerics.whole_product(a, b, out, signs, output="fp16", cuts=True)
    numerics.check_whole("triton-product-right", share)


def _measure_softmax(softmax, options, device, clock, cache):
    """Report the check and metric of the softmax.

    Bound: exponents of at most ``2 s`` in size, ``s`` the sharpness, are rounded before the
    exponential, which itself is off by a few roundings; the sum adds ``sqrt(k)``.
    """
    shape = ROWS[device.type]
    x = (_matrix(options.seed, "rows", shape) * _SHARPNESS).to(device)
    out = torch.empty_like(x)
    times = timing.repeat(lambda: softmax(x, out), clock, options, before=cache)
    moved = 2 * x.numel() * x.element_size() / 1e9
    timing.report("triton-softmax", "GB/s", times, timing.per_second(moved))
    exact = torch.softmax(x.cpu().double(), dim=1)
    bound = 4 * (4 * _SHARPNESS + math.sqrt(shape[1])) * numerics.ROUNDING["fp32"]
    numerics.check_error("triton-softmax-right", numerics.error(out.cpu().double(), exact), bound)


def _matrix(seed, name, shape):
    """Return numbers in -1..1 of a seed: a line of digests, tiled."""
    line, count = models.numbers(seed, f"kernel {name}", (_PERIOD,)), math.prod(shape)
    return line.repeat(count // _PERIOD + 1)[:count].reshape(shape)
