"""Image compatibility as Node Feature Discovery (NFD) knows it: specs written and read.

docs/neighbours.md says what a spec can say of a stack, and what NFD cannot see on a node.
"""

from __future__ import annotations

from compatgate.discovery.nfd.evaluate import Answer, evaluate
from compatgate.discovery.nfd.spec import (
    ARTIFACT_TYPE,
    LAYER_TYPE,
    Spec,
    read_spec,
    write_spec,
)
from compatgate.discovery.nfd.write import Written, spec_of_stack

__all__ = [
    "ARTIFACT_TYPE",
    "LAYER_TYPE",
    "Answer",
    "Spec",
    "Written",
    "evaluate",
    "read_spec",
    "spec_of_stack",
    "write_spec",
]
