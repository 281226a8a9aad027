"""Run the collectives of torch.distributed: exact results at the timed sizes, and their times.

Import it after `canary_env.torch`. Ranks send whole numbers that follow from rank, place and turn;
sums of them are exact in fp32 in any order, so every element has one right value. What is compared
is all of the buffers that are timed. Python 3.8 or newer, PyTorch 1.13 or newer.
"""

import warnings

import canary_lines as say
import canary_models as models
import canary_numerics as numerics
import canary_ranks as ranks
import canary_timing as timing
import torch
from torch import distributed

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "pairs")
ELEMENT = 4
FEW = 1 << 20
"""Numbers that are made and compared at once."""
_LARGEST = 1021
_ROUNDS, _FRACTIONS = 5, 1 << 12
_DIGITS = 12
"""Hexadecimal digits of a digest: 48 bits, which double precision holds."""


def work(number, first, count, options, meeting, sizes):
    """Check and time every collective at its sizes; runs in each rank, see `canary_ranks.reports`.

    Args:
        number: of this rank on its node.
        first: rank of the node's first one among all.
        count: number of all ranks.
        options: of `canary_program`.
        meeting: URL at which the ranks find each other.
        sizes: metric to one of `KINDS` and the bytes by device.

    Returns:
        For each metric the kind, the bytes and the times of the slowest rank; wrong and all
        elements by kind, at least those of this rank; and the rounds in which ranks held different
        bits.
    """
    # Newer releases call some of these functions by another name.
    warnings.simplefilter("ignore", FutureWarning)
    group = ranks.Group(options, first + number, count, meeting, number)
    elements = dict.fromkeys(KINDS, 0)
    wrong, times = dict(elements), {}
    for metric, (kind, by_device) in sizes.items():
        size = by_device[group.device.type]
        shifts = range(1, count) if kind == "pairs" else (1,)
        taken = []
        for shift in shifts:
            exchange = Exchange(group, kind, size, shift)
            own = exchange.wrong(0)
            bad = max(group.total(own), own)  # the total is a sum of the library under test
            if not bad:  # ranks whose all-reduce is wrong do not agree on the number of calls
                exchange.rest()
                taken.append(group.times(exchange.run))
                own = exchange.wrong_as_timed() + exchange.wrong(1)
                bad = max(group.total(own), own)
            wrong[kind] += int(bad)
            elements[kind] += count * exchange.elements
        if len(taken) == len(shifts):
            times[metric] = kind, size, timing.slowest(taken)
    apart = sum(_differ(group, options.seed, turn) for turn in range(_ROUNDS))
    group.leave()
    return {"times": times, "wrong": wrong, "elements": elements, "apart": apart}


