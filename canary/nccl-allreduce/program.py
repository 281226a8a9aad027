"""Run the collectives over all GPUs of this process, one rank each: results, speed, transport."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_cuda  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_nccl as nccl  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import topology  # noqa: E402

PATIENCE_S = 840
LEAST = 2
TIMES = ("latency", "time-1KiB", "time-32KiB")
"""Small ones, where the number of steps counts."""
LARGEST = "bus-bandwidth"
_MANY = {"cuda": 256 << 20, "cpu": 1 << 14}
SIZES = {
    "latency": ("all-reduce", {"cuda": 8, "cpu": 8}),
    "time-1KiB": ("all-reduce", {"cuda": 1 << 10, "cpu": 1 << 10}),
    "time-32KiB": ("all-reduce", {"cuda": 32 << 10, "cpu": 2 << 10}),
    "bandwidth-1MiB": ("all-reduce", {"cuda": 1 << 20, "cpu": 4 << 10}),
    "bandwidth-16MiB": ("all-reduce", {"cuda": 16 << 20, "cpu": 8 << 10}),
    "bandwidth-128MiB": ("all-reduce", {"cuda": 128 << 20, "cpu": 16 << 10}),
    LARGEST: ("all-reduce", {"cuda": 1 << 30, "cpu": 32 << 10}),
    "all-gather": ("all-gather", _MANY),
    "reduce-scatter": ("reduce-scatter", _MANY),
    "all-to-all": ("all-to-all", _MANY),
    "pairs": ("pairs", _MANY),
}
"""Metric to the collective, and the bytes of its longer buffer."""


def main():
    """Start the ranks, and report what they found."""
    options = program.options(__doc__)
    torch, device = canary_env.torch(options)
    canary_env.need_distributed(torch, device, LEAST)
    import canary_collectives as collectives
    import canary_ranks as ranks

    count = torch.cuda.device_count() if device.type == "cuda" else LEAST
    with nccl.logged() as folder:
        arguments = 0, count, options, f"file://{folder}/meeting", SIZES
        reports = ranks.reports(collectives.work, count, arguments, options, folder, PATIENCE_S)
        ways = nccl.between(nccl.lines_of(folder))
    links = None
    if device.type == "cuda":
        links = _check_ways(ways, canary_cuda.described()[0])
    else:
        for name in ("transport", "topology", "links"):
            say.skip(name, "a CPU does without NCCL")
    collectives.report(reports, count, TIMES)
    if LARGEST in reports[0]["times"]:
        kind, size, taken = reports[0]["times"][LARGEST]
        per_link = collectives.on_bus(kind, size, count) / (links.least if links else 1)
        convert = timing.per_second(per_link / 1e9)
        timing.report("bandwidth-per-link", "GB/s", timing.Times(*taken), convert)


def _check_ways(ways, gpus):
    """Check which transports NCCL used, and against the links that exist; return the links."""
    if ways:
        used = nccl.by_way(ways)
        say.check("transport", not nccl.through(used, nccl.SLOW), nccl.words(used))
    else:
        # Neither pass nor failure: without the check the step is inconclusive.
        print("NCCL named no transport in its log, so the transport is unknown")
    links, unknown = topology.links(gpus)
    if links is None:
        for name in ("topology", "links"):
            say.skip(name, unknown)
        return None
    joined = f"NVLink joins {len(links.pairs) // 2} of {len(gpus) * (len(gpus) - 1) // 2} pairs"
    passed = topology.around(ways, links)
    if ways:
        say.check("topology", not passed, "; ".join([*passed, joined]))
    else:
        print(f"{joined}, and NCCL named no transport")
    counts = ", ".join(map(str, links.counts))
    say.check("links", len(set(links.counts)) == 1, f"active NVLinks of the GPUs: {counts}")
    return links


if __name__ == "__main__":
    program.start(main)
