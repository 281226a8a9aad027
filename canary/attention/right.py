"""Compare every available backend with fp64 on the CPU, forward and backward."""

import canary_lines as say
import canary_models as models
import canary_numerics as numerics
import torch
from backends import FUSED, NAMES, NotOffered, using
from cases import Case, definition, framework, gradients, inputs

CASES = (
    Case("plain", 2, 4, 256, 256, 64, False),
    Case("causal", 2, 4, 256, 256, 64, True),
    Case("wide", 1, 2, 128, 128, 128, True),
    Case("odd", 1, 3, 197, 197, 64, False),
    Case("crossed", 2, 4, 64, 320, 64, False),
)
PARTS = ("output", "gradient of queries", "gradient of keys", "gradient of values")
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ROUNDINGS = {"fp32": 256, "fp16": 12, "bf16": 12}
"""Largest error in roundings, as a share of the largest value.

A fused backend rounds probabilities, sums and the result: on CPUs half precisions were at most 4
away. In fp32, exponents of sums of products add to it: at most 25. TF32 is 8192 of them.
"""


def check(seed, device, repetitions, steps):
    """Report a check for each backend, the cases taken, and whether a fused one took any."""
    models.plain_arithmetic()
    torch.use_deterministic_algorithms(False)
    wanted = {}
    taken = dict.fromkeys(NAMES, 0)
    for name in NAMES:
        worst, refused = None, ""
        for case, precision in _every(device):
            key = case, precision
            given = inputs(case, seed, PRECISIONS[precision])
            if key not in wanted:
                exact = [tensor.double() for tensor in given]
                wanted[key] = gradients(definition, exact, case, seed)
            try:
                error, part = _error(name, given, case, seed, device, wanted[key])
            except NotOffered as why:
                refused = str(why)
                continue
            taken[name] += 1
            bound = ROUNDINGS[precision] * numerics.ROUNDING[precision]
            found = error / bound, error, bound, f"{case.name} in {precision}, {part}"
            worst = max(worst or found, found)
        if worst:
            numerics.check_error(name, *worst[1:])
        else:
            say.check(name, True, f"not available here: {refused}")
        steps.done()
    fused = [name for name in FUSED if taken[name]]
    said = ", ".join(f"{name} {count}" for name, count in taken.items())
    say.check("fused", bool(fused), f"cases: {said}")
    # It does not scatter, but the judge wants as many values as of any metric.
    say.metric("offered", "1", [sum(taken.values())] * repetitions)


def _every(device):
    old = device.type == "cuda" and models.reduced_precision(device) == torch.float16
    for case in CASES:
        for precision in PRECISIONS:
            if not (old and precision == "bf16"):
                yield case, precision


def _error(name, given, case, seed, device, wanted):
    """Return the largest error, and its part."""
    there = [tensor.to(device) for tensor in given]
    results = using(name, lambda: gradients(framework, there, case, seed))
    return max(
        (numerics.error(result.cpu().double(), right), part)
        for part, result, right in zip(PARTS, results, wanted)
    )
