"""Time a compiled transformer, its gain over eager execution, and the compiler itself."""

import copy

import canary_lines as say
import canary_models as models
import canary_numerics as numerics
import canary_timing as timing
import canary_training as training
import torch
from graphs import Compiler, forget

SIZES = {"cuda": (512, 8, 8, 512, 16), "cpu": (32, 1, 2, 16, 2)}
"""Width, layers, heads, tokens, batch."""
ALLOWED = 0.2
"""Largest error of a row of outputs, or of a gradient, in the 2-norm.

It finds what a compiled model leaves out; weights in bf16 were 0.03 off on a CPU.
"""
KERNEL_ELEMENTS = {"cuda": (1024, 1024), "cpu": (8, 8)}


def measure(options, device):
    """Report the times of compiled execution, its gain, and whether anything was compiled."""
    forget()
    models.usual_arithmetic()
    on_gpu = device.type == "cuda"
    clock = timing.TorchClock(torch) if on_gpu else timing.WallClock()
    width, layers, heads, time, batch = SIZES[device.type]
    model = models.filled(models.Transformer(width, layers, heads, time), options.seed)
    model = model.to(device, models.reduced_precision(device))
    given, wanted = (part.to(device) for part in models.sequences(options.seed, batch, time))
    compiler = Compiler(device)
    compiled = compiler.compiled(model)

    def forward():
        with torch.no_grad():
            compiled(given)

    def step(execute=compiled):
        model.zero_grad(set_to_none=True)
        models.loss_of(execute(given), wanted).backward()

    forward()
    step()
    before = compiler.graphs
    times = timing.repeat(forward, clock, options)
    timing.report("forward", "ms", times, timing.milliseconds)
    ours = timing.repeat(step, clock, options)
    timing.report("training", "ms", ours, timing.milliseconds)
    eager = timing.repeat(lambda: step(model), clock, options)
    gains = [slow / fast for slow, fast in zip(eager.values, ours.values)]
    say.metric("gain", "1", gains)
    _check_timed(model, compiled, step, given, wanted)
    more = compiler.graphs - before
    say.check("steady", not more, f"graphs compiled after the first calls: {more}")


def _check_timed(model, compiled, step, given, wanted):
    """Compare outputs and gradients of the timed shape with eager execution in fp64."""
    step()
    found = {name: part.grad for name, part in model.named_parameters()}
    exact = copy.deepcopy(model).double()
    worst = training.gradients_error(found, exact, given, wanted)
    with torch.no_grad():
        outputs = compiled(given)
        for number in range(len(given)):
            right = exact(given[number : number + 1])[0]
            worst = max(worst, (numerics.rows_error(outputs[number].double(), right), "outputs"))
    numerics.check_error("timed", worst[0], ALLOWED, worst[1])


def measure_compiler(options, device):
    """Report the time from a new function to its first result."""
    compiler = Compiler(device)
    given = models.numbers(options.seed, "elements", KERNEL_ELEMENTS[device.type]).to(device)
    clock = timing.WallClock(torch.cuda.synchronize if device.type == "cuda" else None)
    made = []

    def value(look):
        made.append(None)
        factor = 1 + len(made) / 4096  # a constant of the code, so that no cache has it
        forget()

        def scaled(x):
            return torch.relu(x * factor).sum(-1)

        return clock.seconds(lambda: compiler.compiled(scaled)(given), look)

    timing.report("compile", "s", timing.measure(value, options), lambda seconds: seconds)
