"""Continue a training that another stack has interrupted.

A folder contains ``checkpoint.pt`` (weights, AdamW's state, tensors of every kind) and
``expected.json``: digests of the tensors, the output, and the losses of the steps that follow.
"""

import io
import json
import os

import canary_lines as say
import canary_models as models
import canary_numerics as numerics
import torch

TIME, BATCH = 16, 8
BEFORE, AFTER = 5, 10
"""Steps of the training before and after saving."""
OUTPUT, LOSS = 1e-4, 1e-4
"""Largest relative difference of output and losses from those of the other stack.

Both stacks compute in full fp32. A step of AdamW divides by small numbers, so rounding shows more
than in train-step; README.md has measured values.
"""
KINDS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8")
NEWER_KINDS = ("float8_e4m3fn", "float8_e5m2")


def save(folder, seed, device):
    """Train a little, save, and write the expected results."""
    models.plain_arithmetic()
    os.makedirs(folder, exist_ok=True)
    model, optimizer = _begun(seed, device)
    for step in range(BEFORE):
        _step(model, optimizer, seed, step)
    path = os.path.join(folder, "checkpoint.pt")
    kept = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "kinds": {kind: tensor.to(device) for kind, tensor in kinds(seed).items()},
    }
    torch.save(kept, path)
    expected = {
        "made_with": f"torch {torch.__version__}, {device.type}",
        "seed": seed,
        "digests": digests(kept),
        "output": _output(model, seed).flatten()[:64].tolist(),
        "losses": [_step(model, optimizer, seed, BEFORE + step) for step in range(AFTER)],
    }
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


def check(folder, device):
    """Load a checkpoint of another stack, and report four checks about it."""
    models.plain_arithmetic()
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
        expected = json.load(file)
    from_whom = f"saved by {expected['made_with']}"
    try:
        kept = loaded(os.path.join(folder, "checkpoint.pt"), device)
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        say.check("loads", False, f"{from_whom}: {type(error).__name__}: {lines[0][:300]}")
        return
    say.check("loads", True, from_whom)
    found, wanted = digests(kept), expected["digests"]
    differ = sorted(name for name in {**found, **wanted} if found.get(name) != wanted.get(name))
    said = f"{', '.join(differ[:5])} differ" if differ else f"{len(found)} tensors, every bit"
    say.check("values", not differ, said)
    model, optimizer = _begun(expected["seed"], device)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    output = _output(model, expected["seed"]).flatten()[:64].double()
    right = torch.tensor(expected["output"], dtype=torch.float64)
    numerics.check_error("output", numerics.error(output, right), OUTPUT)
    steps = range(BEFORE, BEFORE + len(expected["losses"]))
    losses = [_step(model, optimizer, expected["seed"], step) for step in steps]
    apart = numerics.error(torch.tensor(losses).double(), torch.tensor(expected["losses"]).double())
    numerics.check_error("resumes", apart, LOSS, f"{len(losses)} steps")


def loaded(file, device):
    """Load a file of `torch.save`, without running any code in it."""
    return torch.load(file, map_location=device, weights_only=True)


def dumped(kept):
    """Return the file of `torch.save` in memory, at its beginning."""
    file = io.BytesIO()
    torch.save(kept, file)
    file.seek(0)
    return file


def kinds(seed, names=KINDS):
    """Return a small tensor of each number type among ``names`` that this PyTorch has."""
    wide = models.numbers(seed, "kinds", (4, 8)) * 100
    return {name: wide.to(getattr(torch, name)) for name in names if hasattr(torch, name)}


def digests(kept, prefix=""):
    """Return path to digest for every tensor in nested dictionaries and lists."""
    if torch.is_tensor(kept):
        raw = kept.detach().cpu().contiguous()
        return {prefix: f"{str(raw.dtype)[6:]} {list(raw.shape)} {numerics.bits(raw)[:16]}"}
    inner = kept.items() if isinstance(kept, dict) else enumerate(kept)
    found = {}
    for name, value in inner:
        if torch.is_tensor(value) or isinstance(value, (dict, list)):
            found.update(digests(value, f"{prefix}/{name}"))
    return found


def _begun(seed, device):
    model = models.filled(models.Transformer(32, 2, 4, TIME, fused=False), seed).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)


def _step(model, optimizer, seed, step):
    device = next(model.parameters()).device
    given, wanted = (part.to(device) for part in models.sequences(seed, BATCH, TIME, step))
    loss = models.loss_of(model(given), wanted)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def _output(model, seed):
    device = next(model.parameters()).device
    with torch.no_grad():
        return model(models.sequences(seed, 1, TIME)[0].to(device)).cpu()
