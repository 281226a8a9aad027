"""Pack the worker's Python, so that a program needs no interpreter of the image.

The pack holds the interpreter, its standard library, the C library and the loader. The loader is
called by its path, so that neither the image's loader nor its C library takes part. The driver's
libraries are still found as the image's own programs find them: by ``LD_LIBRARY_PATH`` of the image
and by its loader cache.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from compatgate.canary.workloads.contents import PackedFile, make_archive

PLACE = "/compatgate-python"
"""Path of the interpreter in a container."""
VARIABLE = "COMPATGATE_INTERPRETER"
"""Variable of the program that says ``worker`` if the worker's interpreter runs it."""
OPTIONS = ("-E", "-s", "-S", "-B", "-u")
"""No variables of the image, no packages, no bytecode, no buffers."""
COMPLETE = "complete"
_LOADER = "lib/ld.so"
_PYTHON = "bin/python3"
_LEFT_OUT = {
    "site-packages", "test", "tests", "idlelib", "ensurepip", "turtledemo", "lib2to3", "tkinter",
    "pydoc_data", "distutils", "__pycache__",
}  # fmt: skip
_NEEDLESS = ("_ssl", "_hashlib", "_tkinter", "_curses", "_sqlite3", "_gdbm", "_dbm", "readline",
             "_test", "_xxtest", "xxlimited", "nis", "_crypt", "ossaudiodev", "_lzma",
             "_bz2")  # fmt: skip
"""Modules that link libraries which no program needs; hashlib and hmac work without them."""
_OF_LIBC = ("libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1",
            "libresolv.so.2", "libgcc_s.so.1")  # fmt: skip
"""Libraries that the driver links and that must be of the same C library."""
_PROBE = """
import importlib, json, sys
sys.modules.update(dict.fromkeys(("_ssl", "_hashlib")))
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
    found = {line.split(None, 5)[5].strip() for line in file if " /" in line}
json.dump(sorted(found), sys.stdout)
"""


class Interpreter(Struct, frozen=True):
    """A packed interpreter: an uncompressed tar for `PLACE`, for a machine as ``uname -m`` says.

    ``program`` is the ``sha256:...`` of the file that the kernel runs: the loader.
    """

    archive: bytes
    digest: str
    program: str
    machine: str

    @property
    def loader(self) -> str:
        """Return the path of the loader in a container."""
        return f"{PLACE}/{_LOADER}"

    def command(self, arguments: list[str], library_path: str) -> list[str]:
        """Return the argument vector.

        ``library_path`` is ``LD_LIBRARY_PATH`` of the image, searched after the pack.
        """
        path = f"{PLACE}/lib:{library_path}" if library_path else f"{PLACE}/lib"
        start = [self.loader, "--library-path", path, f"{PLACE}/{_PYTHON}"]
        return [*start, *OPTIONS, *arguments]


@cache
def pack_interpreter() -> Interpreter | None:
    """Return the worker's interpreter; None if this machine's cannot be packed."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.base_prefix, "bin", version).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    if sys.platform != "linux" or not program.is_file() or not (library / "os.py").is_file():
        return None
    linked = _find_linked(program, library)
    loader = next((path for path in linked if path.name.startswith("ld-linux")), None)
    if loader is None:
        return None
    places = {_PYTHON: program, _LOADER: loader}
    for path in linked:
        if path != loader:
            # The name by which programs ask for a library; its file may have a longer one.
            content, parts = path.read_bytes(), path.name.split(".")
            names = [".".join(parts[:end]) for end in range(len(parts), 1, -1)]
            known = (name for name in names if f"\0{name}\0".encode() in content)
            places[f"lib/{next(known, path.name)}"] = path
    files = [PackedFile(at, True, path.read_bytes()) for at, path in sorted(places.items())]
    files += _pack_library(library, f"{sys.platlibdir}/{version}")
    files.append(PackedFile(COMPLETE, False, b""))
    archive = make_archive(files)
    return Interpreter(archive, _digest(archive), _digest(loader.read_bytes()), platform.machine())


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _find_linked(program: Path, library: Path) -> list[Path]:
    """Return the libraries that the interpreter and its modules map, with the rest of the libc."""
    names = [path.name.partition(".")[0] for path in _list_modules(library)]
    done = subprocess.run(  # noqa: S603
        [program, *OPTIONS, "-c", _PROBE, json.dumps(names)],
        capture_output=True,
        check=False,
        timeout=60,
        env={},
    )
    if done.returncode:
        return []
    mapped = [Path(text) for text in json.loads(done.stdout)]
    results = [
        path
        for path in mapped
        if ".so" in path.name and library not in path.parents and path.is_file()
    ]
    folder = next((path.parent for path in results if path.name == "libc.so.6"), None)
    if folder is None:
        return []
    beside = [folder / name for name in _OF_LIBC]
    return sorted({*results, *(path for path in beside if path.is_file())})


def _list_modules(library: Path) -> list[Path]:
    return [
        path
        for path in sorted((library / "lib-dynload").glob("*.so"))
        if not path.name.startswith(_NEEDLESS)
    ]


def _pack_library(library: Path, place: str) -> Iterator[PackedFile]:
    modules = set(_list_modules(library))
    for path in sorted(library.rglob("*")):
        relative = path.relative_to(library)
        parts = relative.parts
        if _LEFT_OUT & set(parts) or parts[0].startswith("config-") or not path.is_file():
            continue
        if path in modules or path.suffix == ".py":
            yield PackedFile(f"{place}/{relative.as_posix()}", False, path.read_bytes())