class Exchange:
    """One collective at one size, on the buffers that are timed.

    Attributes:
        elements: numbers that this rank receives.

    Args:
        group: `canary_ranks.Group`.
        kind: one of `KINDS`.
        size: bytes, as nccl-tests counts them: of the longer of a rank's two buffers.
        shift: of pairs, how many ranks further each one sends.
    """

    def __init__(self, group, kind, size, shift=1):
        self._group, self._kind = group, kind
        parts = 1 if kind in ("all-reduce", "pairs") else group.ranks
        self._part = max(size // ELEMENT // parts, 1)
        whole = self._part * parts
        sent = self._part if kind == "all-gather" else whole
        self.elements = self._part if kind == "reduce-scatter" else whole
        self._sent = torch.zeros(sent, device=group.device)
        in_place = kind == "all-reduce"
        self._came = self._sent if in_place else torch.zeros(self.elements, device=group.device)
        rank = group.rank
        self._to, self._from = ((rank + by) % group.ranks for by in (shift, -shift))

    def run(self):
        """Exchange once."""
        sent, came = self._sent, self._came
        if self._kind == "all-reduce":
            distributed.all_reduce(came)
        elif self._kind == "all-gather":
            distributed.all_gather_into_tensor(came, sent)
        elif self._kind == "reduce-scatter":
            distributed.reduce_scatter_tensor(came, sent)
        elif self._kind == "all-to-all":
            distributed.all_to_all_single(came, sent)
        else:
            both = (distributed.isend, sent, self._to), (distributed.irecv, came, self._from)
            for running in distributed.batch_isend_irecv([distributed.P2POp(*p) for p in both]):
                running.wait()

    def wrong(self, turn):
        """Exchange new numbers, and return how many of this rank's are wrong."""
        for at in range(0, len(self._sent), FEW):
            part = self._sent[at : at + FEW]
            part.copy_(self._numbers(self._group.rank, at, len(part), turn))
        if self._came is not self._sent:
            self._came.fill_(-1.0)
        self.run()
        return self._differing(turn)

    def rest(self):
        """Prepare to be timed: sums in place that are repeated must not overflow."""
        if self._kind == "all-reduce":
            self._came.zero_()

    def wrong_as_timed(self):
        """Return how many numbers are wrong after the timing, as the last timed call left them."""
        if self._kind == "all-reduce":
            return int(torch.count_nonzero(self._came))
        return self._differing(0)

    def _differing(self, turn):
        differing = 0
        for at in range(0, self.elements, FEW):
            found = self._came[at : at + FEW]
            differing += int((found != self._right(at, len(found), turn)).sum())
        return differing

    def _right(self, at, count, turn):
        """Return the numbers that belong to some places of the received buffer."""
        group, own = self._group, self._group.rank * self._part
        if self._kind == "all-reduce":
            return sum(self._numbers(rank, at, count, turn) for rank in range(group.ranks))
        if self._kind == "reduce-scatter":
            return sum(self._numbers(rank, own + at, count, turn) for rank in range(group.ranks))
        if self._kind == "pairs":
            return self._numbers(self._from, at, count, turn)
        places = torch.arange(at, at + count, device=group.device)
        sender = torch.div(places, self._part, rounding_mode="floor")
        places = places % self._part + (own if self._kind == "all-to-all" else 0)
        return _number(sender, places, turn)

    def _numbers(self, rank, at, count, turn):
        return _number(rank, torch.arange(at, at + count, device=self._group.device), turn)


def _number(rank, places, turn):
    return ((places * (rank + 1) + 7 * turn) % _LARGEST).float()


def _differ(group, seed, turn):
    """Return whether ranks hold different bits of a sum of fractions."""
    fractions = models.numbers(seed, f"{group.rank} {turn}", (_FRACTIONS,)).to(group.device)
    distributed.all_reduce(fractions)
    digest = int(numerics.bits(fractions)[:_DIGITS], 16)
    return group.agreed(digest) != -group.agreed(-digest)


def report(reports, count, units):
    """Report the checks and metrics of `work`.

    Args:
        reports: what the ranks of this node returned.
        count: number of all ranks.
        units: unit of the metrics that are times, ``us``; the others are ``GB/s`` on the bus.
    """
    found = reports[0]
    for kind in KINDS:
        wrong, elements = max(each["wrong"][kind] for each in reports), found["elements"][kind]
        if elements:
            message = f"{wrong} of {elements} numbers are wrong, on {count} ranks"
            say.check(f"{kind}-right", not wrong, message)
    message = f"in {found['apart']} of {_ROUNDS} rounds ranks held other bits"
    say.check("agree", not found["apart"], message)
    for name, (kind, size, taken) in found["times"].items():
        times = timing.Times(*taken)
        if name in units:
            timing.report(name, "us", times, timing.microseconds)
        else:
            timing.report(name, "GB/s", times, timing.per_second(on_bus(kind, size, count) / 1e9))


def on_bus(kind, size, count):
    """Return the bytes that each GPU sends, as nccl-tests counts (doc/PERFORMANCE.md)."""
    if kind == "pairs":
        return size
    return size * (2 if kind == "all-reduce" else 1) * (count - 1) / count
