"""Make the methods of the client from the operations of the API.

Their types are in ``operations.pyi``, which ``scripts/operations.py`` makes as well.
"""

from __future__ import annotations

from compatgate.client.request import make_operation
from compatgate.kit.operations import load_operations


class Operations:
    """The operations of a gate, by ``operationId``."""


for _declared in load_operations().values():
    setattr(Operations, _declared.name, make_operation(_declared))
