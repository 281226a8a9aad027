"""Compare outputs and gradients of a compiled model with eager execution in fp64 on the CPU.

Bound, as a share of the largest value of an output or gradient: about `_ROUNDINGS` results of a
layer are rounded on the way forward, and as many on the way back. Errors of random sign add up as
the square root of their number ``S``; four standard deviations are ``4 sqrt(S) u`` (the model of
Higham and Mary, SIAM J. Sci. Comput. 41, 2019). In fp32 each result is a sum of up to ``k`` terms
that are rounded one by one, which adds the factor ``sqrt(k)``.
"""

import math

import canary_lines as say
import canary_models as models
import canary_numerics as numerics
import torch
from graphs import Compiler, forget

WIDTH, HEADS, TIME, BATCH = 64, 4, 32, 4
LAYERS = {"cuda": 2, "cpu": 1}
OTHER_BATCHES = {"cuda": (6, 7, 9), "cpu": (6, 7)}
ALLOWED_GRAPHS = 2
"""One for the first size, and one for all others."""
_ROUNDINGS = 8


def check(seed, device):
    """Report whether the model compiles, is right, and is not compiled too often.

    Returns:
        Whether it compiles.
    """
    models.plain_arithmetic()
    torch.use_deterministic_algorithms(False)
    layers = LAYERS[device.type]
    exact = _model(seed, layers, torch.device("cpu"), torch.float64)
    wanted = _results(exact, seed, BATCH)
    compiler = Compiler(device)
    precisions = {"fp32": torch.float32, "reduced": models.reduced_precision(device)}
    for name, dtype in precisions.items():
        forget()
        before = compiler.graphs
        model = _model(seed, layers, device, dtype)
        compiled = compiler.compiled(model)
        try:
            found = _results(compiled, seed, BATCH, model)
        except Exception as error:
            say.check("compiles", False, f"{name}: {_words(error)}")
            return False
        worst, what = _worst(found, wanted)
        eager, _ = _worst(_results(model, seed, BATCH), wanted)
        message = f"{what}; eager is at {eager:.3g}"
        numerics.check_error(f"{name}-right", worst, _bound(layers, dtype), message)
        if name == "fp32":
            say.check("compiles", compiler.graphs == 1, f"graphs: {compiler.graphs}, allowed 1")
            sizes = BATCH, *OTHER_BATCHES[device.type]
            for batch in (*sizes, BATCH):
                _results(compiled, seed, batch, model)
            graphs = compiler.graphs - before
            message = f"graphs for {len(sizes)} sizes: {graphs}, allowed {ALLOWED_GRAPHS}"
            say.check("recompiles", graphs <= ALLOWED_GRAPHS, message)
    return True


def _model(seed, layers, device, dtype):
    model = models.Transformer(WIDTH, layers, HEADS, TIME, fused=False)
    return models.filled(model.double(), seed).to(device, dtype)


def _results(model, seed, batch, weights=None):
    """Return the outputs, and the gradients by name, of one step forwards and back."""
    weights = weights or model
    weights.zero_grad(set_to_none=True)
    device = next(weights.parameters()).device
    given, wanted = (part.to(device) for part in models.sequences(seed, batch, TIME))
    outputs = model(given)
    models.loss_of(outputs, wanted).backward()
    every = {"outputs": outputs.detach()}
    every.update((f"gradient of {name}", p.grad) for name, p in weights.named_parameters())
    return {name: value.cpu().double() for name, value in every.items()}


def _worst(found, wanted):
    return max((numerics.error(value, wanted[name]), name) for name, value in found.items())


def _bound(layers, dtype):
    names = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
    steps = 2 * (_ROUNDINGS * layers + 4)
    terms = max(4 * WIDTH, BATCH * TIME) if dtype == torch.float32 else 1
    return 4 * math.sqrt(steps * terms) * numerics.ROUNDING[names[dtype]]


def _words(error):
    """Return the first lines of an error, without the advice that follows."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' / '.join(lines)}"[:400]
