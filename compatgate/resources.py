"""Find the files that belong to the program: in the repository, or inside the wheel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatgate.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def find_packaged(*parts: str) -> str | None:
    """Return the path of a file or folder inside the wheel (``_data/...``); None elsewhere."""
    path = os.path.join(_PACKAGE, "_data", *parts)
    return path if os.path.exists(path) else None


def locate(name: str) -> str:
    """Return the path of ``matrix``, ``canary`` or ``migrations`` as text; cheap to call."""
    found = find_packaged(name)
    if found:
        return found
    path = os.path.join(os.path.dirname(_PACKAGE), name)
    if os.path.isdir(path):
        return path
    raise CatalogError(
        f"the {name} files are missing from this installation",
        field=name,
        value=path,
        hint="reinstall compatgate",
    )


def _locate_path(name: str) -> Path:
    from pathlib import Path

    return Path(locate(name))


def matrix_dir() -> Path:
    """Return the directory of the vendors' facts, their schemas and the example matrix."""
    return _locate_path("matrix")


def package_dir() -> Path:
    """Return the directory of the package itself."""
    from pathlib import Path

    return Path(_PACKAGE)


def canary_dir() -> Path:
    """Return the directory of the canary workloads."""
    return _locate_path("canary")


def migrations_dir() -> Path:
    """Return the directory of the database migrations."""
    return _locate_path("migrations")
