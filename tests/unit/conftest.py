"""Fixtures that the tests of this folder share."""

from __future__ import annotations

from asking import ask, facts, gpus, now, pool_of, stack_of

__all__ = ["ask", "facts", "gpus", "now", "pool_of", "stack_of"]
