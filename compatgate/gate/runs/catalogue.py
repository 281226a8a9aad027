"""Which suites and workloads can be run here: the shipped ones, and the operator's own."""

from __future__ import annotations

from functools import cache

from compatgate.canary.workloads import Library


@cache
def library() -> Library:
    """Every suite and workload, read once; ``COMPATGATE_WORKLOADS`` names the operator's folders.

    Raises:
        ManyProblems: every mistake in every file.
    """
    return Library.open()
