"""A question with what its image shows."""

from __future__ import annotations

from typing import Any, NamedTuple


class Shown(NamedTuple):
    """A question, as far as images can complete it.

    Attributes:
        body: of the question.
        read: an image was read for it.
        alone: its stack is what the image shows, and nothing that was stated.
    """

    body: Any
    read: bool = False
    alone: bool = False
