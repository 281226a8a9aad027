"""One module per family of lockfile formats."""

from compatgate.discovery.lockfiles.formats.conda import (
    CondaEnvironment,
    CondaExplicit,
    CondaLock,
    PixiLock,
)
from compatgate.discovery.lockfiles.formats.json_locks import (
    PIP_INSPECTION,
    PIP_REPORT,
    PIPFILE,
    TorchReport,
)
from compatgate.discovery.lockfiles.formats.requirements import RequirementsTxt
from compatgate.discovery.lockfiles.formats.toml_locks import PDM, POETRY, PYLOCK
from compatgate.discovery.lockfiles.formats.uv import UvLock
from compatgate.discovery.lockfiles.interface import LockFormat

QUOTING_FORMATS: tuple[LockFormat, ...] = (PIP_REPORT, PIP_INSPECTION)
"""Formats that quote descriptions of packages; braces in these are no template."""
FORMATS: tuple[LockFormat, ...] = (
    PixiLock(),
    PIPFILE,
    *QUOTING_FORMATS,
    POETRY,
    PDM,
    PYLOCK,
    UvLock(),
    TorchReport(),
    CondaExplicit(),
    CondaLock(),
    CondaEnvironment(),
    RequirementsTxt(),
)
"""All formats, the most specific first."""

__all__ = ["FORMATS", "QUOTING_FORMATS"]
