"""Measure how fast two larger models train, with the usual settings of a training script."""

import resource

import canary_lines as say
import canary_models as models
import canary_numerics as numerics
import canary_timing as timing
import canary_training as training
import torch

ALLOWED = {"transformer": 0.15, "convnet": 0.6}
"""Largest error of a gradient in the 2-norm, after the timed steps and at their shape.

It finds what a step leaves out or mixes up, which is an error near 1. Half precision itself is off
by up to 0.05 and, with the batch norms of a convnet, 0.35 (on a CPU, in smaller batches).
"""
STEP_TIMES = 200
"""Single steps to time, for the tail; throughput is measured over several steps."""


def names():
    """Return the names of the measured models."""
    return list(training.ON_GPU)


def measure(name, options, device):
    """Report throughput, step times and peak memory of a model."""
    on_gpu = device.type == "cuda"
    clock = timing.TorchClock(torch) if on_gpu else timing.WallClock()
    models.usual_arithmetic()
    stepper = training.Stepper(name, options.seed, device)
    step = stepper.step
    several = timing.repeat(step, clock, options)
    amount = training.size_of(name, device).amount
    unit = "tokens/s" if name == "transformer" else "images/s"
    timing.report(f"{name}-throughput", unit, several, timing.per_second(amount))
    times = STEP_TIMES if on_gpu else options.repetitions
    single = [clock.seconds(step) * 1e3 for _ in range(times)]
    say.metric(f"{name}-step", "ms", single)
    peaks = [_peak(step, device) for _ in range(options.repetitions)]
    say.metric(f"{name}-memory", "MiB", peaks)
    error, where = stepper.error()
    numerics.check_error(f"{name}-timed", error, ALLOWED[name], f"gradient of {where}")


def _peak(step, device):
    """Return the peak MiB during a step: of the GPU's allocator, on the CPU of the process."""
    if device.type != "cuda":
        step()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) / 2**20
