"""Writing a result to a file or to standard output."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from compatgate.errors import BadInput


def write_output(path: str, content: bytes) -> None:
    """Write to a file, whole or not at all; ``-`` is standard output.

    Raises:
        BadInput: the file cannot be written.
    """
    if path == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # a pipe or a device cannot be replaced
            return
        part.write_bytes(content)
        part.replace(target)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        reason = error.strerror or str(error)
        raise BadInput(f"cannot write {path}: {reason}", field="--output", value=path) from None
