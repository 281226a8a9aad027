"""Hold signatures of error texts, and the causes that they show."""

from __future__ import annotations

import re
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
        gap: characters at most between the end of the piece before and this one.
        unbroken: the gap has no blank.
    """

    text: str
    gap: int = 0
    unbroken: bool = False


Pattern = tuple[Piece, ...]

WORD = re.compile("[0-9_]*[a-z][a-z0-9_]*")
"""A whole word of a text in lower case; numbers are none."""
NUMBER = re.compile(r"\d+")
_WHOLE_NUMBER = re.compile(r"(?<![a-z0-9_])\d+(?![a-z0-9_])")


class Signature(Struct, frozen=True):
    """Words that programs print, and what they show.

    Attributes:
        patterns: alternatives; each is a sequence of pieces.
        near: at least one of these words is near the match; empty: nothing is asked.
        symptom: the text follows from another error: it counts only where nothing else is found.
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


Search = tuple[Signature, tuple[tuple[Pattern, frozenset[str], frozenset[str]], ...]]
"""A signature; of each pattern the whole words and numbers, and the words at its ends."""


class Cause(Struct, frozen=True):
    """A reason for errors.

    Attributes:
        rules: ids of the rules that find it beforehand, the closest first; empty: none does.
        next: the one command that settles it, and what it shows.
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

    @cached_property
    def searches(self) -> tuple[Search, ...]:
        """Return the patterns of each signature with the words that a text must have for them."""
        return tuple(
            (signature, tuple((pattern, *_words(pattern)) for pattern in signature.patterns))
            for signature in self.signatures
        )

    @cached_property
    def parts(self) -> frozenset[str]:
        """Return what some pattern needs as a part of a word."""
        return frozenset(
            part for _, patterns in self.searches for _, _, parts in patterns for part in parts
        )


def _words(pattern: Pattern) -> tuple[frozenset[str], frozenset[str]]:
    """Return whole words of a pattern, and those at the ends of a piece: they may be parts."""
    whole: set[str] = set()
    parts: set[str] = set()
    for piece in pattern:
        whole.update(_WHOLE_NUMBER.findall(piece.text))
        for match in WORD.finditer(piece.text):
            at_end = match.start() == 0 or match.end() == len(piece.text)
            (parts if at_end else whole).add(match[0])
    return frozenset(whole), frozenset(parts)
