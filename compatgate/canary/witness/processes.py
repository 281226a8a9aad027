"""Watch a program's processes from the worker's machine: files mapped, and use of the GPUs.

The kernel says which libraries the processes have mapped (``/proc/PID/maps``) and which program
they run (``/proc/PID/exe``). NVML says which processes compute on a GPU. A process belongs to the
program if it, or a process that it descends from, was started with the program's challenge. A
number of another machine or namespace is therefore never taken for one of the program.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from compatgate.diagnostics.loaded import LARGEST_MAPS, Library, libraries_of, mapped_files
from compatgate.discovery.driver import open_nvml, query_nvml

_LOOK_S, _EARLY_LOOKS, _SELDOM = 0.2, 20, 5
_MAX_FILES = 4096
_CONTEXT_BYTES = 64 << 20
"""Memory of a GPU that any CUDA context exceeds."""
_RECORDS = {
    "torch": ("torch", "torch"),
    "tensorflow": ("tensorflow", "tensorflow"),
    "nvidia/cudnn": ("cudnn", "nvidia_cudnn_cu*"),
    "nvidia/nccl": ("nccl", "nvidia_nccl_cu*"),
    "nvidia/cublas": ("cublas", "nvidia_cublas_cu*"),
    "nvidia/cuda_runtime": ("cuda", "nvidia_cuda_runtime_cu*"),
}
"""Folder of a package in ``site-packages`` to its component and the pattern of its record."""
_PACKAGE = re.compile(rf"(?P<folder>/.*/(?:site|dist)-packages)/(?P<package>{'|'.join(_RECORDS)})/")


class Sighting(Struct, frozen=True):
    """State of a program's processes, as this machine shows it.

    Attributes:
        pids: numbers on this machine; () if no process was found.
        programs: files that they ran, in the order seen, with digests (see `digest_program`).
        libraries: CUDA libraries that they had mapped, and installed packages of mapped files.
        files: number of files with code that they had mapped.
        unreadable: why maps could not be read; "" if they could.
        gpu_foreign: NVML showed processes that are not the program's.
        gpu_busy: the GPUs did some work, or more of their memory was in use than before.
    """

    pids: tuple[int, ...] = ()
    programs: dict[str, str] = {}
    libraries: tuple[Library, ...] = ()
    files: int = 0
    unreadable: str = ""
    gpu_looks: int = 0
    gpu_pids: tuple[int, ...] = ()
    gpu_foreign: bool = False
    gpu_busy: bool = False


class ProcessWatch:
    """Thread that looks at a program until it is closed."""

    def __init__(
        self, root: int, challenge: str, slots: Sequence[int] = (), *, nvml: Any = None
    ) -> None:
        self._root = root
        self._mark = f"COMPATGATE_CHALLENGE={challenge}".encode()
        self._slots = slots
        self._nvml = nvml
        self._own: set[int] = set()
        self._programs: dict[str, str] = {}
        self._libraries: dict[str, Library] = {}
        self._packages: dict[str, Library | None] = {}
        self._files: set[str] = set()
        self._unreadable = ""
        self._memory: dict[int, int] = {}
        self._gpu_looks = 0
        self._gpu_pids: set[int] = set()
        self._gpu_busy = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"witness {root}", daemon=True)
        self._thread.start()

    def close(self) -> Sighting:
        """Stop, and return what was seen."""
        self._ended.set()
        self._thread.join(timeout=10)
        return Sighting(
            pids=tuple(sorted(self._own)),
            programs=dict(self._programs),
            libraries=(*self._libraries.values(), *filter(None, self._packages.values())),
            files=len(self._files),
            unreadable=self._unreadable,
            gpu_looks=self._gpu_looks,
            gpu_pids=tuple(sorted(self._gpu_pids & self._own)),
            gpu_foreign=bool(self._gpu_pids - self._own),
            gpu_busy=self._gpu_busy,
        )

    def _watch(self) -> None:
        with open_nvml(self._nvml) if self._slots else nullcontext() as nvml:
            looks = 0
            while True:
                # Reading its maps holds up a process, so that is rare once it has begun.
                if looks < _EARLY_LOOKS or looks % _SELDOM == 0:
                    for pid in self._find_own():
                        self._look(pid)
                if nvml is not None:
                    self._look_at_gpus(nvml)
                looks += 1
                if self._ended.wait(_LOOK_S):
                    return

    def _find_own(self) -> Iterator[int]:
        waiting = [(self._root, False)]
        while waiting:
            pid, inherited = waiting.pop()
            own = inherited or pid in self._own or self._is_marked(pid)
            if own:
                self._own.add(pid)
                yield pid
            with suppress(OSError, ValueError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    children = Path(f"/proc/{pid}/task/{thread}/children").read_text("ascii")
                    waiting += [(int(child), own) for child in children.split()]

    def _is_marked(self, pid: int) -> bool:
        try:
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except PermissionError:
            self._unreadable = "this worker may not read the processes of the program"
        except OSError:
            pass
        return False

    def _look(self, pid: int) -> None:
        with suppress(OSError):
            program = os.readlink(f"/proc/{pid}/exe")
            if program not in self._programs:
                self._programs[program] = digest_program(Path(f"/proc/{pid}/exe"))
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
                mapped = mapped_files(file.read(LARGEST_MAPS))
        except PermissionError:
            self._unreadable = "this worker may not read the files that the program has mapped"
            return
        except OSError:
            return
        if len(self._files) < _MAX_FILES:
            self._files.update(file.path for file in mapped)
        for library in libraries_of(mapped):
            self._libraries.setdefault(library.path, library)
        for each in mapped:
            if (match := _PACKAGE.match(each.path)) and match[0] not in self._packages:
                self._packages[match[0]] = find_package(Path(f"/proc/{pid}/root"), match)

    def _look_at_gpus(self, nvml: Any) -> None:
        """Look once; a GPU that does not answer makes the look void."""
        for slot in self._slots:
            handle = query_nvml(nvml, "nvmlDeviceGetHandleByIndex", slot)
            if handle is None:
                return
            memory = query_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
            rates = query_nvml(nvml, "nvmlDeviceGetUtilizationRates", handle)
            running = query_nvml(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
            if memory is None or running is None:
                return
            self._gpu_pids.update(one.pid for one in running)
            before = self._memory.setdefault(slot, memory.used)
            rose = memory.used - before > _CONTEXT_BYTES
            self._gpu_busy = self._gpu_busy or rose or bool(rates and rates.gpu)
        self._gpu_looks += 1


def find_package(root: Path, match: re.Match[str]) -> Library | None:
    """Return the installed package of a mapped file, with the version of its record."""
    component, record = _RECORDS[match["package"]]
    folder = root / match["folder"].lstrip("/")
    try:
        names = sorted(path.name for path in folder.glob(f"{record}-*.dist-info"))
    except OSError:
        return None
    if len(names) != 1:
        return None
    version = names[0].removesuffix(".dist-info").partition("-")[2].partition("+")[0]
    return Library(component, f"{match['folder']}/{names[0]}", version)


def digest_program(path: Path) -> str:
    """Return ``sha256:...`` of a program's file; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError:
        return ""
