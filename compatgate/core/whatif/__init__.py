"""What becomes of everything in use on a target when its driver, GPU or CUDA changes."""

from compatgate.core.whatif.model import Cause, Change, EntryChange, PoolChange, WhatIf
from compatgate.core.whatif.run import what_if

__all__ = ["Cause", "Change", "EntryChange", "PoolChange", "WhatIf", "what_if"]
