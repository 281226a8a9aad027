"""From what was seen to one stack.

Every source (an image, a wheel, a folder, a running host) gathers `Findings`. `conclude` makes one
stack of them: `settle` says which witness of a version decides, `code` what GPU code runs
wherever all of it must. The result is an `Inspection`: the stack, where each part of it was seen,
where witnesses disagree, and what is left open.
"""

from __future__ import annotations

from compatgate.discovery.stack.code import CodeFile
from compatgate.discovery.stack.conclude import Inspection, conclude
from compatgate.discovery.stack.findings import Findings
from compatgate.discovery.stack.settle import settle
from compatgate.discovery.stack.stated import shown_wins

__all__ = ["CodeFile", "Findings", "Inspection", "conclude", "settle", "shown_wins"]
