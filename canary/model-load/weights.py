"""Write weights in the format of safetensors, and compare what was loaded with what was written.

The format: eight bytes with the length of a JSON header, the header, then the tensors' bytes
(https://github.com/huggingface/safetensors, README). The header is padded with spaces, which the
format allows, so that the tensors begin at a multiple of `ALIGNMENT`.

The bytes are random, so no image knows them. The checksum of a tensor is the sum of its 32-bit
words times their place, modulo 2^64: no change of one word and no exchange of two goes unseen.
"""

import json
import os

import torch

ALIGNMENT = 4096
_BLOCK = 1 << 20
_WORDS_AT_ONCE = 16 << 20


def write(path, tensors, size):
    """Write a file of tensors of equal size, and settle it on the storage.

    Args:
        path: of the file.
        tensors: number of tensors.
        size: bytes of each, a multiple of 1 MiB.

    Returns:
        `File`.
    """
    names = [f"layers.{number}.weight" for number in range(tensors)]
    parts = {}
    for number, name in enumerate(names):
        offsets = [number * size, (number + 1) * size]
        parts[name] = {"dtype": "BF16", "shape": [size // 1024, 512], "data_offsets": offsets}
    header = json.dumps(parts).encode()
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    sums = {}
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        block = bytearray(os.urandom(_BLOCK))
        for name in names:
            content = bytearray()
            for _ in range(size // _BLOCK):
                block[:8] = os.urandom(8)  # no two blocks are equal
                content += block
            sums[name] = checksum(torch.frombuffer(content, dtype=torch.uint8))
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return File(path, 8 + len(header), size, sums)


def checksum(tensor):
    """Return the checksum of a contiguous tensor's bytes, computed where the tensor is."""
    words = tensor.reshape(-1).view(torch.int32)
    total = 0
    for start in range(0, words.numel(), _WORDS_AT_ONCE):
        part = words[start : start + _WORDS_AT_ONCE].to(torch.int64)
        place = torch.arange(start + 1, start + 1 + part.numel(), device=part.device)
        total += int((part * place).sum())
    return total % 2**64


class File:
    """File of weights.

    Attributes:
        path: of the file.
        start: place of the first tensor's first byte.
        each: bytes of a tensor.
        size: bytes of all tensors.
        names: names of the tensors, in the order of the file.
    """

    def __init__(self, path, start, each, sums):
        self.path, self.start, self.each, self._sums = path, start, each, sums
        self.names, self.size = list(sums), each * len(sums)

    def compare(self, tensors):
        """Compare loaded tensors with what was written.

        Args:
            tensors: name to tensor.

        Returns:
            Whether all are equal, and a message.
        """
        found = {name: checksum(tensor) for name, tensor in tensors.items()}
        wrong = [name for name in self.names if found.get(name) != self._sums[name]]
        if wrong:
            return (
                False,
                f"{len(wrong)} of {len(self.names)} tensors differ, {wrong[0]} first",
            )
        return True, f"{self.size >> 20} MiB in {len(self.names)} tensors arrived unchanged"
