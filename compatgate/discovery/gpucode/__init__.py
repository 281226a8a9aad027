"""Find GPU code in binaries: the architectures in ELF and PE files, libraries and fatbinaries.

`read_gpu_code` lists SASS, PTX and link-time code with architecture, PTX ISA version and whether it
is compressed. Nothing is decompressed and no code is read: the headers say it all.

The format, which NVIDIA does not publish; all numbers little-endian:

* A host ELF file holds its fatbinaries in section ``.nv_fatbin``, those of relocatable device code
  (``-rdc=true``) in ``__nv_relfatbin``, one behind the other, padded with zeros to 8 bytes. Section
  ``.nvFatBinSegment`` holds a wrapper for each (``0x466243B1``, version 1 or, linked, 2, a pointer
  to the fatbinary, a pointer). The dynamic linker fills the pointers in, so the names of the
  sections are what finds the fatbinaries; where only wrappers are there, the file is searched.
* A PE file (Windows) has the same sections, their names cut to 8 bytes: ``.nv_fatb``, ``__nv_rel``,
  ``.nvFatBi``.
* A fatbinary: ``u32 0xBA55ED50; u16 version = 1; u16 header size = 16; u64 size of the entries``.
* An entry, 64 bytes and what the offsets point to, then its payload, padded to 8 bytes::

      0  u16 kind: 1 PTX, 2 ELF (cubin), 4 old cubin, 8 NVVM IR (LTO), 0x100 concatenated
      2  u16 version, 0x101
      4  u32 size of this header
      8  u64 size of the payload as stored
     16  u32 size without padding when compressed
     20  u32 offset of the options, 0 without
     24  u16 minor, u16 major: of PTX the ISA version, of others the version of the encoding
     28  u32 architecture, 90
     32  u32 offset of the identifier, u32 its length
     40  u64 flags: 0x1 64-bit, 0x2 debug, 0x10 Linux, 0x1000 0x2000 compressed with LZ4, 0x8000
         with zstd, 0x10000 link-time code, 0x100000 architecture-specific ("a"), 0x200000
         family-specific ("f"), 0x1000000 from sm_100 on
     48  u64 unknown
     56  u64 size when decompressed

  The options are ``u32 offset, u32 length`` and text with a terminating zero, all from the header's
  beginning and padded to 8 bytes.
* ``nvcc --concat`` (13.5) puts several entries into one payload, compressed as a whole. The
  options offset of kind 0x100 points to an index: ``u32 count, u32 size``, then the headers of the
  entries as above, but with the offset in the payload in the place of the header's size.

Sources: NVIDIA's ``fatbinary.h`` (CUDA 8 to 11: magic, header, kinds) and ``fatbinary_section.h``
(CUDA 13: sections, wrapper); LLVM ``clang/lib/CodeGen/CGCUDANV.cpp`` and
``llvm/lib/Frontend/Offloading`` (sections, wrapper); n-eiling/cuda-fatbin-decompression and
redplait/denvdis (entry header, flags). All of it, and the index, the flags of ``f`` and ``a`` and
zstd, were checked against files made by nvcc 13.5 and what its cuobjdump lists.
"""

from __future__ import annotations

from compatgate.discovery.gpucode.fatbin import Entry, EntryKind, GpuCode, Units, in_order, newest
from compatgate.discovery.gpucode.reader import read_gpu_code

__all__ = ["Entry", "EntryKind", "GpuCode", "Units", "in_order", "newest", "read_gpu_code"]
