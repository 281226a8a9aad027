"""Import a library without an optional dependency that costs more than what is needed of it."""

from __future__ import annotations

import sys
from importlib import import_module


def import_without(module: str, optional: str) -> None:
    """Import a library while one of its optional dependencies seems not to be installed.

    Nothing is hidden where either is imported already.
    """
    hide = optional not in sys.modules and module not in sys.modules
    if hide:
        sys.modules[optional] = None  # type: ignore[assignment]
    try:
        import_module(module)
    finally:
        if hide:
            del sys.modules[optional]
