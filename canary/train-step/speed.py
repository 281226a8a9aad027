"""How fast two larger models train, with what a training script usually sets."""

import resource
from collections import namedtuple

import canary_lines as say
import canary_models as models
import canary_timing as timing
import torch

Size = namedtuple("Size", "batch amount model data")
"""``amount``: tokens or images of a step."""
STEP_TIMES = 200
"""Single steps that are timed, for the tail; throughput is measured over several at a time."""
AT_A_TIME = 5

ON_GPU = {
    "transformer": Size(
        16, 16 * 512, lambda: models.Transformer(512, 8, 8, 512), (models.sequences, 512)
    ),
    "convnet": Size(64, 64, lambda: models.Convnet(64, 4), (models.images, 128)),
}
ON_CPU = {
    "transformer": Size(
        2, 2 * 16, lambda: models.Transformer(32, 1, 2, 16), (models.sequences, 16)
    ),
    "convnet": Size(2, 2, lambda: models.Convnet(8, 2), (models.images, 16)),
}


def names():
    """The models that are measured."""
    return list(ON_GPU)


def measure(name, options, device):
    """Report throughput, step times and peak memory of a model."""
    on_gpu = device.type == "cuda"
    size = (ON_GPU if on_gpu else ON_CPU)[name]
    clock = timing.TorchClock(torch) if on_gpu else timing.WallClock()
    models.usual_arithmetic()
    step = _stepper(size, options.seed, device)
    several = timing.repeat(step, clock, options, calls=AT_A_TIME)
    unit = "tokens/s" if name == "transformer" else "images/s"
    timing.report(f"{name}-throughput", unit, several, timing.per_second(size.amount))
    times = STEP_TIMES if on_gpu else options.repetitions
    single = [clock.seconds(step) * 1e3 for _ in range(times)]
    say.metric(f"{name}-step", "ms", single)
    peaks = [_peak(step, device) for _ in range(options.repetitions)]
    say.metric(f"{name}-memory", "MiB", peaks)


def _stepper(size, seed, device):
    make, extent = size.data
    given, wanted = (part.to(device) for part in make(seed, size.batch, extent))
    model = models.filled(size.model(), seed).to(device)
    if given.dim() == 4:
        model = model.to(memory_format=torch.channels_last)
        given = given.contiguous(memory_format=torch.channels_last)
    half = models.reduced_precision(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # Keeps gradients within fp16; AdamW does not mind a factor.
    factor = 1024.0 if half == torch.float16 else 1.0

    def step():
        with torch.autocast(device.type, dtype=half):
            loss = models.loss_of(model(given), wanted)
        optimizer.zero_grad(set_to_none=True)
        (loss * factor).backward()
        optimizer.step()

    return step


def _peak(step, device):
    """MiB at most during a step: of the GPU's allocator, on the CPU of the process."""
    if device.type != "cuda":
        step()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) / 2**20
