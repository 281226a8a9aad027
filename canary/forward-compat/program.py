"""Run a newer CUDA on an older driver through the image's forward-compatibility package."""

import ctypes
import glob
import os
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_cuda  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_ptx as ptx  # noqa: E402
import canary_timing as timing  # noqa: E402
import canary_toolkit as toolkit  # noqa: E402

THREADS, ROUNDS = 256, 200
_FILE = re.compile(r"libcuda\.so\.(\d+(?:\.\d+){1,2})$")


def main():
    """Check that the package is in use and starts, then run what its toolkit compiles."""
    options = program.parser(__doc__, devices=("cuda",)).parse_args()
    gpus, wrong = canary_cuda.described()
    driver, library, package = canary_env.driver(), _loaded(), _newest_package()
    if driver is None:
        raise program.NoGpu(wrong or "no driver here")
    compat = {"library": library, "package": package}
    if wrong:
        say.env(driver=driver, gpus=gpus, compat=compat)
    else:
        canary_env.bare(options, compat=compat)
    said = f"the driver is {driver}, libcuda {library or 'of no known version'}"
    used = _newer(library, driver)
    if not used and not _newer(package, driver):
        raise program.NothingToTest(f"{said}: no forward-compatibility package is needed")
    say.check("used", used, said if used else f"{said}; the image's package is {package}")
    say.check("starts", not wrong, wrong or said)
    compilers = toolkit.compilers()
    if wrong or not used:
        return
    if not compilers:
        raise program.NothingToTest("the image has neither NVRTC nor nvcc")
    _run(canary_cuda.Gpu(), compilers[-1], options)


def _run(gpu, compiler, options):
    """Check and time a kernel of the image's newest compiler."""
    taken = gpu.version()
    said = "libcuda is for CUDA {}.{}, the image has {}".format(*taken, compiler.name)
    say.check("covers", compiler.version is None or taken >= compiler.version, said)
    nonce = options.seed * 1000 + 900
    try:
        text = compiler.ptx(ptx.source(nonce, ROUNDS), gpu.capability())
        kernel = gpu.function(gpu.load(text), ptx.ENTRY)
    except (toolkit.CannotMake, canary_cuda.CudaError) as error:
        say.check("right", False, str(error))
        return
    memory = gpu.allocate(THREADS * 4)
    launch = gpu.prepared(kernel, 1, THREADS, ctypes.c_uint64(memory.value))
    times = timing.repeat(launch, canary_cuda.EventClock(gpu), options)
    timing.report("kernel", "us", times, timing.microseconds)
    gpu.settle()
    found = struct.unpack(f"<{THREADS}I", gpu.download(memory, THREADS * 4))
    pairs = zip(found, ptx.expected(nonce, ROUNDS, THREADS))
    wrong = sum(ours != right for ours, right in pairs)
    message = f"{wrong} of {THREADS} threads are wrong, PTX {toolkit.isa_of(text)}"
    say.check("right", not wrong, message)


def _loaded():
    """Return the version of the libcuda of this process, by its file's name."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        found = [_FILE.search(line.rstrip()) for line in file]
    return next((match.group(1) for match in found if match), None)


def _newest_package():
    """Return the version of the newest forward-compatibility package in the image."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    paths = [p for h in (*homes, "/usr/local/cuda*") for p in glob.glob(f"{h}/compat/libcuda.so.*")]
    return max(
        (match.group(1) for match in map(_FILE.search, paths) if match), key=_parts, default=None
    )


def _newer(version, than):
    return version is not None and _parts(version) > _parts(than)


def _parts(version):
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    program.start(main)
