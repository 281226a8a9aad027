"""How whoever measures wheels hears how it goes on."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Is told how a measurement goes on."""

    def begin(self, wheel: str, size: int) -> None:
        """Begin a wheel, of which about ``size`` bytes will be read."""

    def member(self, path: str, size: int) -> None:
        """Begin a member, of ``size`` bytes as stored."""

    def advance(self, size: int) -> None:
        """Count bytes that were read."""


class Silent:
    """No progress is shown."""

    def begin(self, wheel: str, size: int) -> None:
        """Do nothing."""

    def member(self, path: str, size: int) -> None:
        """Do nothing."""

    def advance(self, size: int) -> None:
        """Do nothing."""
