"""SHA-256 without loading OpenSSL: start-up of the command line is counted in milliseconds."""

from __future__ import annotations

import sys
from typing import Any


def sha256(data: bytes) -> str:
    """Hexadecimal digest."""
    return str(_function()(data).hexdigest())


def _function() -> Any:
    if "hashlib" not in sys.modules:
        for module in ("_sha2", "_sha256"):
            try:
                return __import__(module).sha256
            except (ImportError, AttributeError):
                continue
    from hashlib import sha256

    return sha256


def combined(digests: dict[str, str]) -> str:
    """One digest of several named ones, whatever their order."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return sha256(lines.encode())
