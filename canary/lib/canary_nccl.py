"""Have NCCL write a log, and read the transports from it.

Python 3.8 or newer. Lines look like ``host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via
P2P/CUMEM``; with networks ``[send] via NET/IB/0/GDRDMA``.
"""

import collections
import contextlib
import glob
import os
import re
import sys
import tempfile

_CHANNEL = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? ?: ?(\d+)\[[^\]]*\] -> (\d+)\[[^\]]*\]"
    r"(?: \[(?:send|receive)\])? via (\S.*?)\s*$"
)
SLOW = ("NET/Socket",)
"""Transports that a group of GPUs in one machine should not use."""


@contextlib.contextmanager
def logged():
    """Have processes that are started in the block log to a folder, and yield the folder.

    Where the block ends the program, NCCL's warnings are printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            NCCL_DEBUG="INFO",
            NCCL_DEBUG_SUBSYS="INIT,GRAPH,P2P,SHM,NET",
            NCCL_DEBUG_FILE=os.path.join(folder, "nccl.%h.%p"),
        )
        try:
            yield folder
        except SystemExit:
            sys.stderr.writelines(line for line in lines_of(folder) if "NCCL WARN" in line)
            raise


def lines_of(folder):
    """Yield the lines of all logs in a folder."""
    for path in sorted(glob.glob(os.path.join(folder, "nccl.*"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file


def by_way(ways):
    """Sum connections of `between` by their transport alone."""
    found = collections.Counter()
    for (_, _, way), count in ways.items():
        found[way] += count
    return found


def between(lines):
    """Count connections by the two ranks and the transport, ``(0, 1, "P2P/CUMEM")``."""
    channels = filter(None, map(_CHANNEL.search, lines))
    return collections.Counter((int(c.group(1)), int(c.group(2)), c.group(3)) for c in channels)


def words(found):
    """Format the transports, the most used first."""
    return ", ".join(f"{way} x {count}" for way, count in found.most_common()) or "none named"


def through(found, ways):
    """Return the number of connections that use one of some transports."""
    return sum(count for way, count in found.items() if way.startswith(tuple(ways)))
