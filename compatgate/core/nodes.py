"""What is said of nodes: words that the layers share."""

from __future__ import annotations

from typing import Literal

DriverState = Literal["blessed", "not-blessed", "unknown"]
"""Whether a blessed or deprecated entry of its targets admits a node's driver."""
What = Literal["driver", "gpu"]
"""In what a node differs from what its target declares."""
