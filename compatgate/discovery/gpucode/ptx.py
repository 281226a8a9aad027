"""PTX text: its directives name the ISA version and the architecture.

Source: NVIDIA PTX ISA, "PTX Module Directives" (``.version`` first, then ``.target``).
"""

from __future__ import annotations

import re

from compatgate.core.arch import Arch
from compatgate.discovery.gpucode.model import Entry
from compatgate.discovery.gpucode.source import Source

LARGEST_HEAD = 64 * 1024
"""Bytes in which the directives must stand; comments may come before them."""

_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+(\d{1,2}\.\d{1,2})", re.MULTILINE)
_TARGET = re.compile(rb"^[ \t]*\.target[ \t]+sm_(\d{2,3})([af]?)\b", re.MULTILINE)
_RELEASE = re.compile(rb"^// Cuda compilation tools, release (\d{1,2}\.\d{1,2}), V", re.MULTILINE)


def read_ptx(source: Source) -> Entry | None:
    """Read PTX text; None when it is not PTX."""
    head = source.peek(LARGEST_HEAD)
    version = _VERSION.search(head)
    target = _TARGET.search(head, version.end()) if version else None
    if version is None or target is None:
        return None
    release = _RELEASE.search(head, 0, version.start())
    return Entry(
        "ptx",
        Arch("ptx", divmod(int(target[1]), 10), target[2].decode()),
        ptx_isa=version[1].decode(),
        cuda=release[1].decode() if release else None,
        offset=source.position,
    )
