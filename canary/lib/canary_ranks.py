"""Run ranks of torch.distributed: processes with one GPU each, times of the slowest one.

Import it after `canary_env.torch`. Python 3.8 or newer, PyTorch 1.13 or newer.
"""

import json
import multiprocessing
import os
import sys
import time
from datetime import timedelta

import canary_conditions as conditions
import canary_cuda
import canary_timing as timing
import torch
from torch import distributed

_JOIN_MINUTES = 5


class Group:
    """Membership of this process among all ranks: NCCL on GPUs, gloo on a CPU.

    Attributes:
        rank: number of this rank among all.
        ranks: number of all ranks.
        device: device of this rank.

    Args:
        options: of `canary_program`.
        rank: number of this rank among all.
        ranks: number of all ranks.
        meeting: URL at which the ranks find each other, as torch.distributed takes it.
        gpu: index of this rank's GPU in this container.
    """

    def __init__(self, options, rank, ranks, meeting, gpu):
        self._options, self.rank, self.ranks = options, rank, ranks
        on_gpu = options.device == "cuda"
        if on_gpu:
            gpus, _ = canary_cuda.described()
            conditions.bind(gpus[gpu : gpu + 1])
            conditions.watch(gpus[gpu : gpu + 1])
            torch.cuda.set_device(gpu)
            self.device = torch.device("cuda", gpu)
        else:
            conditions.watch([])
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            torch.set_num_threads(1)
            self.device = torch.device("cpu")
        distributed.init_process_group(
            "nccl" if on_gpu else "gloo",
            init_method=meeting,
            rank=rank,
            world_size=ranks,
            timeout=timedelta(minutes=_JOIN_MINUTES),
        )
        self._clock = timing.TorchClock(torch) if on_gpu else timing.WallClock()

    def agreed(self, value, operation=distributed.ReduceOp.MAX):
        """Return the largest of the ranks' values; all ranks wait here for each other."""
        shared = torch.tensor([float(value)], dtype=torch.float64, device=self.device)
        distributed.all_reduce(shared, op=operation)
        return float(shared)

    def total(self, value):
        """Return the sum of the ranks' values."""
        return self.agreed(value, distributed.ReduceOp.SUM)

    def times(self, call):
        """Time a call on all ranks at once, as `canary_timing.repeat` does on one.

        Returns:
            `canary_timing.Times` of the slowest rank, the same on all ranks, with the conditions of
            this one. All ranks do the same number of calls.
        """
        options = self._options
        first = self._seconds(call, 1)
        again = self._seconds(call, 1)
        calls = timing.calls_for(again, timing.value_seconds(options))
        longest = timing.SETTLE_SECONDS[options.device] if options.warmup else 0.0
        end, warmup, clocks, rows = time.monotonic() + longest, [], [], []
        while self.agreed(
            len(warmup) < options.warmup
            or (longest > 0 and not timing.is_steady(warmup, clocks) and time.monotonic() < end)
        ):
            warmup.append(self._seconds(call, calls))
            now = conditions.read()
            clocks.append(now and now["sm_mhz"])
        values = [
            self._seconds(call, calls, lambda: rows.append(conditions.read()))
            for _ in range(options.repetitions)
        ]
        settled = timing.is_steady(warmup, clocks) if longest else None
        return timing.Times(values, [first, *warmup], conditions.columns(rows), settled)

    def leave(self):
        """Leave, once all ranks are done."""
        self.agreed(0.0)
        distributed.destroy_process_group()

    def _seconds(self, call, calls, look=None):
        self.agreed(0.0)

        def batch():
            for _ in range(calls):
                call()

        return self.agreed(self._clock.seconds(batch, look) / calls)


def reports(work, count, arguments, options, folder, patience_s, look=None):
    """Run the ranks of this container to their end, and return their reports.

    A rank that fails, or takes too long, ends the program: the others would wait for it for ever.

    Args:
        work: function of a module, called in each process with the rank's number in this container
            and the arguments; what it returns is the report, JSON.
        count: number of processes.
        arguments: of ``work``, after the number.
        options: of `canary_program`.
        folder: for the reports.
        patience_s: seconds that all may take.
        look: called again and again meanwhile.
    """
    # A fork is quick, but cannot use CUDA again.
    context = multiprocessing.get_context("fork" if options.device == "cpu" else "spawn")
    paths = [os.path.join(folder, f"rank-{number}.json") for number in range(count)]
    every = [
        context.Process(target=_write, args=(path, work, number, *arguments))
        for number, path in enumerate(paths)
    ]
    for process in every:
        process.start()
    end = time.monotonic() + patience_s
    while any(process.is_alive() for process in every) and time.monotonic() < end:
        if any(process.exitcode for process in every):
            break
        if look:
            look()
        time.sleep(0.02)
    statuses = {number: process.exitcode for number, process in enumerate(every)}
    for process in every:
        process.kill()
    for number, status in statuses.items():
        if status:
            sys.exit(f"rank {number} ended with status {status}")
    if None in statuses.values():
        sys.exit(f"the ranks took more than {patience_s} s")
    found = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found.append(json.load(file))
    return found


def _write(path, work, number, *arguments):
    report = work(number, *arguments)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file)
