"""All-reduce over all GPUs of this process, one rank each: sums, bandwidth and transport."""

import glob
import json
import os
import subprocess
import sys
import tempfile
from concurrent import futures

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_cuda  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import nccl  # noqa: E402
import transports  # noqa: E402

LARGE, SMALL, CHECKED = 256 << 20, 8, 1 << 20
CALLS = {str(LARGE): 1, str(SMALL): 50}
"""All-reduces per value; all ranks must run the same number."""
ROUNDS = 5


def main():
    """Start the ranks, and combine their reports."""
    options = program.parser(__doc__, devices=("cuda",)).parse_args()
    gpus, wrong = canary_cuda.described()
    if wrong or not gpus:
        raise program.NoGpu(wrong or "CUDA gives this process none")
    try:
        nccl.load()  # as the ranks will, so that the env line names the library
    except OSError as error:
        canary_env.bare(options)
        raise program.NothingToTest(str(error)) from None
    canary_env.bare(options, ranks=len(gpus))
    with tempfile.TemporaryDirectory() as folder:
        group = Group(len(gpus), options, folder)
        try:
            group.meet()
            reports = group.reports()
        finally:
            group.end()
        ways = transports.read(group.log())
    _check(reports, ways, len(gpus))
    _measure(reports, options, len(gpus))


class Group:
    """Processes, one for each GPU."""

    def __init__(self, ranks, options, folder):
        self._folder = folder
        order = {
            "ranks": ranks,
            "seed": options.seed,
            "sizes": [LARGE, SMALL],
            "calls": CALLS,
            "checked": CHECKED,
            "rounds": ROUNDS,
            "warmup": options.warmup,
            "repetitions": options.repetitions,
        }
        self._orders = [{**order, "rank": rank} for rank in range(ranks)]
        self._processes = [_start(folder) for _ in range(ranks)]

    def meet(self):
        """Pass rank 0's id to the other ranks."""
        first = None
        for rank, order in enumerate(self._orders):
            said = self._say(rank, {**order, "id": first})
            if said is None:
                self._failed(rank)
            first = first or said["id"]

    def reports(self):
        """Return each rank's report; if one fails, end the others, which would wait for ever."""
        with futures.ThreadPoolExecutor(len(self._processes)) as pool:
            heard = {pool.submit(self._hear, n): n for n in range(len(self._processes))}
            for one in futures.as_completed(heard):
                if one.result() is None:
                    self._failed(heard[one])
        for rank, process in enumerate(self._processes):
            if process.wait():
                self._failed(rank)
        return [one.result() for one in heard]

    def log(self):
        """Return the lines of all ranks' NCCL logs."""
        for path in sorted(glob.glob(os.path.join(self._folder, "nccl.*"))):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield from file

    def end(self):
        """End all processes."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _say(self, rank, order):
        process = self._processes[rank]
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        except OSError:
            return None
        return self._hear(rank)

    def _hear(self, rank):
        line = self._processes[rank].stdout.readline()
        return json.loads(line) if line else None

    def _failed(self, rank):
        status = self._processes[rank].wait()
        self.end()
        for line in self.log():
            if "NCCL WARN" in line:
                sys.stderr.write(line)
        sys.exit(f"rank {rank} ended with status {status}")


def _start(folder):
    environment = {
        **os.environ,
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,P2P,SHM,NET",
        "NCCL_DEBUG_FILE": os.path.join(folder, "nccl.%h.%p"),
    }
    pipe = subprocess.PIPE
    command = [sys.executable, os.path.join(HERE, "rank.py")]
    return subprocess.Popen(  # noqa: S603
        command, stdin=pipe, stdout=pipe, text=True, env=environment
    )


def _check(reports, ways, ranks):
    problems = [f"rank {n}: {r['problem']}" for n, r in enumerate(reports) if r["problem"]]
    say.check("no-error", not problems, "; ".join(problems) or f"{ranks} ranks")
    wrong = sum(report["wrong"] for report in reports)
    say.check("right", wrong == 0, f"{wrong} of {ranks * CHECKED // 4} sums are wrong")
    rounds = list(zip(*(report["digests"] for report in reports)))
    apart = sum(len(set(digests)) > 1 for digests in rounds)
    # Differences between rounds are allowed: the library chooses the order of sums.
    message = f"{apart} of {len(rounds)} rounds; {len(set(rounds))} different results in all"
    say.check("agree", apart == 0, message)
    if ranks == 1:
        say.check("transport", True, "one GPU: no data is sent")
    elif ways:
        say.check(
            "transport", not transports.through(ways, transports.SLOW), transports.words(ways)
        )
    else:
        # Neither pass nor failure: without the check the step is inconclusive.
        print("NCCL named no transport in its log, so the transport is unknown")


def _measure(reports, options, ranks):
    """Report latency and bandwidth; an all-reduce lasts as long as on its slowest rank."""
    for name, unit, size, convert in (
        ("bus-bandwidth", "GB/s", LARGE, timing.per_second(_on_bus(LARGE, ranks) / 1e9)),
        ("latency", "us", SMALL, timing.microseconds),
    ):
        slowest = [max(parts) for parts in zip(*(r["times"][str(size)] for r in reports))]
        times = timing.Times(slowest[options.warmup :], slowest[: options.warmup])
        if ranks > 1:
            timing.report(name, unit, times, convert)
    if ranks == 1:
        print("one GPU: there is no bus to measure; run the workload with two or more GPUs")


def _on_bus(size, ranks):
    """Return the bytes that each GPU sends, as nccl-tests counts (doc/PERFORMANCE.md)."""
    return size * 2 * (ranks - 1) / ranks


if __name__ == "__main__":
    program.start(main)
