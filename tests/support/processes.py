"""Processes of tests that share a database, without a second of imports for each.

They are forked from one that has the service's modules, and nothing of the test's process: no
connection, no thread, no lock.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["compatgate.service.gate.questions.service", "compatgate.web.app"])


def forked() -> ForkServerContext:
    """Return what makes processes, as `multiprocessing` itself does."""
    return _context
