"""Call NCCL through ctypes. Names and numbers are those of ``nccl.h``.

Python 3.8 or newer.
"""

import contextlib
import ctypes
import importlib.util
import os

ID_BYTES = 128
FLOAT32, SUM = 7, 0


class NcclError(Exception):
    """Error of a call."""


class UniqueId(ctypes.Structure):
    """Identifier by which ranks find each other; rank 0 creates it."""

    _fields_ = [("internal", ctypes.c_char * ID_BYTES)]


def load():
    """Load the library: the one that the loader finds, else that of PyTorch's packages.

    Raises:
        OSError: the library was not found.
    """
    for path in ("libnccl.so.2", *_wheels()):
        with contextlib.suppress(OSError):
            return Nccl(ctypes.CDLL(path))
    raise OSError("no libnccl.so.2, and no nvidia-nccl package")


def _wheels():
    """Return the library's paths in packages."""
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec("nvidia.nccl")
        for folder in (found and found.submodule_search_locations) or ():
            yield os.path.join(folder, "lib", "libnccl.so.2")


class Nccl:
    """NCCL library."""

    def __init__(self, library):
        self._library = library
        library.ncclGetErrorString.restype = ctypes.c_char_p

    def unique_id(self):
        """Return the identifier of a group of ranks, as bytes."""
        made = UniqueId()
        self._call("ncclGetUniqueId", ctypes.byref(made))
        return ctypes.string_at(ctypes.byref(made), ID_BYTES)

    def join(self, where, rank, ranks):
        """Join the group, and return a communicator.

        Args:
            where: identifier from `unique_id`.
            rank: number of this rank, from 0.
            ranks: number of ranks.
        """
        at, group = UniqueId(), ctypes.c_void_p()
        ctypes.memmove(ctypes.byref(at), where, ID_BYTES)
        numbers = ctypes.c_int(ranks), at, ctypes.c_int(rank)
        self._call("ncclCommInitRank", ctypes.byref(group), *numbers)
        return group

    def all_reduce(self, group, source, target, count, stream):
        """Sum floats of all ranks into all ranks, on a stream."""
        kind = ctypes.c_int(FLOAT32), ctypes.c_int(SUM)
        memory = ctypes.c_void_p(source.value), ctypes.c_void_p(target.value)
        self._call("ncclAllReduce", *memory, ctypes.c_size_t(count), *kind, group, stream)

    def problem(self, group):
        """Return the asynchronous error; None if there is none."""
        code = ctypes.c_int()
        self._call("ncclCommGetAsyncError", group, ctypes.byref(code))
        return self._words(code.value) if code.value else None

    def leave(self, group):
        """Destroy the communicator."""
        self._call("ncclCommDestroy", group)

    def _call(self, function, *arguments):
        code = getattr(self._library, function)(*arguments)
        if code:
            raise NcclError(f"{function}: {self._words(code)} ({code})")

    def _words(self, code):
        said = self._library.ncclGetErrorString(ctypes.c_int(code))
        return said.decode("ascii", "replace") if said else "error"
