"""Run one rank: a transformer whose weights are sharded over all ranks. Python 3.8 or newer."""

import canary_models as models
import canary_numerics as numerics
import canary_ranks as ranks
import canary_training as training
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

SIZES = {"cuda": (1024, 8, 16, 512, 8), "cpu": (32, 1, 2, 16, 2)}
"""Width, layers, heads, tokens, and sequences of each rank."""
ALLOWED = 0.1
"""Largest error of a gradient in the 2-norm, of the timed shape in bf16 against fp64.

On a CPU it was 0.009 in bf16; a rank whose gradients are lost makes it 1.
"""


def work(number, count, options, meeting):
    """Time steps, then compare the gradients of one more with fp64; return the report.

    Args:
        number: of this rank.
        count: number of ranks.
        options: of `canary_program`.
        meeting: URL at which the ranks find each other.
    """
    group = ranks.Group(options, number, count, meeting, number)
    models.usual_arithmetic()
    device, half = group.device, models.reduced_precision(group.device)
    width, layers, heads, time, batch = SIZES[device.type]
    model = models.filled(models.Transformer(width, layers, heads, time), options.seed).to(device)
    mesh = init_device_mesh(device.type, (count,))
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    given, wanted = (
        part.to(device) for part in models.sequences(options.seed, batch, time, number)
    )

    def gradients():
        optimizer.zero_grad(set_to_none=True)
        models.loss_of(model(given), wanted).backward()

    def step():
        gradients()
        optimizer.step()

    times = group.times(step)
    weights = {name: part.full_tensor().cpu() for name, part in model.named_parameters()}
    gradients()  # of the timed shape, with the weights that the timed steps left
    found = {name: part.grad.full_tensor().cpu() for name, part in model.named_parameters()}
    worst = _worst(found, weights, options.seed, count, device)
    digest = numerics.bits(torch.cat([part.flatten() for part in weights.values()]))
    group.leave()
    tokens = count * batch * time
    return {"worst": worst, "digest": digest, "times": times, "tokens": tokens}


def _worst(found, weights, seed, count, device):
    """Return the largest error of a gradient, and its name.

    The reference is the mean over all ranks' sequences, one after the other, on one device.
    """
    width, layers, heads, time, batch = SIZES[device.type]
    model = models.Transformer(width, layers, heads, time, fused=False).double().to(device)
    model.load_state_dict({name: part.double() for name, part in weights.items()})
    parts = [models.sequences(seed, batch, time, number) for number in range(count)]
    given, wanted = (torch.cat(each).to(device) for each in zip(*parts))
    found = {name: part.to(device) for name, part in found.items()}
    return training.gradients_error(found, model, given, wanted)
