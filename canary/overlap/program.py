"""Reduce over two GPUs while they multiply: times apart and together, and right results."""

import os
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402

RANKS = 2
LEAST_HIDDEN = 0.2
SETTINGS = ("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_MAX_NCHANNELS")
"""Variables that change what runs at once; stated in the env line."""
PATIENCE_S = 840


def main():
    """Start the ranks, and report what the slower one took."""
    options = program.options(__doc__)
    settings = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    torch, device = canary_env.torch(options, settings=settings)
    canary_env.need_distributed(torch, device, RANKS)
    import canary_ranks as ranks
    import rank

    nonce = int.from_bytes(os.urandom(6), "little")  # results follow from it
    with tempfile.TemporaryDirectory() as folder:
        arguments = RANKS, nonce, options, folder
        reports = ranks.reports(rank.work, RANKS, arguments, options, folder, PATIENCE_S)
    _check(reports)
    # Every rank has the times of the slower one.
    times = {name: timing.Times(*taken) for name, taken in reports[0]["times"].items()}
    for name, taken in times.items():
        timing.report(name, "ms", taken, timing.milliseconds)
    usual = {name: statistics.median(taken.values) for name, taken in times.items()}
    longer = max(usual["compute"], usual["communication"])
    timing.report("exposed", "1", times["together"], lambda seconds: seconds / longer)
    _check_overlap(usual, device)


def _check(reports):
    wrong, count = (sum(report[of] for report in reports) for of in ("wrong", "sums"))
    say.check("sums-right", not wrong, f"{wrong} of {count} sums are wrong")
    numerics.check_whole("products-right", max(report["share"] for report in reports))


def _check_overlap(usual, device):
    shorter = min(usual["compute"], usual["communication"])
    hidden = (usual["compute"] + usual["communication"] - usual["together"]) / shorter
    message = f"{100 * max(hidden, 0):.0f} % of the shorter one is hidden"
    if device.type == "cpu":
        say.skip("overlaps", f"a CPU does both with the same cores; {message}")
    else:
        say.check("overlaps", hidden >= LEAST_HIDDEN, message)


if __name__ == "__main__":
    program.start(main)
