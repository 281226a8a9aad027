"""Define kinds of attention, their inputs, and the reference computation."""

import math
from collections import namedtuple

import canary_models as models
import torch
from torch.nn import functional

Case = namedtuple("Case", "name batch heads queries keys width causal")
"""Fields: ``queries`` and ``keys`` are counts; ``width`` is that of a head."""
SHARPNESS = 4.0
"""Factor of queries over keys, so that attention is not uniform."""


def inputs(case, seed, dtype):
    """Return queries, keys and values of a seed on the CPU, in a precision."""
    q = models.numbers(seed, "queries", (case.batch, case.heads, case.queries, case.width))
    k, v = (
        models.numbers(seed, what, (case.batch, case.heads, case.keys, case.width))
        for what in ("keys", "values")
    )
    return [(q * SHARPNESS).to(dtype), k.to(dtype), v.to(dtype)]


def definition(q, k, v, causal):
    """Compute the softmax of the products of queries and keys, times values, step by step."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return scores.softmax(-1) @ v


def framework(q, k, v, causal):
    """Call the framework's own function."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def gradients(function, tensors, case, seed):
    """Return the output, and gradients of the inputs for a given output gradient."""
    tensors = [tensor.detach().requires_grad_(True) for tensor in tensors]
    output = function(*tensors, case.causal)
    # Rounded to the widest half precision's digits, so that all precisions get the same numbers.
    back = models.numbers(seed, "gradient", tuple(output.shape)).bfloat16()
    output.backward(back.to(output))
    return [output.detach()] + [tensor.grad for tensor in tensors]
