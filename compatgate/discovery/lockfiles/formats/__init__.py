"""One module per lockfile format."""

from compatgate.discovery.lockfiles.formats.conda import (
    CondaEnvironment,
    CondaExplicit,
    CondaLock,
    PixiLock,
)
from compatgate.discovery.lockfiles.formats.json_locks import (
    PipfileLock,
    PipInspection,
    PipReport,
)
from compatgate.discovery.lockfiles.formats.requirements import RequirementsTxt
from compatgate.discovery.lockfiles.formats.toml_locks import PdmLock, PoetryLock, PylockToml
from compatgate.discovery.lockfiles.formats.uv import UvLock
from compatgate.discovery.lockfiles.interface import LockFormat

FORMATS: tuple[LockFormat, ...] = (
    PixiLock(),
    PipfileLock(),
    PipReport(),
    PipInspection(),
    PoetryLock(),
    PdmLock(),
    PylockToml(),
    UvLock(),
    CondaExplicit(),
    CondaLock(),
    CondaEnvironment(),
    RequirementsTxt(),
)
"""All formats, the most specific first."""

QUOTING_FORMATS: tuple[LockFormat, ...] = (PipReport(), PipInspection())
"""Formats that quote descriptions of packages; braces in these are no template."""

__all__ = ["FORMATS", "QUOTING_FORMATS"]
