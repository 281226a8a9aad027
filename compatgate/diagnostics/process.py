"""Another process of this machine, looked at from outside: ``/proc/PID``.

Its libraries cannot be asked from here. Their versions come from file names, sonames, package
metadata beside them and, of NCCL, from the text that it prints; its GPU code from the files that it
has mapped. A process in a container is read through its own root.

Source: proc(5) (``maps``, ``map_files``, ``root``, ``environ``, ``exe``, ``ns``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from compatgate.core.facts import CudaArch
from compatgate.diagnostics.compose import Process
from compatgate.diagnostics.environment import shown
from compatgate.diagnostics.files import Files
from compatgate.diagnostics.loaded import (
    LARGEST_MAPS,
    Mapped,
    mapped_files,
)
from compatgate.diagnostics.mapped import Reader, python_of
from compatgate.discovery.stack import Inspection
from compatgate.errors import BadInput, CompatgateError, NotFound

_LARGEST_ENVIRON = 4 * 1024 * 1024


class View(Struct, frozen=True):
    """A process as it was seen.

    Attributes:
        notes: what could not be read.
    """

    process: Process
    seen: Inspection
    notes: tuple[str, ...] = ()

    @property
    def uses_gpu_code(self) -> bool:
        """Whether a CUDA library, a framework or GPU code is loaded."""
        return bool(self.process.libraries or set(self.seen.stack) - {"python"})


def read_process(pid: int, facts: CudaArch | None = None, *, proc: str = "/proc") -> View:
    """Look at a process.

    Args:
        pid: as this machine's ``/proc`` counts.
        facts: where code runs, to compare the GPU code of several packages.
        proc: where procfs is.

    Raises:
        NotFound: there is no such process, or it ended meanwhile.
        BadInput: it may not be looked at, is a thread of the kernel, or has ended.
    """
    folder = f"{proc}/{pid}"
    with _explained(pid):
        began = _began(folder)
        executable = os.readlink(f"{folder}/exe")
        mapped = _maps(folder)
        environment = _environment(folder)
        container = _namespaces(folder) != _namespaces(f"{proc}/self")
        reader = Reader(folder, mapped, Files(f"{folder}/root"))
        seen = reader.seen(facts)
        if _began(folder) != began:
            raise ProcessLookupError
    process = Process(
        pid,
        executable.removesuffix(" (deleted)"),
        python_of(executable, mapped),
        container,
        tuple(reader.libraries),
        shown(environment),
    )
    return View(process, seen, tuple(dict.fromkeys(reader.notes)))


@contextmanager
def _explained(pid: int) -> Iterator[None]:
    field = "--pid"
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        raise NotFound(
            f"there is no process {pid}, or it has just ended", field=field, value=pid
        ) from None
    except PermissionError:
        raise BadInput(
            f"process {pid} may not be looked at",
            field=field,
            value=pid,
            hint="run this as the same user, or as root (CAP_SYS_PTRACE)",
        ) from None
    except CompatgateError:
        raise
    except OSError as error:
        raise BadInput(f"process {pid} cannot be read: {error}", field=field, value=pid) from None


def _began(folder: str) -> str:
    """When the process began, in clock ticks: its number may be given to another one.

    Raises:
        BadInput: it has ended, or is a thread of the kernel.
    """
    with open(f"{folder}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    state, flags, began = fields[0], int(fields[6]), fields[19]
    pid = folder.rpartition("/")[2]
    if state in "ZX":
        raise BadInput(f"process {pid} has ended; only its exit status is left", field="--pid")
    if flags & 0x00200000:  # PF_KTHREAD
        raise BadInput(f"process {pid} is a thread of the kernel", field="--pid")
    return began


def _maps(folder: str) -> list[Mapped]:
    """The mapped files as the process names them; after a chroot the kernel puts its root before.

    In a mount namespace of its own they are named from its root already.
    """
    root = os.readlink(f"{folder}/root").rstrip("/")
    with open(f"{folder}/maps", encoding="utf-8", errors="surrogateescape") as file:
        found = mapped_files(file.read(LARGEST_MAPS))
    return [
        file._replace(path=file.path[len(root) :]) if file.path.startswith(f"{root}/") else file
        for file in found
    ]


def _environment(folder: str) -> dict[str, str]:
    """As it was when the program was started."""
    with open(f"{folder}/environ", encoding="utf-8", errors="surrogateescape") as file:
        items = file.read(_LARGEST_ENVIRON).split("\0")
    return dict(item.split("=", 1) for item in items if "=" in item)


def _namespaces(folder: str) -> tuple[str, str]:
    return os.readlink(f"{folder}/ns/mnt"), os.readlink(f"{folder}/root")
