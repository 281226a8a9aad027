"""Judge the networks that NCCL's log names. Python 3.8 or newer."""

import os
from collections import Counter

import canary_nccl as nccl

RDMA = "/sys/class/infiniband"
SOCKET = "NET/Socket"


def read(folder):
    """Return how many connections of this node go over which network, ``NET/IB``.

    Args:
        folder: of NCCL's logs.
    """
    found = Counter()
    for way, count in nccl.by_way(nccl.between(nccl.lines_of(folder))).items():
        if way.startswith("NET/"):
            found["/".join(way.split("/")[:2])] += count
    return found


def judge(ways, rdma=RDMA):
    """Judge networks by the devices that this container has.

    Returns:
        Whether they are right, None without an RDMA device; and a message.
    """
    devices = sorted(os.listdir(rdma)) if os.path.isdir(rdma) else []
    if not devices:
        return None, f"{nccl.words(ways)}; no RDMA device in this container"
    right = bool(ways) and SOCKET not in ways
    return right, f"{nccl.words(ways)}; RDMA devices: {', '.join(devices)}"
