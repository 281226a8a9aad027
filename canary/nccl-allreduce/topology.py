"""Hold NCCL's transports against the links that NVML shows. Python 3.8 or newer."""

from canary_nvml import NVLINK, NoNvml, Nvml

AROUND = ("SHM", "NET")
"""Transports that leave NVLink unused."""


class Links:
    """NVLinks of the ranks' GPUs.

    Attributes:
        counts: active links of each GPU.
        pairs: pairs of ranks that reach each other's memory through NVLink.
    """

    def __init__(self, counts, pairs):
        self.counts, self.pairs = counts, pairs

    @property
    def least(self):
        """Return the active links of the GPU with the fewest; 1, the bus, without NVLink."""
        return min(self.counts, default=0) or 1


def links(gpus):
    """Read the links of GPUs.

    Args:
        gpus: as in the env line, in the order of the ranks.

    Returns:
        `Links`, and None or why NVML shows none.
    """
    try:
        with Nvml() as nvml:
            handles = [nvml.at(gpu.get("pci") or "") for gpu in gpus]
            if None in handles:
                return None, "NVML does not know every GPU's bus address"
            joined = {
                (one, other): nvml.reaches(handles[one], handles[other], NVLINK)
                for one in range(len(gpus))
                for other in range(len(gpus))
                if one != other
            }
            if None in joined.values():
                return None, "the driver does not tell how GPUs reach each other"
            pairs = {pair for pair, reached in joined.items() if reached}
            return Links([nvml.nvlinks(handle) for handle in handles], pairs), None
    except NoNvml as why:
        return None, str(why)


def around(ways, found):
    """Describe connections that pass by an existing NVLink, ``0 -> 1 via SHM/direct/direct``.

    Args:
        ways: of `canary_nccl.between`.
        found: `Links`.
    """
    return [
        f"{one} -> {other} via {way}"
        for one, other, way in sorted(ways)
        if way.startswith(AROUND) and (one, other) in found.pairs
    ]
