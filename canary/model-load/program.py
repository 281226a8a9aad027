"""Load weights from storage to the GPU, cold and cached, and check every byte."""

import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import storage  # noqa: E402

TENSORS = 16
SIZES = {"cuda": 128 << 20, "cpu": 1 << 20}
"""Bytes of a tensor."""


def main():
    """Write the file, check every way to load it, then time each."""
    parser = program.parser(__doc__)
    parser.add_argument("--folder", help="on the storage to measure; else the temporary folder")
    options = parser.parse_args()
    where = os.path.realpath(options.folder or tempfile.gettempdir())
    file_system = storage.file_system(where)
    torch, device = canary_env.torch(options, folder=where, file_system=file_system)
    import weights

    size = TENSORS * SIZES[device.type]
    free = shutil.disk_usage(where).free
    if free < size + (64 << 20):
        raise program.NothingToTest(f"{where} has {free >> 20} MiB free, {size >> 20} are needed")
    with tempfile.TemporaryDirectory(dir=where) as folder:
        file = weights.write(os.path.join(folder, "weights.safetensors"), TENSORS, size // TENSORS)
        _check_cold(file.path, file_system)
        _measure(file, options, torch, device)


def _check_cold(path, file_system):
    """Report whether the page cache can be emptied, as far as this file is concerned."""
    if file_system in storage.IN_MEMORY:
        why = f"the folder is in memory ({file_system}): the figures are not those of a disk"
        say.skip("cold", why)
        return
    storage.drop(path)
    share = storage.resident(path)
    message = f"{100 * share:.1f} % of the file is in the page cache; {file_system} lets programs"
    message += f" read {'around it' if storage.reads_around(path) else 'through it only'}"
    say.check("cold", share <= 0.01, message)


def _measure(file, options, torch, device):
    import ways

    clock = timing.WallClock(torch.cuda.synchronize if device.type == "cuda" else None)
    direct, mapped = ways.Direct(file, device), ways.Mapped(file, device)
    for name, way in (("direct", direct), ("mapped", mapped)):
        storage.drop(file.path)
        say.check(f"{name}-right", *file.compare(way.load()))
    _check_safetensors(file, device)

    def drop():
        storage.drop(file.path)

    gigabytes = file.size / 1e9
    progress = program.Steps(4)
    for name, call, before in (
        ("read", direct.read, drop),
        ("direct", direct.load, drop),
        ("mapped", mapped.load, drop),
        ("cached", mapped.load, None),
    ):
        times = timing.repeat(call, clock, options, before=before)
        timing.report(name, "GB/s", times, timing.per_second(gigabytes))
        progress.done()


def _check_safetensors(file, device):
    try:
        from safetensors.torch import load_file
    except ImportError:
        say.skip("safetensors", "the image has no safetensors")
        return
    try:
        found = load_file(file.path, device=str(device))
    except Exception as error:
        say.check("safetensors", False, f"{type(error).__name__}: {error}"[:400])
        return
    say.check("safetensors", *file.compare(found))


if __name__ == "__main__":
    program.start(main)
