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
_WORD_OR_NUMBER = re.compile(WORD.pattern + r"|(?<![a-z0-9_])\d+(?![a-z0-9_])")


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


class Search(NamedTuple):
    """A pattern, its place in the table, and the whole words and parts of words that it needs."""

    place: tuple[int, int]
    pattern: Pattern
    whole: frozenset[str]
    parts: frozenset[str]


class Start(NamedTuple):
    """The first piece of patterns, and where in it its whole words and numbers stand."""

    text: str
    words: dict[str, int]
    searches: list[Search]


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
    def starts(self) -> dict[str, list[Start]]:
        """Return the first pieces of patterns by the word of theirs that the fewest others have.

        It is a part of a word where a piece has no whole word, and empty where it has no word.
        """
        needs = cache(_needs)
        starts: dict[str, Start] = {}
        for number, signature in enumerate(self.signatures):
            for order, pattern in enumerate(signature.patterns):
                text = pattern[0].text
                words, whole, parts = needs(text)
                for piece in pattern[1:]:
                    _, more, ends = needs(piece.text)
                    whole, parts = whole | more, parts | ends
                start = starts.setdefault(text, Start(text, words, []))
                start.searches.append(Search((number, order), pattern, whole, parts))
        shared = Counter(word for start in starts.values() for word in start.words)
        by_word = defaultdict(list)
        for text, start in starts.items():
            longest = max(needs(text)[2], key=len, default="")
            by_word[min(start.words, key=shared.__getitem__, default=longest)].append(start)
        return by_word

    @cached_property
    def words(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the whole words, and the parts of words, that some pattern needs."""
        every = [
            one for starts in self.starts.values() for start in starts for one in start.searches
        ]
        whole, parts = {one.whole for one in every}, {one.parts for one in every}
        return frozenset[str]().union(*whole), frozenset[str]().union(*parts)


def _needs(text: str) -> tuple[dict[str, int], frozenset[str], frozenset[str]]:
    """Return where a piece has whole words and numbers, these, and the words at its ends.

    A word at an end may be a part of a longer one.
    """
    words, ends = {}, set()
    for match in _WORD_OR_NUMBER.finditer(text):
        if not match[0].isdigit() and (match.start() == 0 or match.end() == len(text)):
            ends.add(match[0])
        else:
            words[match[0]] = match.start()
    return words, frozenset(words), frozenset(ends)
