"""Other projects' files about GPU nodes, as pools.

AICR snapshots and recipes, and the objects of the GPU Operator: docs/neighbours.md says what is
read of each, and what is left unknown.
"""

from __future__ import annotations

from compatgate.discovery.neighbours.draft import Draft, DraftPool, draft_target
from compatgate.discovery.neighbours.recognise import read_neighbours, read_snapshot_pools

__all__ = ["Draft", "DraftPool", "draft_target", "read_neighbours", "read_snapshot_pools"]
