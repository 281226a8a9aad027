"""Train with fully sharded data parallelism: gradients against fp64, tokens a second."""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402

RANKS = 2
PATIENCE_S = 840


def main():
    """Start the ranks, and report what they found."""
    options = program.options(__doc__)
    torch, device = canary_env.torch(options)
    canary_env.need_distributed(torch, device, RANKS)
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except ImportError:
        raise program.NothingToTest(f"PyTorch {torch.__version__} has no fully_shard") from None
    import canary_ranks as ranks
    import rank

    with tempfile.TemporaryDirectory() as folder:
        arguments = RANKS, options, f"file://{folder}/meeting"
        reports = ranks.reports(rank.work, RANKS, arguments, options, folder, PATIENCE_S)
    error, where = max(tuple(report["worst"]) for report in reports)
    numerics.check_error("right", error, rank.ALLOWED, where)
    numerics.check_same("same", [report["digest"] for report in reports], "ranks")
    times = timing.Times(*reports[0]["times"])
    timing.report("throughput", "tokens/s", times, timing.per_second(reports[0]["tokens"]))


if __name__ == "__main__":
    program.start(main)
