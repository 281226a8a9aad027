"""Compute SHA-256 of small texts, at little cost to other threads and to start-up.

`hashlib` loads OpenSSL, and start-up of the command line is counted in milliseconds; the module
below it does not. Where OpenSSL is loaded it is several times faster, but releases the
interpreter's lock for more than 2047 bytes at once: among many threads, getting the lock back costs
more than the digest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

_AT_ONCE = 2047


def sha256(data: bytes) -> str:
    """Return the hexadecimal digest."""
    digest = _openssl()() if "hashlib" in sys.modules else _without_openssl()()
    for start in range(0, len(data), _AT_ONCE):
        digest.update(data[start : start + _AT_ONCE])
    return str(digest.hexdigest())


@cache
def _openssl() -> Callable[[], Any]:
    from hashlib import sha256

    return sha256


@cache
def _without_openssl() -> Callable[[], Any]:
    for module in ("_sha2", "_sha256"):  # from Python 3.12 on, and before
        try:
            found: Callable[[], Any] = __import__(module).sha256
        except (ImportError, AttributeError):
            continue
        return found
    return _openssl()


def combined(digests: dict[str, str]) -> str:
    """Return one digest of several named digests, in any order."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return sha256(lines.encode())
