"""Save and load a checkpoint with one stack: compare all bits, and measure the time."""

import os
import tempfile

import another
import canary_lines as say
import canary_models as models
import canary_timing as timing
import torch

MANY, FEW = 64 << 20, 1 << 20
"""Weights of the timed checkpoint: 256 MiB, and 4 MiB on the CPU."""
PARTS = 16


def check(seed, device):
    """Report whether every number type keeps its bits."""
    # If it is on, older PyTorch fills memory of number types that it cannot fill.
    torch.use_deterministic_algorithms(False)
    names = another.KINDS + another.NEWER_KINDS
    differ, refused = [], []
    for name, tensor in another.kinds(seed, names).items():
        try:
            there = another.loaded(another.dumped({name: tensor.to(device)}), device)[name]
        except Exception:
            # PyTorch 2.1 has fp8 but cannot save it. It says so, and no numbers are lost.
            if name not in another.NEWER_KINDS:
                raise
            refused.append(name)
            continue
        if another.digests({name: there}) != another.digests({name: tensor}):
            differ.append(name)
    said = f"{', '.join(differ)} differ" if differ else "equal bits"
    also = f"; cannot save: {', '.join(refused)}" if refused else ""
    say.check("round-trip", not differ, said + also)


def measure(options, device):
    """Report the time to save and to load a larger checkpoint in memory."""
    on_gpu = device.type == "cuda"
    size = (MANY if on_gpu else FEW) // PARTS
    one = models.numbers(options.seed, "weights", (size // 64,)).repeat(64).to(device)
    kept = {f"layer.{number}": one + number for number in range(PARTS)}
    clock = timing.WallClock(torch.cuda.synchronize if on_gpu else None)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        saving = timing.repeat(lambda: torch.save(kept, path), clock, options, calls=1)
        loading = timing.repeat(lambda: another.loaded(path, device), clock, options, calls=1)
    timing.report("save", "ms", saving, timing.milliseconds)
    timing.report("load", "ms", loading, timing.milliseconds)
