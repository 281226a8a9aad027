"""Writes compatgate/core/vocabulary.py: the components of matrix/facts/components.yaml, as code.

The rules, and whatever reads a name, need the closed list of components before any fact is read,
and the core reads no files. ``--check`` only says whether the module is current.
"""

from __future__ import annotations

import sys
from pathlib import Path

from compatgate.catalog.build.packages import vocabulary_source
from compatgate.catalog.library import read_document

MODULE = Path(__file__).parents[1] / "compatgate" / "core" / "vocabulary.py"


def main() -> int:
    """Write the module, or with ``--check`` compare it."""
    text = vocabulary_source(read_document("components")["components"])
    if "--check" in sys.argv:
        return 0 if MODULE.read_text() == text else 1
    MODULE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
