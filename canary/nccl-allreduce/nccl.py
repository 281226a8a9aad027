"""What is needed of NCCL, through ctypes. Names and numbers are those of ``nccl.h``.

Python 3.8 or newer.
"""

import contextlib
import ctypes
import importlib.util
import os

ID_BYTES = 128
FLOAT32, SUM = 7, 0


class NcclError(Exception):
    """A call failed."""


class UniqueId(ctypes.Structure):
    """Where ranks find each other; rank 0 makes it."""

    _fields_ = [("internal", ctypes.c_char * ID_BYTES)]


def load():
    """The library: the one that the loader finds, else the one that PyTorch brings.

    Raises:
        OSError: there is none.
    """
    for path in ("libnccl.so.2", *_wheels()):
        with contextlib.suppress(OSError):
            return Nccl(ctypes.CDLL(path))
    raise OSError("no libnccl.so.2, and no nvidia-nccl package")


def _wheels():
    """Where the packages of the index have it."""
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec("nvidia.nccl")
        for folder in (found and found.submodule_search_locations) or ():
            yield os.path.join(folder, "lib", "libnccl.so.2")


class Nccl:
    """The library."""

    def __init__(self, library):
        self._library = library
        library.ncclGetErrorString.restype = ctypes.c_char_p

    def unique_id(self):
        """Where ranks of one group meet, as bytes."""
        made = UniqueId()
        self._call("ncclGetUniqueId", ctypes.byref(made))
        return ctypes.string_at(ctypes.byref(made), ID_BYTES)

    def join(self, where, rank, ranks):
        """Meet the others; a communicator.

        Args:
            where: of `unique_id`.
            rank: this one's, from 0.
            ranks: how many there are.
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
        """What went wrong on the way; None where nothing did."""
        code = ctypes.c_int()
        self._call("ncclCommGetAsyncError", group, ctypes.byref(code))
        return self._words(code.value) if code.value else None

    def leave(self, group):
        """Let go."""
        self._call("ncclCommDestroy", group)

    def _call(self, function, *arguments):
        code = getattr(self._library, function)(*arguments)
        if code:
            raise NcclError(f"{function}: {self._words(code)} ({code})")

    def _words(self, code):
        said = self._library.ncclGetErrorString(ctypes.c_int(code))
        return said.decode("ascii", "replace") if said else "error"
