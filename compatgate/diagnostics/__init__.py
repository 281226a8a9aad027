"""Report what a running process uses: driver, GPUs and loaded CUDA libraries.

For services to expose, and for ``compatgate probe --pid``:

- `report` returns the probe document of this process, which ``compatgate check --probe`` reads;
- `wsgi_app` and `asgi_app` serve it, mounted in Flask, Starlette or FastAPI, or standalone;
- `compatgate.diagnostics.loaded` is a standalone file that needs only Python.

Importing this package imports almost nothing; the first report imports the rest. A report does not
initialise CUDA, loads no CUDA library and keeps no state. See docs/how-to/probe.md.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from compatgate.diagnostics.apps import asgi_app, wsgi_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from compatgate.diagnostics.loaded import Library

__all__ = ["asgi_app", "loaded_libraries", "report", "wsgi_app"]

# A child forked while another thread imports would wait forever for the import lock. So a fork
# waits until the first report has finished its imports.
_importing = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire,
        after_in_parent=_importing.release,
        after_in_child=_importing.release,
    )
_own: Callable[[], dict[str, Any]] | None = None


def report() -> dict[str, Any]:
    """Return the probe document of this process.

    Returns:
        ``{"compatgate": "probe/v1", "pools", "stack", "observations", "conflicts", "host",
        "process"}``, ready for JSON. ``host.notes`` lists unknown values; ``stack.open`` lists the
        unknowns that make a decision impossible.
    """
    return _ready()()


def loaded_libraries() -> list[Library]:
    """Return the CUDA libraries loaded in this process, each with its reported version."""
    with _importing:
        import ctypes  # noqa: F401 - asks the libraries

        from compatgate.diagnostics import loaded
    return loaded.loaded_libraries()


def _ready() -> Callable[[], dict[str, Any]]:
    global _own
    if _own is None:
        with _importing:
            import ctypes  # noqa: F401 - asks the libraries

            from compatgate.diagnostics.reporter import reporter

            _own = _own or reporter()
    return _own
