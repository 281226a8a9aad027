"""Run an existing tool, unmodified, and report the libraries loaded while it ran.

The tool's standard output and error are passed on. When the tool has ended, one ``env`` line
follows: driver and GPUs as NVML names them, and the versions of the CUDA libraries that the tool's
processes had mapped, each asked for its own. A statically linked library cannot be seen;
`libraries-loaded` in the same suite measures the image's libraries. Needs only Python 3.8.

    python3 lib/canary_tool.py [--repeat N] [--print GLOB]... [--driver-only] -- TOOL ARGUMENT...
"""

import argparse
import ctypes
import glob
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
# In a container `loaded` is here; in the repository and in an installation elsewhere.
sys.path[:0] = [
    HERE,
    os.path.join(HERE, os.pardir, os.pardir, "compatgate", "diagnostics"),
    os.path.join(HERE, os.pardir, os.pardir, os.pardir, "diagnostics"),
]

import canary_driver  # noqa: E402
import canary_lines as say  # noqa: E402
import loaded  # noqa: E402
from canary_nvml import NoNvml, Nvml  # noqa: E402

NO_GPU, NOTHING_TO_TEST = 77, 78
NOT_THERE = 127
"""Exit status of shells and of the loader if a program or one of its libraries is missing."""
_RUNTIME = "libcudart.so"
_MESSAGE = b"CUDA driver version is insufficient for CUDA runtime version"
_OFTEN, _SELDOM = 0.02, 0.5
_LARGEST_FILE = 64 * 1024 * 1024


def main(arguments=None):
    """Run the tool, then report.

    The exit status is the tool's, but `NOTHING_TO_TEST` if it could not be started: that says
    nothing against the stack.
    """
    options = _options(arguments)
    driver, gpus = _driver()
    if not gpus and not options.without_gpu:
        print("no GPU that this process may use", flush=True)
        return NO_GPU
    seen = Seen()
    status = 0
    for _ in range(options.repeat):
        status = run(options.tool, seen)
        _print_files(options.files)
        if status:
            break
    if status == NOT_THERE:
        print("nothing to test: the tool, or a library that it needs, is not in this image")
        status = NOTHING_TO_TEST
    libraries = [] if options.driver_only else asked(seen.paths)
    sys.stdout.write("\n")  # a tool may leave its last line open
    say.env(
        driver=driver,
        gpus=gpus,
        versions=loaded.versions(libraries),
        paths=loaded.paths(libraries),
        tool=options.tool,
        libraries=[library._asdict() for library in libraries],
        own_cuda=has_own_cuda(options.tool[0], seen.paths),
    )
    return status


def _options(arguments):
    parser = argparse.ArgumentParser(description="Run a tool and report what it loads.")
    parser.add_argument("--repeat", type=_count, default=1, metavar="N", help="run it N times")
    parser.add_argument(
        "--print",
        action="append",
        default=[],
        dest="files",
        metavar="GLOB",
        help="print and remove these files after each run",
    )
    parser.add_argument(
        "--driver-only",
        action="store_true",
        help="leave libraries out: the tool brings its own, which are not under test",
    )
    parser.add_argument("--without-gpu", action="store_true", help="run where there is none")
    parser.add_argument("tool", nargs="+", metavar="TOOL", help="what to run, after --")
    return parser.parse_args(arguments)


def _count(text):
    if not text.isdecimal() or not 1 <= int(text) <= 10000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return int(text)


def _driver():
    try:
        with Nvml() as nvml:
            devices = nvml.devices()
            usable = [part for d in devices for part in (nvml.slices(d) if nvml.mig(d) else [d])]
            return nvml.driver(), [nvml.describe(device) for device in usable]
    except NoNvml:
        return canary_driver.kernel_module(), []


class Seen:
    """Files of CUDA libraries that processes had mapped."""

    def __init__(self):
        self.paths = {}

    def look(self, process):
        """Inspect a process and its descendants."""
        for each in _family(process):
            try:
                with open(f"/proc/{each}/maps", encoding="utf-8", errors="surrogateescape") as file:
                    text = file.read(loaded.LARGEST_MAPS)
            except OSError:
                continue
            for library in loaded.libraries_of(loaded.mapped_files(text)):
                self.paths.setdefault(library.path)


def _family(process):
    found, waiting = [], [process]
    while waiting:
        current = waiting.pop()
        found.append(current)
        try:
            for thread in os.listdir(f"/proc/{current}/task"):
                with open(f"/proc/{current}/task/{thread}/children", encoding="ascii") as file:
                    waiting += [int(child) for child in file.read().split()]
        except (OSError, ValueError):
            continue
    return found


def run(tool, seen):
    """Run the tool once.

    Returns:
        Its exit status as in shells: 128 plus the signal if one ended it.
    """
    sys.stdout.flush()
    try:
        child = subprocess.Popen(tool)  # noqa: S603 - the workload names it
    except OSError as error:
        print(f"cannot run {tool[0]}: {error.strerror}", flush=True)
        return NOT_THERE
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(child.pid, seen, ended), daemon=True)
    watcher.start()
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        status = child.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        ended.set()
        watcher.join(timeout=5)
    return 128 - status if status < 0 else status


def _watch(process, seen, ended):
    """Look often at first, because a short tool loads its libraries at once."""
    looks = 0
    while True:
        seen.look(process)
        looks += 1
        if ended.wait(_OFTEN if looks < 250 else _SELDOM):
            return


def has_own_cuda(tool, mapped):
    """Return whether the tool contains a CUDA runtime: its file then contains the messages.

    Args:
        tool: its name or path; the processes that a shell or a launcher starts are not known.
        mapped: library files that its processes had mapped.
    """
    if any(_RUNTIME in os.path.basename(path) for path in mapped):
        return False
    try:
        with open(shutil.which(tool) or tool, "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with content:
            return content.find(_MESSAGE) >= 0 and content.find(_RUNTIME.encode()) < 0
    except (OSError, ValueError):  # an empty file cannot be mapped
        return False


def asked(paths):
    """Load the libraries of these files, and ask for their versions."""
    for path in paths:
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
    known = [library for library in loaded.loaded_libraries() if library.path in paths]
    silent = [path for path in paths if path not in {library.path for library in known}]
    known += loaded.libraries_of(loaded.MappedFile(path, "", False) for path in silent)
    return [library for library in known if library.component != loaded.DRIVER_CUDA]


def _print_files(patterns):
    """Print and remove files with a tool's results or log."""
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)):
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(_LARGEST_FILE)
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
            os.remove(path)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
