"""Rows of the database as the engine's structs."""

from __future__ import annotations

import msgspec

from compatgate.canary.run import Run
from compatgate.store.run_rows import RunRow


def to_run(row: RunRow) -> Run:
    """A stored run, as the engine knows it."""
    values = msgspec.structs.asdict(row)
    return msgspec.convert({name: values[name] for name in Run.__struct_fields__}, Run)
