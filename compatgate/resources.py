"""Find what belongs to the program: files in the repository or the wheel, extras, documentation.

docs/how-to/release.md lists what changes here once a release is published.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatgate.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
SOURCE = "."
"""What pip installs: a checkout. The name on the public index belongs to nobody yet."""
DOCS = "COMPATGATE_DOCS"
"""Variable with the address of the documentation that an operator serves (``make site``)."""


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


def install_hint(extra: str) -> str:
    """Tell how to install an extra."""
    return f"in a checkout of compatgate: pip install '{SOURCE}[{extra}]'"


def docs_link(page: str = "", anchor: str = "") -> str:
    """Return the address of a page like ``reference/rules/``; empty where no address is set."""
    base = os.environ.get(DOCS, "").rstrip("/")
    return f"{base}/{page}{f'#{anchor}' if anchor else ''}" if base else ""
