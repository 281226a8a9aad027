"""Hold signatures of error texts, and the causes that they show."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache, cached_property
from typing import Literal, NamedTuple

from msgspec import Struct

from compatgate.core.facts.nvidia import Source
from compatgate.core.facts.xid import Severity

Certainty = Literal["certain", "likely"]
"""``certain``: the text names its cause; ``likely``: other causes print the same words."""


class Piece(Struct, frozen=True, array_like=True):
    """A literal part of a pattern, in lower case."""

    text: str
    gap: int = 0  # characters at most between the end of the piece before and this one
    lacks: str = ""  # what the gap does not have: ``blank``, or ``word`` for letters and digits


Pattern = tuple[Piece, ...]

WORD = re.compile("[0-9_]*[a-z][a-z0-9_]*")
"""A whole word of a text in lower case; numbers are none."""
NUMBER = re.compile(r"\d+")
_WHOLE_NUMBER = re.compile(r"(?<![a-z0-9_])\d+(?![a-z0-9_])")


class Signature(Struct, frozen=True):
    """Words that programs print, and what they show."""

    id: str
    cause: str
    certainty: Certainty
    patterns: tuple[Pattern, ...]  # alternatives; each is a sequence of pieces
    source: Source
    # at least one of these words is near the match; empty: nothing is asked
    near: tuple[str, ...] = ()
    # the text follows from another error: it counts only where nothing else is found
    symptom: bool = False
    sample: str = ""
    # severity where a host's log has the words; None: a log is not searched for them
    health: Severity | None = None


class Search(NamedTuple):
    """A pattern of a signature, and the words and parts of words that a text needs for it.

    Of the patterns of a signature, the one of the highest rank counts: the longest, then the first.
    """

    signature: int
    rank: tuple[int, int]
    pattern: Pattern
    whole: frozenset[str]
    parts: frozenset[str]


class Cause(Struct, frozen=True):
    """A reason for errors."""

    id: str
    means: str
    next: str  # the one command that settles it, and what it shows
    # ids of the rules that find it beforehand, the closest first; empty: none does
    rules: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    foreign: bool = False  # not about NVIDIA's stack
    # what follows from the cause in a host's log: kernel messages (``rm-init-failed``) or other
    # causes
    explains: tuple[str, ...] = ()


class ErrorTable(Struct, frozen=True, dict=True):
    """Table ``error_signatures``."""

    causes: tuple[Cause, ...]
    signatures: tuple[Signature, ...]
    # words of another vendor's stack; near them, CUDA's words prove nothing
    foreign_words: tuple[str, ...] = ()
    native_phrases: tuple[str, ...] = ()  # phrases with such a word that are printed on NVIDIA GPUs

    @cached_property
    def by_id(self) -> dict[str, Cause]:
        """Return causes by id."""
        return {cause.id: cause for cause in self.causes}

    @cached_property
    def searches(self) -> dict[str, list[Search]]:
        """Return the patterns by the word of theirs that the fewest others have."""
        words = cache(_words)
        searches = []
        for number, signature in enumerate(self.signatures):
            for order, pattern in enumerate(signature.patterns):
                rank = sum(len(piece.text) for piece in pattern), -order
                (whole, parts), *others = (words(piece.text) for piece in pattern)
                for more, ends in others:
                    whole, parts = whole | more, parts | ends
                searches.append(Search(number, rank, pattern, whole, parts))
        shared = Counter(word for search in searches for word in search.whole | search.parts)
        by_word = defaultdict(list)
        for search in searches:
            word = min(search.whole | search.parts, key=shared.__getitem__, default="")
            by_word[word].append(search)
        return by_word

    @cached_property
    def parts(self) -> frozenset[str]:
        """Return what some pattern needs as a part of a word."""
        every = {search.parts for searches in self.searches.values() for search in searches}
        return frozenset[str]().union(*every)


def _words(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the whole words and numbers of a piece, and the words at its ends."""
    whole, ends = set(_WHOLE_NUMBER.findall(text)), set[str]()
    for match in WORD.finditer(text):
        at_end = match.start() == 0 or match.end() == len(text)
        (ends if at_end else whole).add(match[0])
    return frozenset(whole), frozenset(ends)
