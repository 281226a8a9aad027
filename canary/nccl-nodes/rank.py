"""Run one rank: a process with one GPU that reduces with those of all nodes. Python 3.8."""

import canary_models as models
import canary_numerics as numerics
import canary_ranks as ranks
import torch
from torch import distributed

SIZES = {
    "latency": {"cuda": 8, "cpu": 8},
    "bandwidth-1MiB": {"cuda": 1 << 20, "cpu": 1 << 12},
    "bandwidth-64MiB": {"cuda": 64 << 20, "cpu": 1 << 13},
    "bus-bandwidth": {"cuda": 512 << 20, "cpu": 1 << 14},
}
"""Bytes that are reduced."""
CHECKED = {"cuda": 4 << 20, "cpu": 1 << 12}
"""Numbers of fp32 that are compared."""
ROUNDS = 5
_LARGEST = 1021
_DIGITS = 12
"""Hexadecimal digits of a digest: 48 bits, which double precision holds."""


def work(number, first, count, options):
    """Check sums, then time every size; return the report, the same on all ranks.

    Args:
        number: of this rank on its node.
        first: rank of the node's first one among all.
        count: number of all ranks.
        options: of `canary_program`.
    """
    group = ranks.Group(options, first + number, count, "env://", number)
    wrong = group.total(sum(_wrong_sums(group, turn) for turn in range(ROUNDS)))
    apart = sum(_differ(group, options.seed, turn) for turn in range(ROUNDS))
    times = {}
    for name, sizes in SIZES.items():
        size = sizes[group.device.type]
        numbers = torch.zeros(size // 4, dtype=torch.float32, device=group.device)
        # The largest number is taken, so that repetition does not overflow.
        taken = group.times(
            lambda numbers=numbers: distributed.all_reduce(numbers, op=distributed.ReduceOp.MAX)
        )
        times[name] = size, taken
    group.leave()
    sums = ROUNDS * CHECKED[group.device.type]
    return {"wrong": int(wrong), "sums": sums, "apart": apart, "rounds": ROUNDS, "times": times}


def _wrong_sums(group, turn):
    """Return the number of wrong sums of whole numbers, which are exact in any order."""
    places = torch.arange(CHECKED[group.device.type], dtype=torch.int32, device=group.device)

    def of(rank):
        return ((places * (rank + 1) + 7 * turn) % _LARGEST).float()

    numbers = of(group.rank)
    distributed.all_reduce(numbers)
    return int((numbers != sum(of(rank) for rank in range(group.ranks))).sum())


def _differ(group, seed, turn):
    """Return whether ranks hold different bits of a sum of fractions."""
    fractions = models.numbers(seed, f"{group.rank} {turn}", (CHECKED["cpu"],)).to(group.device)
    distributed.all_reduce(fractions)
    digest = int(numerics.bits(fractions)[:_DIGITS], 16)
    return group.agreed(digest) != -group.agreed(-digest)
