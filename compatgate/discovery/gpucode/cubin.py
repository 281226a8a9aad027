"""Cubins: ELF files with machine code for one architecture.

Sources: LLVM ``llvm/include/llvm/BinaryFormat/ELF.h`` (``EM_CUDA`` and the ``EF_CUDA_*`` flags,
whose place changed with ABI version 8), and cubins of nvcc 13.5: ``.note.nv.tkinfo`` holds the
tool, its release (``Cuda compilation tools, release 13.5, V13.5.37``) and its command line
(``-arch sm_90a``), which alone tells family-specific code from other code.
"""

from __future__ import annotations

import re
import struct

from compatgate.core.arch import Arch, parse_arch
from compatgate.discovery.gpucode.model import Entry
from compatgate.discovery.gpucode.source import Source, damaged

EM_CUDA = 190
LARGEST = 1024 * 1024
"""Bytes of a cubin that are searched for its notes, which stand before its code."""

_ELF64_LE = b"\x7fELF\x02\x01"
_RELEASE = re.compile(rb"Cuda compilation tools, release (\d{1,2}\.\d{1,2}), V")
_ARCH = re.compile(rb"-arch[ =](sm_\d{2,3}[af]?)\b")
_ET_REL = 1


def is_cubin(head: bytes) -> bool:
    """Whether these first bytes of an ELF file are those of a cubin."""
    return head[:6] == _ELF64_LE and len(head) >= 64 and _machine(head) == EM_CUDA


def toolkit_of_cubin(head: bytes) -> str | None:
    """Release of the toolkit that made a cubin, from its first bytes; None when not recorded."""
    match = _RELEASE.search(head) if is_cubin(head) else None
    return match[1].decode() if match else None


def read_cubin(source: Source) -> Entry:
    """Read a cubin that stands alone.

    Raises:
        BadInput: it ends before its section headers, or names no architecture.
    """
    start = source.position
    head = source.peek(LARGEST)
    flags, sections = struct.unpack_from("<I", head, 48)[0], struct.unpack_from("<Q", head, 40)[0]
    left = source.left if len(head) == LARGEST else len(head)
    if sections > left:
        what = f"section headers should begin at byte {start + sections}"
        raise damaged(source.name, start + left, what)
    match = _ARCH.search(head)
    arch = parse_arch(match[1].decode())[0] if match else _arch_of(flags, abi=head[8])
    if not 10 <= 10 * arch.capability[0] + arch.capability[1] <= 999:
        raise damaged(source.name, start + 48, f"flags {flags:#x} name no architecture")
    relocatable = struct.unpack_from("<H", head, 16)[0] == _ET_REL
    return Entry("sass", arch, cuda=toolkit_of_cubin(head), relocatable=relocatable, offset=start)


def _arch_of(flags: int, abi: int) -> Arch:
    """From the ELF flags: until ABI 7 the low byte and ``0x800``, from ABI 8 the second byte."""
    if abi >= 8:
        return Arch("sass", divmod(flags >> 8 & 0xFF, 10), "a" if flags & 0x8 else "")
    return Arch("sass", divmod(flags & 0xFF, 10), "a" if flags & 0x800 else "")


def _machine(head: bytes) -> int:
    machine: int = struct.unpack_from("<H", head, 18)[0]
    return machine
