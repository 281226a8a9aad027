"""Errors that several readers of an image raise."""

from __future__ import annotations

from compatgate.errors import Damaged, TooLarge


def damaged(problem: str) -> Damaged:
    """The error for bytes that are not what they should be."""
    hint = "nothing of it was kept; push the image again, or check the mirror or proxy between"
    return Damaged(problem, field="image", hint=hint)


def too_large(problem: str) -> TooLarge:
    """The error for an image that takes more than is allowed."""
    return TooLarge(problem, field="image", hint="nothing of it was kept")
