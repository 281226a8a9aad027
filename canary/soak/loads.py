"""Provide the loads that keep the GPU busy."""

import time

import canary_models as models
import canary_numerics as numerics
import canary_training as training
import torch
from torch.nn import functional

AT_LEAST = 0.25
"""Approximate seconds of a batch of calls, between two looks at the GPU."""


def load(name, seed, device):
    """Return a function that does one piece of work."""
    models.usual_arithmetic()
    if name in training.ON_GPU:
        return training.Stepper(name, seed, device).step
    half = models.reduced_precision(device)
    side = 4096 if device.type == "cuda" else 64
    if name == "gemm":
        left, right = (models.numbers(seed, w, (64, side)).to(device, half) for w in "ab")
        left, right = (part.repeat(side // 64, 1) for part in (left, right))
        return lambda: left @ right
    shape = (4, 16, 2048, 64) if device.type == "cuda" else (1, 1, 32, 16)
    q, k, v = (models.numbers(seed, what, shape).to(device, half) for what in "qkv")
    return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def keep_at(work, seconds, device, look):
    """Work for a given time.

    Args:
        work: function from `load`.
        seconds: approximate duration; at least two batches are done.
        device: device of the work.
        look: called while the GPU is still busy, after each batch was submitted.

    Returns:
        Milliseconds of one piece of work, the median over batches.
    """
    models.usual_arithmetic()
    calls = max(int(AT_LEAST / max(_timed(work, 1, device, look), 1e-5)), 1)
    calls = min(calls, max(int(calls * seconds / AT_LEAST / 2), 1))
    end = time.monotonic() + seconds
    times = [_timed(work, calls, device, look)]
    while not times[1:] or time.monotonic() < end:
        times.append(_timed(work, calls, device, look) / calls)
    del times[0]  # the first batch only determines the batch size
    return sorted(times)[len(times) // 2] * 1e3


def fingerprint(works, seed, device):
    """Return digests of what the timed products and attention give, and of one in full fp32."""
    found = [numerics.bits(works[name]()) for name in ("gemm", "attention") if name in works]
    models.plain_arithmetic()
    side = 1024 if device.type == "cuda" else 64
    left, right = (models.numbers(seed, what, (side, side)).to(device) for what in "lr")
    return "".join([*found, numerics.bits(left @ right)])


def _timed(work, calls, device, look):
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    look()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
