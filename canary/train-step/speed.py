"""Measure how fast two larger models train, with the usual settings of a training script."""

import resource

import canary_lines as say
import canary_models as models
import canary_timing as timing
import canary_training as training
import torch

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
    step = training.stepper(name, options.seed, device)
    several = timing.repeat(step, clock, options)
    amount = training.size_of(name, device).amount
    unit = "tokens/s" if name == "transformer" else "images/s"
    timing.report(f"{name}-throughput", unit, several, timing.per_second(amount))
    times = STEP_TIMES if on_gpu else options.repetitions
    single = [clock.seconds(step) * 1e3 for _ in range(times)]
    say.metric(f"{name}-step", "ms", single)
    peaks = [_peak(step, device) for _ in range(options.repetitions)]
    say.metric(f"{name}-memory", "MiB", peaks)


def _peak(step, device):
    """Return the peak MiB during a step: of the GPU's allocator, on the CPU of the process."""
    if device.type != "cuda":
        step()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) / 2**20
