"""Hold signatures of error texts, and the causes that they show."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct

from compatgate.core.facts.nvidia import Source
from compatgate.core.facts.xid import Severity

Certainty = Literal["certain", "likely"]
"""``certain``: the text names its cause; ``likely``: other causes print the same words."""


class Piece(Struct, frozen=True, array_like=True):
    """A literal part of a pattern, in lower case.

    Attributes:
        text: the words.
        gap: characters at most between the end of the piece before and this one.
        unbroken: the gap has no blank.
    """

    text: str
    gap: int = 0
    unbroken: bool = False


Pattern = tuple[Piece, ...]


class Signature(Struct, frozen=True):
    """Words that programs print, and what they show.

    Attributes:
        cause: id of the cause.
        patterns: alternatives; each is a sequence of pieces.
        near: at least one of these words is near the match; empty: nothing is asked.
        symptom: the text follows from another error: it counts only where nothing else is found.
        sample: a text as printed.
        health: severity where a host's log has the words; None: a log is not searched for them.
    """

    id: str
    cause: str
    certainty: Certainty
    patterns: tuple[Pattern, ...]
    source: Source
    near: tuple[str, ...] = ()
    symptom: bool = False
    sample: str = ""
    health: Severity | None = None


class Cause(Struct, frozen=True):
    """A reason for errors.

    Attributes:
        means: what is wrong, in plain words.
        rules: ids of the rules that find it beforehand, the closest first; empty: none does.
        next: the one command that settles it, and what it shows.
        fixes: what helps, the usual first.
        foreign: not about NVIDIA's stack.
        explains: what follows from the cause in a host's log: kernel messages (``rm-init-failed``)
            or other causes.
    """

    id: str
    means: str
    next: str
    rules: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    foreign: bool = False
    explains: tuple[str, ...] = ()


class ErrorTable(Struct, frozen=True, dict=True):
    """Table ``error_signatures``.

    Attributes:
        foreign_words: words of another vendor's stack; near them, CUDA's words prove nothing.
        native_phrases: phrases with such a word that are printed on NVIDIA GPUs.
    """

    causes: tuple[Cause, ...]
    signatures: tuple[Signature, ...]
    foreign_words: tuple[str, ...] = ()
    native_phrases: tuple[str, ...] = ()

    @cached_property
    def by_id(self) -> dict[str, Cause]:
        """Return causes by id."""
        return {cause.id: cause for cause in self.causes}
