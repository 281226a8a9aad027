"""What becomes of everything in use on a target when the target or the facts change."""

from compatgate.core.whatif.model import Cause, Change, EntryChange, PoolChange, WhatIf
from compatgate.core.whatif.run import Side, facts_change, what_if

__all__ = [
    "Cause",
    "Change",
    "EntryChange",
    "PoolChange",
    "Side",
    "WhatIf",
    "facts_change",
    "what_if",
]
