"""Build TensorRT engines from ONNX, load and run them: results, time to build, to load, to run."""

import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_cuda  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import network  # noqa: E402

OLDEST = (8, 5)
"""First TensorRT that runs an engine by the names of its tensors."""
RUNS = 5
PLACES = 4
"""Places of the large network's result that are compared, each in all channels."""


def main():
    """Check engines of a small network, then time those of a larger one."""
    options = program.parser(__doc__, devices=("cuda",)).parse_args()
    if importlib.util.find_spec("tensorrt") is None:
        canary_env.bare(options)
        raise program.NothingToTest("the image has no TensorRT for Python")
    gpu = _gpu()
    import engines
    import tensorrt

    canary_env.bare(options, tensorrt_package=tensorrt.__version__)
    if tuple(int(part) for part in tensorrt.__version__.split(".")[:2]) < OLDEST:
        raise program.NothingToTest(f"TensorRT {tensorrt.__version__} is older than 8.5")
    progress = program.Steps(2)
    try:
        _check(gpu, engines)
        progress.done()
        _measure(gpu, engines, options)
        progress.done()
    except engines.DoesNotBuild as error:
        say.check("builds", False, str(error))


def _gpu():
    """Return the GPU; its context must be current before TensorRT starts."""
    _, wrong = canary_cuda.described()
    try:
        return canary_cuda.Gpu()
    except (OSError, canary_cuda.CudaError) as error:
        raise program.NoGpu(wrong or str(error)) from None


def _check(gpu, engines):
    small, digests, sizes = network.Network(network.SMALL), [], []
    for name, precision in (("right", "fp32"), ("right-fp16", "fp16")):
        if precision == "fp16" and not engines.offers_fp16():
            say.skip(name, "this TensorRT has no flag for fp16")
            continue
        plan = engines.build(small.onnx, precision == "fp16")
        engine = engines.Engine(gpu, plan, small.given)
        results = [engine.result() for _ in range(RUNS)]
        engine.free()
        numerics.check_error(name, small.error(results[0]), small.bound(precision))
        digests.append(len(set(results)))
        sizes.append(f"{precision} {len(plan) >> 10} KiB")
    say.check("builds", True, f"engines: {', '.join(sizes)}")
    message = f"{max(digests)} results in {RUNS} runs"
    say.check("repeatable", max(digests) == 1, message)


def _measure(gpu, engines, options):
    large, fp16 = network.Network(network.LARGE), engines.offers_fp16()
    clock = timing.WallClock(gpu.settle)
    made = []

    def build(look):
        return clock.seconds(lambda: made.append(engines.build(large.onnx, fp16)), look)

    timing.report("build", "s", timing.measure(build, options), lambda seconds: seconds)
    loaded = []

    def load():
        while loaded:
            loaded.pop().free()
        loaded.append(engines.Engine(gpu, made[-1], large.given))

    timing.report("load", "ms", timing.repeat(load, clock, options), timing.milliseconds)
    times = timing.repeat(loaded[-1].run, canary_cuda.EventClock(gpu), options)
    timing.report("run", "ms", times, timing.milliseconds)
    error = large.error_at(loaded[-1].result(), PLACES)
    numerics.check_error("timed", error, large.bound("fp16" if fp16 else "fp32"))


if __name__ == "__main__":
    program.start(main)
