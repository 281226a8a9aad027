"""Attention of several kinds, its inputs, and what it is by definition."""

import math
from collections import namedtuple

import canary_models as models
import torch
from torch.nn import functional

Case = namedtuple("Case", "name batch heads queries keys width causal")
"""``queries`` and ``keys`` are how many there are; ``width`` is that of a head."""
SHARPNESS = 4.0
"""Queries are this much larger than keys, so that attention is not the same everywhere."""


def inputs(case, seed, dtype):
    """Queries, keys and values of a seed on the CPU, in a precision."""
    q = models.numbers(seed, "queries", (case.batch, case.heads, case.queries, case.width))
    k, v = (
        models.numbers(seed, what, (case.batch, case.heads, case.keys, case.width))
        for what in ("keys", "values")
    )
    return [(q * SHARPNESS).to(dtype), k.to(dtype), v.to(dtype)]


def definition(q, k, v, causal):
    """Softmax of the products of queries and keys, times values; one step after the other."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return scores.softmax(-1) @ v


def framework(q, k, v, causal):
    """The framework's own function."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def gradients(function, tensors, case, seed):
    """Output, and the gradients of queries, keys and values for a gradient of the output."""
    tensors = [tensor.detach().requires_grad_(True) for tensor in tensors]
    output = function(*tensors, case.causal)
    # Rounded to the widest half precision's digits, so that all precisions are given the same.
    back = models.numbers(seed, "gradient", tuple(output.shape)).bfloat16()
    output.backward(back.to(output))
    return [output.detach()] + [tensor.grad for tensor in tensors]
