"""Reduce over the GPUs of several nodes: right sums, latency, bandwidth, and the network used."""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import networks  # noqa: E402

PATIENCE_S = 1100
NEEDED = ("COMPATGATE_NODE", "COMPATGATE_NODES", "MASTER_ADDR", "MASTER_PORT")


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
    if not torch.distributed.is_available():
        raise program.NothingToTest(f"PyTorch {torch.__version__} has no torch.distributed")
    if device.type == "cuda" and not torch.distributed.is_nccl_available():
        raise program.NothingToTest(f"PyTorch {torch.__version__} was built without NCCL")
    import canary_ranks as ranks
    import rank

    here = torch.cuda.device_count() if device.type == "cuda" else 1
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            NCCL_DEBUG="INFO",
            NCCL_DEBUG_SUBSYS="INIT,NET,GRAPH,P2P",
            NCCL_DEBUG_FILE=os.path.join(folder, "nccl.%h.%p"),
        )
        arguments = node * here, nodes * here, options
        report = ranks.reports(rank.work, here, arguments, options, folder, PATIENCE_S)[0]
        _check(report, nodes * here)
        _check_transport(device, networks.read(folder))
    for name, (size, taken) in report["times"].items():
        times = timing.Times(*taken)
        if name == "latency":
            timing.report(name, "us", times, timing.microseconds)
        else:
            # What each GPU sends, as nccl-tests counts (doc/PERFORMANCE.md).
            sent = size * 2 * (nodes * here - 1) / (nodes * here)
            timing.report(name, "GB/s", times, timing.per_second(sent / 1e9))


def _check(report, ranks):
    message = f"{report['wrong']} of {report['sums'] * ranks} sums are wrong, on {ranks} ranks"
    say.check("right", not report["wrong"], message)
    message = f"in {report['apart']} of {report['rounds']} rounds ranks held other bits"
    say.check("agree", not report["apart"], message)


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
