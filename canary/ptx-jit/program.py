"""Let the driver compile PTX, of the stack's own toolkit and of old versions, cold and cached."""

import ctypes
import json
import os
import statistics
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_cuda  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_ptx as ptx  # noqa: E402
import canary_timing as timing  # noqa: E402
import canary_toolkit as toolkit  # noqa: E402

THREADS = 256
SHORT, LONG = 4, 2000
"""Rounds of the kernel that is only run, and of the one that is timed."""
TIMED_ISA = "7.0"
REFUSALS = (canary_cuda.UNSUPPORTED_PTX_VERSION, canary_cuda.INVALID_PTX)


def main():
    """Load every version, then time the compiler."""
    options = program.parser(__doc__, devices=("cuda",)).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # The driver reads this at its start; a new folder is empty.
        os.environ["CUDA_CACHE_PATH"] = folder
        os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(256 << 20))
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"  # otherwise loading may defer the compiling
        canary_env.bare(options, jit_cache=_cache_settings())
        gpu = canary_cuda.Gpu()
        with open(os.path.join(HERE, "versions.json"), encoding="utf-8") as file:
            table = json.load(file)
        _versions(gpu, table, options.seed)
        lacking = _toolkit(gpu, options.seed)
        _times(gpu, table["target"], options)
    if lacking:
        raise program.NothingToTest(lacking)


def _versions(gpu, table, seed):
    """Check that ISA versions of the driver's CUDA load, and that newer ones are refused."""
    wrong, refused, loaded = [], [], []
    taken = gpu.version()
    for number, row in enumerate(table["versions"]):
        isa, nonce = row["isa"], seed * 1000 + number
        text = ptx.kernel(isa, table["target"], nonce, SHORT).encode()
        if tuple(row["cuda"]) <= taken:
            try:
                if _run(gpu, text) != ptx.expected(nonce, SHORT, THREADS):
                    wrong.append(f"PTX {isa}: wrong result")
                loaded.append(isa)
            except canary_cuda.CudaError as error:
                wrong.append(f"PTX {isa}: {error}")
        else:
            refused.append(_refusal(gpu, isa, text))
    here = "the driver is for CUDA {}.{}".format(*taken)
    say.check("loads", not wrong, "; ".join(wrong) or f"{', '.join(loaded)}; {here}")
    crooked = [why for why in refused if why]
    say.check("refuses", not crooked, "; ".join(crooked) or f"{len(refused)} newer; {here}")


def _toolkit(gpu, seed):
    """Check that PTX of the stack's own compiler loads, if the stack needs PTX.

    A driver refuses PTX of a newer toolkit. That is a limit to report if the stack has machine code
    for this GPU, and a failure if it has none.

    Returns:
        Why the check could not be made though the stack needs PTX; "" if it was made.
    """
    loaded, refused, wrong, none = [], [], [], []
    for number, compiler in enumerate(toolkit.compilers()):
        nonce = seed * 1000 + 500 + number
        try:
            text = compiler.ptx(ptx.source(nonce, SHORT), gpu.capability())
        except toolkit.CannotMake as why:
            none.append(f"{compiler.name}: {why}")
            continue
        name = f"PTX {toolkit.isa_of(text)} of {compiler.name}"
        try:
            if _run(gpu, text) == ptx.expected(nonce, SHORT, THREADS):
                loaded.append(name)
            else:
                wrong.append(f"{name}: wrong result")
        except canary_cuda.CudaError as error:
            (refused if error.code in REFUSALS else wrong).append(f"{name}: {error}")
    needed, here = toolkit.needed(), "the driver is for CUDA {}.{}".format(*gpu.version())
    if wrong or (refused and needed is not False):
        hint = (
            ""
            if wrong or needed
            else "; where the stack has machine code for this GPU, state it (arch)"
        )
        say.check("toolkit", False, "; ".join([*wrong, *refused, here]) + hint)
    elif refused:
        why = "the stack has machine code for this GPU and does not need it"
        say.skip("toolkit", "; ".join([*refused, here, why]))
    elif loaded:
        say.check("toolkit", True, "; ".join([", ".join(loaded), here]))
    elif needed:
        # The image lacks what is to be tested, which speaks neither for the stack nor against it.
        why = "; ".join(none) or "no compiler"
        return f"the stack needs PTX, but this image has no working compiler: {why}"
    else:
        say.skip("toolkit", "; ".join(none) or "the image has neither NVRTC nor nvcc")
    return ""


def _refusal(gpu, isa, text):
    """Return the problem with the driver's answer to newer PTX; "" if it is correct."""
    try:
        gpu.unload(gpu.load(text))
    except canary_cuda.CudaError as error:
        return "" if error.code in REFUSALS else f"PTX {isa}: {error}"
    return ""  # a driver that accepts more than it promises does no harm


def _run(gpu, text):
    module = gpu.load(text)
    memory = gpu.allocate(THREADS * 4)
    try:
        gpu.launch(gpu.function(module, ptx.ENTRY), 1, THREADS, ctypes.c_uint64(memory.value))
        gpu.settle()
        return list(struct.unpack(f"<{THREADS}I", gpu.download(memory, THREADS * 4)))
    finally:
        gpu.free(memory)
        gpu.unload(module)


def _load(gpu, text):
    module = gpu.load(text)
    gpu.function(module, ptx.ENTRY)
    gpu.unload(module)


def _times(gpu, target, options):
    """Time the first load of new texts, which compiles, and the second, which may not."""
    clock, steps = timing.WallClock(gpu.settle), options.warmup + options.repetitions
    progress = program.Steps(steps)
    cold, cached, wrong = [], [], 0
    for step in range(steps):
        nonce = (options.seed << 16) + 0x10000000 + step
        text = ptx.kernel(TIMED_ISA, target, nonce, LONG).encode()
        for times in (cold, cached):
            times.append(clock.seconds(lambda text=text: _load(gpu, text)))
        if step < 2:
            wrong += _run(gpu, text) != ptx.expected(nonce, LONG, THREADS)
        progress.done()
    say.check("right", not wrong, f"{wrong} of 2 long kernels gave a wrong result")
    for name, times in (("jit-cold", cold), ("jit-cached", cached)):
        split = timing.Times(times[options.warmup :], times[: options.warmup])
        timing.report(name, "ms", split, timing.milliseconds)
    medians = [statistics.median(times) * 1e3 for times in (cold, cached)]
    words = "compiled in {:.1f} ms, loaded again in {:.1f} ms".format(*medians)
    say.check("cache", medians[1] < medians[0] / 2, words)


def _cache_settings():
    names = ("CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_FORCE_PTX_JIT")
    return {name: os.environ[name] for name in names if name in os.environ}


if __name__ == "__main__":
    program.start(main)
