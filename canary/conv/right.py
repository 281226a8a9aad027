"""Compare convolutions with fp64 on the CPU, in each precision, autotuned and deterministic."""

import canary_lines as say
import canary_models as models
import canary_numerics as numerics
import torch
from shapes import SHAPES, channels_last, gradients, smaller, smallest
from whole import PARTS

PRECISIONS = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
TRANSFORMS = {"fp32": 8, "fp16": 8}
"""Factor for Winograd and FFT algorithms, which lose more than a plain sum.

F(4x4, 3x3) written out in fp32 is 27 times as far from fp64 as the plain sum for the shape
``square``: 1.2 times the plain bound. A result in TF32 is beyond eight times the bound of fp32 in
every shape. Source of the algorithm: Lavin and Gray, arXiv 1509.09308.
"""
RUNS = 4


def check(seed, device, steps):
    """Report the worst result of each precision, and whether deterministic runs have equal bits."""
    precisions = _possible(device)
    worst = dict.fromkeys(precisions, (0.0, 1.0, "no result"))
    unequal = []
    for shape in SHAPES:
        shape = smaller(shape) if device.type == "cuda" else smallest(shape)
        for name in precisions:
            found, differs = _compare(shape, name, seed, device)
            # The result that uses up most of its bound.
            worst[name] = max([worst[name], *found], key=lambda each: each[0] / each[1])
            unequal += [f"{shape.name} in {name}"] if differs else []
        steps.done()
    for name, (error, bound, what) in worst.items():
        numerics.check_error(name, error, bound, what)
    if device.type == "cuda" and "bf16" not in precisions:
        say.check("bf16", True, "this GPU has no bf16")
    runs = f"in {RUNS} runs each"
    said = f"{', '.join(unequal)} differ {runs}" if unequal else f"all results are equal {runs}"
    say.check("same-bits", not unequal, said)


def _possible(device):
    """Return the available precisions: GPUs have bf16 from 8.0 on, CPUs fp16 with newer PyTorch."""
    if device.type == "cuda":
        old = models.reduced_precision(device) == torch.float16
        return [name for name in PRECISIONS if not (old and name == "bf16")]
    here = torch.ones(1, 1, 3, 3)
    possible = []
    for name, dtype in PRECISIONS.items():
        try:
            torch.nn.functional.conv2d(here.to(dtype), here.to(dtype))
        except RuntimeError as error:
            print(f"conv: no {name} on this CPU: {error}")
        else:
            possible.append(name)
    return possible


def _compare(shape, name, seed, device):
    """Return errors with their bounds and places, and whether deterministic runs differ."""
    dtype = PRECISIONS[name]
    # The reference starts from the device's inputs, so that only the convolution is judged.
    given, weights = (t.to(dtype) for t in shape.tensors(seed))
    back = _gradient_of_seed(seed)
    wanted = gradients(shape, given.double(), weights.double(), lambda o: back(o, dtype).double())
    there = [channels_last(t.to(device)) for t in (given, weights)]

    def once():
        return gradients(shape, *there, lambda o: channels_last(back(o, dtype)))

    models.usual_arithmetic()
    models.tf32(name == "tf32")
    tuned = once()
    models.plain_arithmetic()
    models.tf32(name == "tf32")
    runs = [once() for _ in range(RUNS)]
    found = []
    for how, results in (("autotuned", tuned), ("deterministic", runs[0])):
        for part, result, right, terms in zip(PARTS, results, wanted, shape.terms()):
            error = numerics.error(result.cpu().double(), right)
            found.append((error, _bound(name, terms), f"{shape.name}, {part}, {how}"))
    return found, len({tuple(map(numerics.bits, run)) for run in runs}) > 1


def _bound(name, terms):
    inputs = "tf32" if name == "tf32" else None
    output = "fp32" if name == "tf32" else name
    return TRANSFORMS.get(name, 1) * numerics.product_bound(inputs, terms, output=output)


def _gradient_of_seed(seed):
    """Return a function that makes the output gradient of a seed in a given precision."""
    made = {}

    def back(output, dtype):
        key = tuple(output.shape)
        if key not in made:
            made[key] = models.numbers(seed, "gradient", key)
        return made[key].to(dtype).to(output.device)

    return back
