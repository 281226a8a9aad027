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
import topology  # noqa: E402
import transports  # noqa: E402

TIMES = {"latency": 8, "time-1KiB": 1 << 10, "time-32KiB": 32 << 10}
"""Metric to bytes: small ones, where the number of steps counts."""
LARGEST = "bus-bandwidth"
BANDWIDTHS = {
    "bandwidth-1MiB": 1 << 20,
    "bandwidth-16MiB": 16 << 20,
    "bandwidth-128MiB": 128 << 20,
    LARGEST: 1 << 30,
}
CHECKED = 1 << 20
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
        group = Group(gpus, options, folder)
        try:
            group.meet()
            reports = group.reports()
            # The ranks agree on the number of calls by all-reduces: only where these are right.
            right = len(gpus) > 1 and _agree(reports)
            timed = group.finish(right)
        finally:
            group.end()
        log = list(group.log())
    _check(reports, timed, transports.read(log), len(gpus))
    links, unknown = topology.links(gpus)
    _check_links(transports.between(log), links, unknown, len(gpus))
    if right:
        _measure(timed, len(gpus), links)
    elif len(gpus) == 1:
        print("one GPU: there is no bus to measure; run the workload with two or more GPUs")


class Group:
    """Processes, one for each GPU."""

    def __init__(self, gpus, options, folder):
        self._folder = folder
        order = {
            "ranks": len(gpus),
            "seed": options.seed,
            "sizes": [*TIMES.values(), *BANDWIDTHS.values()],
            "checked": CHECKED,
            "rounds": ROUNDS,
            "options": vars(options),
        }
        self._orders = [{**order, "rank": rank, "gpu": gpu} for rank, gpu in enumerate(gpus)]
        self._processes = [_start(folder) for _ in gpus]

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
        return [one.result() for one in heard]

    def finish(self, time):
        """Let the ranks take times or not, and end; return each rank's last report."""
        for process in self._processes:
            process.stdin.write(json.dumps({"time": time}) + "\n")
            process.stdin.flush()
        reports = self.reports()
        for rank, process in enumerate(self._processes):
            if process.wait():
                self._failed(rank)
        return reports

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


def _agree(reports):
    """Return whether every sum is right, and every rank holds the same bits."""
    rounds = zip(*(report["digests"] for report in reports))
    right = not any(report["wrong"] for report in reports)
    return right and all(len(set(digests)) == 1 for digests in rounds)


def _check(reports, timed, ways, ranks):
    problems = [f"rank {n}: {r['problem']}" for n, r in enumerate(timed) if r["problem"]]
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


def _check_links(ways, links, unknown, ranks):
    """Check that the transports use the links that exist, and that every GPU has as many."""
    for name in ("topology", "links"):
        if links is None or ranks == 1:
            say.skip(name, "one GPU" if links else unknown)
    if links is None or ranks == 1:
        return
    passed = topology.around(ways, links)
    joined = f"NVLink joins {len(links.pairs) // 2} of {ranks * (ranks - 1) // 2} pairs"
    if ways:
        say.check("topology", not passed, "; ".join([*passed, joined]))
    else:
        print(f"{joined}, and NCCL named no transport")
    counts = ", ".join(map(str, links.counts))
    say.check("links", len(set(links.counts)) == 1, f"active NVLinks of the GPUs: {counts}")


def _measure(reports, ranks, links):
    """Report times and bandwidths; an all-reduce lasts as long as on its slowest rank."""
    for name, size in TIMES.items():
        timing.report(name, "us", _slowest(reports, size), timing.microseconds)
    for name, size in BANDWIDTHS.items():
        convert = timing.per_second(_on_bus(size, ranks) / 1e9)
        timing.report(name, "GB/s", _slowest(reports, size), convert)
    largest = BANDWIDTHS[LARGEST]
    count = links.least if links else 1
    convert = timing.per_second(_on_bus(largest, ranks) / 1e9 / count)
    timing.report("bandwidth-per-link", "GB/s", _slowest(reports, largest), convert)


def _slowest(reports, size):
    """Return the times of the slowest rank, value by value, with that rank's conditions."""
    taken = [timing.Times(*report["times"][str(size)]) for report in reports]
    values, warmup = (
        [max(part) for part in zip(*(getattr(t, of) for t in taken))] for of in ("values", "warmup")
    )
    slowest = [max(taken, key=lambda t, n=n: t.values[n]) for n in range(len(values))]
    names = set.intersection(*(set(t.conditions) for t in taken))
    conditions = {
        name: [times.conditions[name][n] for n, times in enumerate(slowest)] for name in names
    }
    settled = [times.settled for times in taken]
    return timing.Times(values, warmup, conditions, None if None in settled else all(settled))


def _on_bus(size, ranks):
    """Return the bytes that each GPU sends, as nccl-tests counts (doc/PERFORMANCE.md)."""
    return size * 2 * (ranks - 1) / ranks


if __name__ == "__main__":
    program.start(main)
