"""Empty the page cache of a file, see what it holds, and name the file system. Python 3.8."""

import ctypes
import mmap
import os

IN_MEMORY = ("tmpfs", "ramfs")


def file_system(folder, mounts="/proc/self/mounts"):
    """Return the type of the file system of a folder, such as ``ext4``; ``?`` if unknown."""
    best, kind = "", "?"
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.split() for line in file]
    except OSError:
        return kind
    for row in rows:
        point = row[1].replace("\\040", " ")
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount hides an earlier one
            best, kind = point, row[2]
    return kind


def drop(path):
    """Ask the kernel to forget the pages of a file; needs no right but to read it."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)  # pages that wait to be written are kept
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(number)


def resident(path):
    """Return the share of a file's pages that the page cache holds."""
    with open(path, "rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    try:
        pages = -(-len(view) // mmap.PAGESIZE)
        found = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(view)
        address = ctypes.c_void_p(ctypes.addressof(start))
        code = ctypes.CDLL(None).mincore(address, ctypes.c_size_t(len(view)), found)
        del start
        return 1.0 if code else sum(state & 1 for state in found) / pages
    finally:
        view.close()


def open_direct(path):
    """Open a file to read it around the page cache.

    Returns:
        Its descriptor, and whether the file system allows it.
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT), True
    except OSError:
        return os.open(path, os.O_RDONLY), False


def reads_around(path):
    """Return whether the file system lets programs read a file around the page cache."""
    number, around = open_direct(path)
    os.close(number)
    return around
