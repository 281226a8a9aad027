"""Answer a worker's challenge: a product of matrices that only this run knows. Python 3.8.

The matrices follow from the challenge, so an earlier answer never fits. Their elements are whole
numbers below 256, and every sum is below 2^23, so that the product is exact in fp32 and in TF32.
The worker computes the same product and compares digests.
"""

import array
import hashlib
import hmac
import sys

SIZE = 64
"""Rows and columns."""


def answer(challenge, by, multiply):
    """Return the SHA-256 digest of the product, as 32-bit little-endian numbers, row by row.

    Args:
        challenge: bytes of the worker.
        by: what computes the product; each has matrices of its own.
        multiply: function of two matrices (lists of rows) that returns their product.
    """
    product = multiply(_matrix(challenge, by, "a"), _matrix(challenge, by, "b"))
    numbers = array.array("I", [int(value) for row in product for value in row])
    if sys.byteorder == "big":
        numbers.byteswap()
    return hashlib.sha256(numbers.tobytes()).hexdigest()


def show_file(challenge, path):
    """Return the digest of a file below the root, signed with the challenge; None: no such file."""
    try:
        with open("/" + path, "rb") as file:
            whole = hashlib.sha256()
            for piece in iter(lambda: file.read(1 << 20), b""):
                whole.update(piece)
    except OSError:
        return None
    signed = f"{path} {whole.hexdigest()}".encode()
    return hmac.new(challenge, signed, hashlib.sha256).hexdigest()


def multiply(a, b):
    """Return the product of two matrices, by the interpreter alone."""
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def _matrix(challenge, by, name):
    seed = challenge + f"|{by}|{name}".encode()
    raw = hashlib.shake_128(seed).digest(SIZE * SIZE)
    return [list(raw[at : at + SIZE]) for at in range(0, len(raw), SIZE)]
