"""What a running process really uses: driver, GPUs and the CUDA libraries loaded in it.

For services to expose, and for ``compatgate probe --pid``:

- `report` gives the probe document of this process, which ``compatgate check --probe`` reads;
- `wsgi_app` and `asgi_app` serve it, mounted in Flask, Starlette, FastAPI or by themselves;
- `compatgate.diagnostics.loaded` is a file of its own that needs only Python.

Importing this imports next to nothing; what a report needs is imported with the first one. A report
does not initialise CUDA and loads no CUDA library, and nothing is kept between two of them.
docs/probe.md says more.
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

# A child that is forked while another thread imports waits for ever for that import's lock. So a
# fork waits until the imports of the first report are done.
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
        "process"}``, fit for JSON; what could not be told is in ``host.notes``, and what makes a
        decision impossible in ``stack.open``.
    """
    return _ready()()


def loaded_libraries() -> list[Library]:
    """Return the CUDA libraries that are loaded in this process, each with what it reports."""
    with _importing:
        import ctypes  # noqa: F401 - asks the libraries

        from compatgate.diagnostics import loaded
    return loaded.loaded_libraries()


def _ready() -> Callable[[], dict[str, Any]]:
    """What makes reports, with everything that it will need imported."""
    global _own
    if _own is None:
        with _importing:
            import ctypes  # noqa: F401 - asks the libraries

            from compatgate.diagnostics.own import reporter

            _own = _own or reporter()
    return _own
