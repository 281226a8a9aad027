"""A node as people and programs are shown it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from compatgate.gate.nodes.standing import Standing
from compatgate.store import clock
from compatgate.store.nodes import NodeRow


class NodeView(Struct, frozen=True):
    """A node as it is shown.

    Attributes:
        row: what was reported.
        standing: against the matrix as it is now.
        stale: nothing was heard of it for long.
    """

    row: NodeRow
    standing: Standing
    stale: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        row, standing = self.row, self.standing
        times = ("first_seen_at", "seen_at", "since")
        return {
            "cluster": row.cluster,
            "name": row.name,
            "driver": row.driver,
            "gpus": row.gpus,
            "targets": list(standing.targets),
            "driver_state": standing.driver,
            "driver_why": standing.why,
            "drift": [msgspec.to_builtins(d) for d in standing.differences],
            "disagreements": row.disagreements,
            "notes": list(standing.notes),
            "witnesses": list(row.witnesses.values()),
            "labels": row.labels,
            "stale": self.stale,
            "reported_by": row.reported_by,
            **{name: clock.iso(getattr(row, name)) for name in times},
        }

    def to_drift(self) -> dict[str, Any]:
        """Where it differs, as plain data."""
        body = self.to_json()
        shown = ("cluster", "name", "driver", "gpus", "since", "seen_at", "stale")
        return {**{key: body[key] for key in shown}, "differences": body["drift"]}
