"""What lint finds."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning"]
Said = tuple[Severity, str]
"""How bad it is, and what it is."""


class Finding(Struct, frozen=True):
    """Something to mend.

    Attributes:
        file: that it is about.
        severity: an error keeps the workload from showing what it promises.
    """

    file: str
    severity: Severity
    message: str
