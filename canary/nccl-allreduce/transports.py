"""Read NCCL's transports from its log with ``NCCL_DEBUG=INFO``.

Python 3.8 or newer. Lines look like ``host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via
P2P/CUMEM``; with networks ``[send] via NET/IB/0/GDRDMA``.
"""

import collections
import re

_CHANNEL = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? ?: ?(\d+)\[[^\]]*\] -> (\d+)\[[^\]]*\]"
    r"(?: \[(?:send|receive)\])? via (\S.*?)\s*$"
)
SLOW = ("NET/Socket",)
"""Transports that a group of GPUs in one machine should not use."""


def read(lines):
    """Count connections by transport.

    Args:
        lines: lines of NCCL's log.

    Returns:
        A counter: ``P2P/CUMEM``, ``NET/IB/0/GDRDMA``, ``SHM/direct/direct``...
    """
    found = collections.Counter()
    for (_, _, way), count in between(lines).items():
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
