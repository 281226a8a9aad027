"""The version in NCCL's file: the text that it prints, ``NCCL version 2.21.5+cuda12.4``.

Source: NVIDIA/nccl ``src/init.cc``, ``VERSION_STRING`` ("Pre-process the string so that running
strings on the lib can quickly reveal the version").
"""

from __future__ import annotations

import os
import re

from compatgate.discovery.gpucode.sections import read_sections
from compatgate.discovery.gpucode.source import Source

_TEXT = re.compile(rb"NCCL version (\d+\.\d+\.\d+)[a-z0-9.]*\+cuda(\d{1,2})\.(\d)")
_LARGEST = 64 * 1024 * 1024


def nccl_version(path: str) -> str | None:
    """``2.21.5+cu124``; None where the file does not have the text.

    Raises:
        OSError: it cannot be opened.
        BadInput: it is a damaged ELF file.
    """
    with open(path, "rb") as file:
        source = Source(file, path, size=os.fstat(file.fileno()).st_size, seekable=True)
        for section in read_sections(source, 0, source.size or 0) or ():
            if (section.name or "").startswith(".rodata"):
                source.seek(section.start)
                data = source.read(min(section.end - section.start, _LARGEST))
                if match := _TEXT.search(data):
                    return f"{match[1].decode()}+cu{match[2].decode()}{match[3].decode()}"
    return None
