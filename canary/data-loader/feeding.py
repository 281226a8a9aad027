"""Check what a loader delivers, and time it: alone, its copies, and next to work of the GPU."""

import canary_lines as say
import canary_models as models
import canary_timing as timing
import torch
from samples import SIZES, Images, loader

WORK = {"cuda": (4096, 16), "cpu": (32, 2)}
"""Side and number of the products that stand for a training step."""
BATCHES = {"cuda": 8, "cpu": 2}
"""Batches of one call."""
_ENDLESS = 1 << 40
_COPIES = 20


def check_epoch(device):
    """Compare every sample of an epoch on the device with the data it was made of."""
    size = SIZES[device.type]
    images = Images(size)
    numbers, wrong, workers = [], 0, set()
    for batch, which, made_by in loader(images, size, device):
        there = batch.to(device, non_blocking=True)
        right = torch.stack([images.image(int(number)) for number in which])
        wrong += int((there.cpu() != right).flatten(1).any(1).sum())
        numbers += which.tolist()
        workers |= set(made_by.tolist())
    in_order = numbers == list(range(size.epoch))
    message = f"{len(set(numbers))} of {size.epoch} samples came, {wrong} of them wrong"
    message += "" if in_order else ", in another order"
    say.check("complete", in_order and not wrong, message)
    message = f"{len(workers)} of {size.workers} workers delivered"
    say.check("workers", workers == set(range(size.workers)), message)


def check_copies(device):
    """Report whether batches are page-locked, and whether their copies leave the host free."""
    if device.type != "cuda":
        say.skip("pinned", "a CPU needs no page-locked memory")
        say.skip("asynchronous", "there is no GPU to copy to")
        return
    size = SIZES[device.type]
    batch = next(iter(loader(Images(size), size, device)))[0]
    say.check("pinned", batch.is_pinned(), f"batches of {batch.numel() * 4 >> 20} MiB")
    target = torch.empty_like(batch, device=device)
    host, whole = timing.WallClock(), timing.WallClock(torch.cuda.synchronize)
    started = []

    def copies():
        for _ in range(_COPIES):
            target.copy_(batch, non_blocking=True)

    whole.seconds(copies)
    total = whole.seconds(lambda: started.append(host.seconds(copies)))
    share = started[0] / total
    message = f"the host is done after {100 * share:.0f} % of the time of {_COPIES} copies"
    say.check("asynchronous", share < 0.5, message)


def measure_copies(options, device):
    """Report the bandwidth of copies of a batch to the device."""
    size, on_gpu = SIZES[device.type], device.type == "cuda"
    clock = timing.WallClock(torch.cuda.synchronize if on_gpu else None)
    images = Images(size)
    batch = torch.stack([images.image(number) for number in range(size.batch)])
    target = torch.empty_like(batch, device=device)
    moved = batch.numel() * batch.element_size() / 1e9
    sources = {"pinned": batch.pin_memory() if on_gpu else batch, "pageable": batch}
    for name, source in sources.items():

        def copy(source=source):
            target.copy_(source, non_blocking=True)

        times = timing.repeat(copy, clock, options)
        timing.report(f"{name}-copy", "GB/s", times, timing.per_second(moved))


def measure_loader(options, device):
    """Report the rate of the loader alone, and what waiting adds to a step."""
    size, on_gpu = SIZES[device.type], device.type == "cuda"
    clock = timing.WallClock(torch.cuda.synchronize if on_gpu else None)
    batches, step = BATCHES[device.type], _step(options.seed, device)
    coming = iter(loader(Images(size, _ENDLESS), size, device))
    there = next(coming)[0].to(device)

    def load():
        for _ in range(batches):
            next(coming)[0].to(device, non_blocking=True)

    def fed():
        for _ in range(batches):
            step(next(coming)[0].to(device, non_blocking=True))

    def resident():
        for _ in range(batches):
            step(there)

    times = timing.repeat(load, clock, options)
    timing.report("rate", "images/s", times, timing.per_second(batches * size.batch))
    alone = timing.repeat(resident, clock, options)
    shared = timing.repeat(fed, clock, options)
    usual = sorted(alone.values)[len(alone.values) // 2]
    timing.report("fed", "1", shared, lambda seconds: seconds / usual)


def _step(seed, device):
    """Return a function that computes what a training step would, and looks at the batch."""
    side, products = WORK[device.type]
    matrix = models.numbers(seed, "work", (64, side)).repeat(side // 64 + 1, 1)[:side]
    matrix = matrix.to(device, models.reduced_precision(device))

    def step(batch):
        result = matrix
        for _ in range(products):
            result = (matrix @ result) / side
        return result.sum() + batch.mean()

    return step
