"""Run the collectives over the GPUs of several nodes: results, latency, bandwidth, the network."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_nccl as nccl  # noqa: E402
import canary_program as program  # noqa: E402
import networks  # noqa: E402

PATIENCE_S = 1100
NEEDED = ("COMPATGATE_NODE", "COMPATGATE_NODES", "MASTER_ADDR", "MASTER_PORT")
SIZES = {
    "latency": ("all-reduce", {"cuda": 8, "cpu": 8}),
    "bandwidth-1MiB": ("all-reduce", {"cuda": 1 << 20, "cpu": 1 << 12}),
    "bandwidth-64MiB": ("all-reduce", {"cuda": 64 << 20, "cpu": 1 << 13}),
    "bus-bandwidth": ("all-reduce", {"cuda": 512 << 20, "cpu": 1 << 14}),
    "all-gather": ("all-gather", {"cuda": 256 << 20, "cpu": 1 << 14}),
    "reduce-scatter": ("reduce-scatter", {"cuda": 256 << 20, "cpu": 1 << 14}),
    "all-to-all": ("all-to-all", {"cuda": 256 << 20, "cpu": 1 << 14}),
    "pairs": ("pairs", {"cuda": 256 << 20, "cpu": 1 << 14}),
}
"""Metric to the collective, and the bytes of its longer buffer."""


def main():
    """Run this node's ranks; every node prints a report, that of the first one is read."""
    options = program.options(__doc__)
    nodes, node = (int(os.environ.get(name, "0")) for name in ("COMPATGATE_NODES", NEEDED[0]))
    torch, device = canary_env.torch(options, nodes=nodes, node=node)
    missing = [name for name in NEEDED if name not in os.environ]
    if missing:
        raise program.NothingToTest(
            f"it was started on one node only: {', '.join(missing)} not set"
        )
    canary_env.need_distributed(torch, device)
    import canary_collectives as collectives
    import canary_ranks as ranks

    here = torch.cuda.device_count() if device.type == "cuda" else 1
    with nccl.logged() as folder:
        arguments = node * here, nodes * here, options, "env://", SIZES
        reports = ranks.reports(collectives.work, here, arguments, options, folder, PATIENCE_S)
        _check_transport(device, networks.read(folder))
    collectives.report(reports, nodes * here, ("latency",))


def _check_transport(device, ways):
    ok, message = (
        (None, "a CPU does without NCCL") if device.type == "cpu" else networks.judge(ways)
    )
    if ok is None:
        say.skip("transport", message)
    else:
        say.check("transport", ok, message)


if __name__ == "__main__":
    program.start(main)
