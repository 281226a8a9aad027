"""Compile a custom CUDA extension with the image's nvcc for the stack's GPUs, and run it."""

import array
import ctypes
import os
import random
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_cuda  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import canary_toolkit as toolkit  # noqa: E402
import freivalds  # noqa: E402

import build  # noqa: E402

SIDES = {"cuda": 2048, "cpu": 64}
TOO_NEW = "cudaErrorUnsupportedPtxVersion"
"""Limit of minor-version compatibility: PTX of a toolkit newer than the driver."""
CHECKED = 256
"""Side of the product to compare with the host's; small enough for the host."""


def main():
    """Compile, load, report the loaded components, then check and time."""
    parser = program.parser(__doc__)
    parser.add_argument("--arch", help="comma-separated, 80,90; else that of the GPU and the image")
    options = parser.parse_args()
    capabilities = [] if options.device == "cpu" else _capabilities()
    nvcc = toolkit.nvcc()
    if nvcc is None:
        canary_env.bare(options)
        raise program.NothingToTest("the image has no nvcc")
    with tempfile.TemporaryDirectory() as folder:
        outcome = _compiled(nvcc, folder, options, capabilities)
        # The env line describes loaded components, so it comes after the loading.
        canary_env.bare(options, nvcc=nvcc)
        for name, (ok, message, _) in outcome.items():
            say.check(name, ok, message)
        _run(options, outcome, nvcc)


def _capabilities():
    gpus, wrong = canary_cuda.described()
    if wrong or not gpus:
        raise program.NoGpu(wrong or "CUDA gives this process none")
    return sorted({gpu["compute_capability"] for gpu in gpus})


def _compiled(nvcc, folder, options, capabilities):
    """Compile two libraries: machine code for all architectures, and PTX alone.

    Returns:
        Check name to outcome, message, and the library or None.
    """
    found = {}
    try:
        if options.arch:
            machine, portable = options.arch.split(","), []
        else:
            machine, portable = build.wanted(capabilities)
        machine = machine or [build.known(nvcc)[0]]
        forms = {"compiles": (machine, portable), "compiles-ptx": ([], machine[:1])}
    except (build.DoesNotCompile, IndexError) as error:
        words = str(error) or "nvcc names no architecture"
        return dict.fromkeys(("compiles", "compiles-ptx"), (False, words, None))
    for name, (codes, texts) in forms.items():
        try:
            path = build.library(nvcc, folder, f"{name}.so", codes, texts)
            library = ctypes.CDLL(path)
            library.canary_device.restype = ctypes.c_char_p
            made = [f"sm_{a}" for a in codes] + [f"compute_{a}" for a in texts]
            found[name] = (True, ", ".join(made), library)
        except (build.DoesNotCompile, OSError) as error:
            found[name] = (False, str(error), None)
    return found


def _run(options, outcome, nvcc):
    """Run the compiled libraries; report those that did not compile as failed."""
    for check, name in (("right", "compiles"), ("right-ptx", "compiles-ptx")):
        library = outcome[name][2]
        if library is None:
            say.check(check, False, "nothing was compiled")
            continue
        ok, words = _right(options, library)
        if check == "right-ptx" and words == TOO_NEW:
            _refused(check, nvcc)
        else:
            say.check(check, ok, words)
    library = outcome["compiles"][2]
    if library is None:
        say.check("timed", False, "nothing was compiled")
    else:
        _time(options, library)


def _right(options, library):
    """Compare the kernel's product with the host's, which sums in the same order."""
    side = min(CHECKED, SIDES[options.device])
    a, b = (_numbers(side, options.seed + n) for n in range(2))
    expected, found = (_numbers(side, None) for _ in range(2))
    library.canary_host(_at(a), _at(b), _at(expected), side)
    wrong = _multiply(options, library, (a, b, found), side, 1)[1]
    if wrong:
        return False, wrong
    worst = max(abs(x - y) for x, y in zip(expected, found))
    # Equal except for fused operations that one of them may split.
    return worst <= 1e-3, f"differs from the host by {worst:.3g} at most, side {side}"


def _refused(check, nvcc):
    """Report a driver too old for this toolkit's PTX: a failure only if the stack needs PTX."""
    cuda, compiler = canary_cuda.Cuda(), toolkit.Nvcc(nvcc)
    try:
        isa = toolkit.isa_of(compiler.ptx("__global__ void canary() {}\n", cuda.capability()))
    except toolkit.CannotMake:
        isa = "?"
    words = f"PTX {isa} of {compiler.name}: {TOO_NEW}; the driver is for CUDA "
    words += "{}.{}".format(*cuda.version())
    needed = toolkit.needed()
    if needed is False:
        say.skip(check, f"{words}; the stack has machine code for this GPU and does not need it")
        return
    hint = "" if needed else "; where the stack has machine code for this GPU, state it (arch)"
    say.check(check, False, words + hint)


def _time(options, library):
    """Time the product, and check the whole result of the last one."""
    side = SIDES[options.device]
    a, b, c = (_numbers(side, seed) for seed in (options.seed, options.seed + 1, None))
    count = options.warmup + options.repetitions
    times, wrong = _multiply(options, library, (a, b, c), side, count)
    if wrong:
        say.check("timed", False, wrong)
        return
    split = timing.Times(times[options.warmup :], times[: options.warmup])
    timing.report("kernel", "GFLOP/s", split, timing.per_second(2 * side**3 / 1e9))
    share = freivalds.whole_product(a, b, c, side)
    say.check("timed", share <= 1, f"worst row at {share:.3g} of its bound, side {side}")


def _multiply(options, library, matrices, side, count):
    """Return the seconds of several products, and the error message or None."""
    a, b, c = map(_at, matrices)
    if options.device == "cpu":
        clock = timing.WallClock()
        return [
            clock.seconds(lambda: library.canary_host(a, b, c, side)) for _ in range(count)
        ], None
    milliseconds = (ctypes.c_float * count)()
    error = library.canary_device(a, b, c, side, count, milliseconds)
    return [ms / 1e3 for ms in milliseconds], error.decode() if error else None


def _numbers(side, seed):
    """Return a matrix of numbers between -1 and 1; of zeros without a seed."""
    if seed is None:
        return array.array("f", bytes(4 * side * side))
    source = random.Random(seed)  # noqa: S311
    row = [source.uniform(-1, 1) for _ in range(4 * side + 1)]
    # Rows start at different offsets of one sequence: cheap, and no two are equal.
    starts = [(r * 7) % (3 * side + 1) for r in range(side)]
    return array.array("f", [v for start in starts for v in row[start : start + side]])


def _at(matrix):
    return ctypes.c_void_p(matrix.buffer_info()[0])


if __name__ == "__main__":
    program.start(main)
