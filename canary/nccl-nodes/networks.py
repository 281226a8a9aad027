"""Read from NCCL's log which networks it uses, and whether it should. Python 3.8 or newer.

Lines look like ``host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA``.
"""

import glob
import os
import re
from collections import Counter

RDMA = "/sys/class/infiniband"
SOCKET = "NET/Socket"
_NETWORK = re.compile(r"NCCL INFO Channel .*\bvia (NET/[^/\s]+)")


def read(folder):
    """Return how many connections of this node go over which network.

    Args:
        folder: of the logs ``nccl.*``.
    """
    found = Counter()
    for path in sorted(glob.glob(os.path.join(folder, "nccl.*"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            found.update(match.group(1) for match in map(_NETWORK.search, file) if match)
    return found


def judge(ways, rdma=RDMA):
    """Judge networks by the devices that this container has.

    Returns:
        Whether they are right, None without an RDMA device; and a message.
    """
    devices = sorted(os.listdir(rdma)) if os.path.isdir(rdma) else []
    said = ", ".join(f"{way} x {count}" for way, count in ways.most_common()) or "none named"
    if not devices:
        return None, f"{said}; no RDMA device in this container"
    return bool(ways) and SOCKET not in ways, f"{said}; RDMA devices: {', '.join(devices)}"
