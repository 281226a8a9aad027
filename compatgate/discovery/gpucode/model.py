"""Represent entries of GPU code, and summarise those of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from compatgate.core.gpu_code import Arch

EntryKind = Literal["sass", "ptx", "lto"]


class Entry(Struct, frozen=True):
    """One piece of GPU code.

    Attributes:
        kind: ``sass`` machine code, ``ptx``, or ``lto``: NVVM IR, which only the device linker
            reads and no driver runs.
        arch: target architecture; for link-time code the virtual architecture.
        ptx_isa: PTX ISA version, ``8.4``; None for other kinds.
        compressed: the code is stored compressed (LZ4 or zstd).
        cuda: release of the compiling toolkit, ``12.4``, where the code records it: read from
            separate cubins and PTX files, and from a region's first cubin.
        relocatable: made with ``-rdc=true``; runs once it has been linked with the others.
        region: number of the fatbinary in the file, from 0; each belongs to a translation unit.
        offset: offset of the header in the file, in bytes.
        member: member of the archive, ``""`` outside of an archive.
    """

    kind: EntryKind
    arch: Arch
    ptx_isa: str | None = None
    compressed: bool = False
    cuda: str | None = None
    relocatable: bool = False
    region: int = 0
    offset: int = 0
    member: str = ""

    @property
    def name(self) -> str:
        """Return ``sm_90a``, ``compute_80`` or ``lto_80``."""
        name = self.arch.name
        return name.replace("compute", "lto") if self.kind == "lto" else name


class GpuCode(Struct, frozen=True):
    """The GPU code of a file; empty without entries."""

    entries: tuple[Entry, ...] = ()

    @property
    def arch(self) -> tuple[Arch, ...]:
        """Return the architectures that a stack with this file carries: SASS, then PTX, ascending.

        Link-time code does not count. In a linked file relocatable code counts only where every
        object brought it, since the driver links all of them anew when nothing linked fits (NVCC
        documentation, "JIT Linking"); in an object or archive, which is not linked yet, all of
        it counts.
        """
        runnable = [entry for entry in self.entries if entry.kind != "lto"]
        linked = {entry.arch for entry in runnable if not entry.relocatable}
        objects: dict[tuple[str, int], set[Arch]] = {}
        for entry in runnable:
            if entry.relocatable:
                objects.setdefault((entry.member, entry.region), set()).add(entry.arch)
        if linked and objects:
            return in_order(linked | set.intersection(*objects.values()))
        return in_order(linked.union(*objects.values()))

    @property
    def units(self) -> Units:
        """Return the counts of translation units by their code.

        A fatbinary is a unit. Relocatable objects of a linked file are one unit, since they are
        linked to one program: their code in `arch` counts once, unless the linked code has it.
        """
        groups: dict[tuple[str, int], set[Arch]] = {}
        together: dict[tuple[str, int], set[Arch]] = {}
        for entry in self.entries:
            if entry.kind != "lto":
                chosen = together if entry.relocatable else groups
                chosen.setdefault((entry.member, entry.region), set()).add(entry.arch)
        if not groups or not together:
            return Units.of([*groups.values(), *together.values()])
        common = set.intersection(*together.values())
        more = common - set().union(*groups.values())
        units = list(groups.values())
        place = next((n for n, unit in enumerate(units) if unit <= common), 0)
        units[place] = units[place] | more
        return Units.of(units)

    @property
    def ptx_isa(self) -> str | None:
        """Return the newest PTX ISA version, None without PTX."""
        return newest(e.ptx_isa for e in self.entries)

    @property
    def cuda(self) -> str | None:
        """Return the newest recorded toolkit, None without one."""
        return newest(e.cuda for e in self.entries)


class Units(Struct, frozen=True):
    """Translation units with code that a driver can run.

    Attributes:
        sass: number of units with machine code, by architecture.
        ptx: number of units with PTX.
        count: number of all units.
        profiles: number of units with the same code, by code: ``sm_80+sm_90a+compute_90``.
    """

    sass: dict[str, int]
    ptx: dict[str, int]
    count: int
    profiles: dict[str, int]

    @classmethod
    def of(cls, units: Sequence[set[Arch]]) -> Units:
        """Count units by the code that each has."""
        codes = Counter(code for unit in units for code in unit)
        ordered = in_order(codes)
        profiles = Counter("+".join(code.name for code in in_order(unit)) for unit in units)
        return cls(
            {code.name: codes[code] for code in ordered if code.kind == "sass"},
            {code.name: codes[code] for code in ordered if code.kind == "ptx"},
            len(units),
            dict(sorted(profiles.items(), key=lambda item: (-item[1], item[0]))),
        )


def in_order(codes: Iterable[Arch]) -> tuple[Arch, ...]:
    """Sort codes without duplicates: SASS before PTX, each ascending."""
    return tuple(sorted(set(codes), key=lambda a: (a.kind == "ptx", a.capability, a.suffix)))


def newest(versions: Iterable[str | None]) -> str | None:
    """Return the highest of dotted numbers."""
    known: Sequence[str] = [v for v in versions if v]
    return max(known, key=lambda v: tuple(map(int, v.split("."))), default=None)
