"""``[host.slurm]`` of a ``hosts.toml``: its shape, and what a schema cannot say of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from compatgate.documents.specs import LINE_PATTERN

PATH_PATTERN = r"^/[A-Za-z0-9._/+@=-]{1,255}$(?!\n)"
"""No comma, colon, percent sign or blank: Slurm and container tools give those a meaning."""
BUNDLE_PATTERN = r"^/[A-Za-z0-9._/+@={}-]{1,255}$(?!\n)"
WORD_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._,@+-]{0,254}$(?!\n)"
GRES_PATTERN = r"^[a-z][A-Za-z0-9_]{0,63}(:[A-Za-z0-9._-]{1,63})?$(?!\n)"
CONSTRAINT_PATTERN = r"^[A-Za-z0-9\[(][A-Za-z0-9._,:&|*()\[\]!-]{0,254}$(?!\n)"
OPTION_PATTERN = r"^--[a-z][a-z-]{1,63}(=[A-Za-z0-9._,:/@+\[\]-]{1,255})?$(?!\n)"
ALLOWED = (
    "contiguous", "core-spec", "cores-per-socket", "cpu-freq",
    "cpus-per-gpu", "distribution", "exclude", "exclusive", "gpu-bind", "gpu-freq",
    "gres-flags", "hint", "licenses", "mem-bind", "network", "nice", "nodelist",
    "oversubscribe", "prefer", "priority", "reservation", "sockets-per-node", "spread-job",
    "switches", "thread-spec", "threads-per-core", "tmp", "use-min-nodes",
    "wckey",
)  # fmt: skip
"""Options of ``sbatch`` that a site may add: they choose nodes, none of them runs or writes."""
PLACEHOLDERS = ("{image}", "{files}", "{scratch}", "{name}", "{folder}")

_Path = Annotated[str, Meta(pattern=PATH_PATTERN)]
_Word = Annotated[str, Meta(pattern=WORD_PATTERN)]
_Line = Annotated[str, Meta(pattern=LINE_PATTERN)]
_Option = Annotated[str, Meta(pattern=OPTION_PATTERN)]


class SlurmTable(Struct, frozen=True, forbid_unknown_fields=True):
    """``[host.slurm]``."""

    work: _Path
    partition: _Word | None = None
    account: _Word | None = None
    qos: _Word | None = None
    constraint: Annotated[str, Meta(pattern=CONSTRAINT_PATTERN)] | None = None
    gres: Annotated[str, Meta(pattern=GRES_PATTERN)] | None = None
    extra: Annotated[tuple[_Option, ...], Meta(max_length=32)] = ()
    container: Literal["none", "pyxis", "oci", "wrapper"] = "none"
    wrapper: Annotated[tuple[_Line, ...], Meta(max_length=64)] = ()
    fetch: Annotated[tuple[_Line, ...], Meta(max_length=64)] = ()
    bundle: Annotated[str, Meta(pattern=BUNDLE_PATTERN)] | None = None
    commands: _Path | None = None
    poll: Annotated[float, Meta(ge=0.2, le=300)] = 5.0


class Mistake(Struct, frozen=True):
    """Field of ``[host.slurm]``, what is wrong with it, what would be right."""

    field: str
    problem: str
    hint: str
    value: str | None = None


def mistakes(table: SlurmTable, gpu: str | None) -> Iterator[Mistake]:
    """What does not go together.

    Args:
        table: as written.
        gpu: of the host.
    """
    for option in table.extra:
        if option[2:].partition("=")[0] not in ALLOWED:
            yield Mistake("extra", "is not an option that may be added",
                          f"may be added: {', '.join(ALLOWED)}", option)  # fmt: skip
    if gpu and not table.gres:
        yield Mistake("gres", "is missing: Slurm would give no GPU", 'like "gpu:a100"')
    if table.gres and not gpu:
        yield Mistake("gres", "is stated without a gpu", "name the GPU of the host", table.gres)
    yield from _of_container(table)


def _of_container(table: SlurmTable) -> Iterator[Mistake]:
    kind = table.container
    if kind == "wrapper" and not any("{image}" in part for part in (*table.wrapper, *table.fetch)):
        yield Mistake("wrapper", "names no {image}",
                      f"an argument vector with {', '.join(PLACEHOLDERS)}")  # fmt: skip
    if kind == "oci" and not table.bundle:
        yield Mistake("bundle", "is missing", 'like "/shared/bundles/{digest}"')
    for field, owner in (("wrapper", "wrapper"), ("fetch", "wrapper"), ("bundle", "oci")):
        if getattr(table, field) and kind != owner:
            yield Mistake(field, f'is for container = "{owner}"', "leave it out")
