"""One module per family of lockfile formats."""

from compatgate.discovery.lockfiles.formats.conda import (
    CONDA_ENVIRONMENT,
    CONDA_EXPLICIT,
    CONDA_LOCK,
    PIXI,
)
from compatgate.discovery.lockfiles.formats.json_locks import (
    PIP_INSPECTION,
    PIP_REPORT,
    TORCH_REPORT,
)
from compatgate.discovery.lockfiles.formats.requirements import REQUIREMENTS
from compatgate.discovery.lockfiles.formats.toml_locks import PDM, POETRY, PYLOCK
from compatgate.discovery.lockfiles.formats.uv import UV

QUOTING_FORMATS = (PIP_REPORT, PIP_INSPECTION)
"""Formats that quote descriptions of packages; braces in these are no template."""
FORMATS = (
    PIXI,
    *QUOTING_FORMATS,
    POETRY,
    PDM,
    PYLOCK,
    UV,
    TORCH_REPORT,
    CONDA_EXPLICIT,
    CONDA_LOCK,
    CONDA_ENVIRONMENT,
    REQUIREMENTS,
)
"""All formats, the most specific first."""

__all__ = ["FORMATS", "QUOTING_FORMATS", "REQUIREMENTS"]
