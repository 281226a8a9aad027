"""Name the causes of a pasted error, and say whether a stack explains them.

`find_causes` matches a text with the signatures of ``error_signatures.yaml``. They are literal
pieces with bounded gaps, not regular expressions, so the time grows with the text alone.
`compare_verdict` adds what a verdict on a stack and its pools says about the rules behind a cause.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import unescape
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts.errors import (
    NUMBER,
    WORD,
    Cause,
    Certainty,
    ErrorTable,
    Pattern,
    Signature,
)

MAX_TEXT = 16 << 20
"""Characters of a text that are read. Callers refuse longer texts."""
_NEARBY = 160
_FOREIGN_REACH = 400
_AROUND = 8
_EXCERPT = 240
_MANY = 100
"""Rare words from which on a walk over all words of a text is faster than a search for each."""
_SPARSE = 2000
"""A word is rare if it is once in so many characters."""
_SPLIT_WORDS = 80
"""Characters of a line before that the words of a new line may begin in."""
_ESCAPES = re.compile(r"(?:\x1b|\^\[|#033|\\(?:x1b|033|u001b))\[[0-9;]*[A-Za-z]")
_NOISE = re.compile(r"NVRM:|#012|\*\*|%20|\[\s*\d+\.\d+\]|[\u2500-\u257f]|^[ >]*>", re.MULTILINE)
"""Text that kernel logs, Markdown and frames around tracebacks put between words of a message."""
_BLANKS = re.compile(r"\s+")
_QUOTES = '\u2018\u2019\u201c\u201d"`'
_ALIKE = str.maketrans(
    {**dict.fromkeys(_QUOTES, "'"), "\uff0c": ",", "\uff1a": ":", "\u0130": "I", "\\": None}
)
_NUMBER_AT_END = re.compile(r"(?<![a-z0-9_])\d+$")
"""A number that is not a part of a name, such as ``_zn3c10``."""

Here = Literal["fails", "warns", "unknown", "holds", "not-applicable"]
"""The results of the rules behind a cause for a stack on its pools."""


class FoundCause(Struct, frozen=True):
    """A cause that a text shows.

    Attributes:
        confidence: ``certain`` only where the text alone names the cause.
        signature: id of the signature that matched best.
        seen: the matched words.
        here: what the rules say of the stack in question; None: no stack was given, or no rule
            finds this cause.
        findings: findings of these rules, in JSON form.
    """

    cause: Cause
    confidence: Certainty
    signature: str
    seen: str
    here: Here | None = None
    findings: tuple[Mapping[str, Any], ...] = ()

    @property
    def rule(self) -> str | None:
        """Return the rule behind the cause: one that fails here, else the closest."""
        if self.findings:
            return str(self.findings[0]["rule"])
        return self.cause.rules[0] if self.cause.rules else None

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry.

        Fixes of the rules come first: they were evaluated on the same stack and pools.
        """
        verified = {
            fix["message"]: {**fix, "verified": True} if fix.get("set") else fix
            for finding in self.findings
            for fix in finding["fixes"]
        }
        advice = [{"message": text} for text in self.cause.fixes if text not in verified]
        found: dict[str, Any] = {
            "id": self.cause.id,
            "rule": self.rule,
            "confidence": self.confidence,
            "message": self.cause.means,
            "next": self.cause.next,
            "fixes": [*verified.values(), *advice],
            "signature": self.signature,
            "seen": self.seen,
        }
        if self.here is not None:
            found["here"] = {
                "outcome": self.here,
                "findings": [
                    {name: finding[name] for name in ("rule", "outcome", "pools", "message")}
                    for finding in self.findings
                ],
            }
        return found


_Try = tuple[Pattern, Iterable[int]]
"""A pattern, and where the text has its first piece."""


class _Match(Struct, frozen=True):
    signature: Signature
    start: int
    end: int
    weight: int

    @property
    def strength(self) -> tuple[bool, int]:
        """Return what decides between matches of the same words."""
        return not self.signature.symptom, self.weight


def find_causes(text: str, table: ErrorTable) -> tuple[FoundCause, ...]:
    """Return the causes that a text shows: sure ones first, then as the text has them.

    Nothing is returned for a text that no signature knows. Where signatures of several causes
    match the same words, the longest wins. Symptoms count only where nothing else is found, and
    what another cause explains is left out. Of several sure causes none is certain.

    Args:
        text: an error or a log; beyond `MAX_TEXT` characters it is not read.
    """
    clean = clean_text(text[:MAX_TEXT])
    plain = clean.lower()
    found = [
        match
        for signature, tries in _possible(plain, table)
        if (match := _match(signature, plain, tries))
    ]
    masked = _mask_native(plain, table) if found else plain
    found = [match for match in found if not _is_foreign(match, masked, table)]
    found = _drop_covered(found)
    strong = [match for match in found if not match.signature.symptom] or found
    best: dict[str, _Match] = {}
    for match in strong:
        kept = best.get(match.signature.cause)
        if kept is None or _rank(match) < _rank(kept):
            best[match.signature.cause] = match
    explained = {name for cause in best for name in table.by_id[cause].explains}
    named = [match for cause, match in best.items() if cause not in explained]
    sure = sum(match.signature.certainty == "certain" for match in named)
    return tuple(
        FoundCause(
            table.by_id[match.signature.cause],
            match.signature.certainty if sure == 1 else "likely",
            match.signature.id,
            clean[match.start : min(match.end, match.start + _EXCERPT)],
        )
        for match in sorted(named, key=_rank)
    )


def find_signatures(
    text: str, table: ErrorTable, signatures: Iterable[Signature], since: int = 0
) -> tuple[tuple[Signature, int], ...]:
    """Return the signatures whose words end after a place of a text, and where they begin.

    Of several signatures of a cause, the surest and longest counts. This serves a log that is read
    line by line: the text is the new line and a few before it.
    """
    plain = text.lower()
    tail = plain[max(0, since - _SPLIT_WORDS) :]
    found = []
    for signature in signatures:
        searched = plain if signature.near else tail
        if any(pattern[-1].text in searched for pattern in signature.patterns):
            tries = ((pattern, _find(pattern[0].text, plain)) for pattern in signature.patterns)
            match = _match(signature, plain, tries, since)
            if match and not _is_foreign(match, _mask_native(plain, table), table):
                found.append(match)
    best: dict[str, _Match] = {}
    for match in _drop_covered(found):
        kept = best.get(match.signature.cause)
        if kept is None or (_rank(match)[0], -match.weight) < (_rank(kept)[0], -kept.weight):
            best[match.signature.cause] = match
    return tuple((match.signature, match.start) for match in best.values())


def clean_text(text: str) -> str:
    """Join the lines of a text, and remove what stands between the words of one message."""
    text = unescape(_ESCAPES.sub("", text)).translate(_ALIKE)
    return _BLANKS.sub(" ", _NOISE.sub(" ", text))


def _rank(match: _Match) -> tuple[bool, int]:
    return match.signature.certainty != "certain", match.start


def _possible(text: str, table: ErrorTable) -> list[tuple[Signature, list[_Try]]]:
    """Return the patterns of signatures all of whose words the text has, in any order."""
    counts = Counter(WORD.findall(text))
    joined = " ".join(counts)
    counts.update(NUMBER.findall(text))
    whole = table.words[0] & counts.keys()
    parts = {part for part in table.words[1] if part in joined}
    starts = [
        (start, min(start.words, key=counts.__getitem__, default=""), searches)
        for word in {*whole, *parts, ""}
        for start in table.starts.get(word, ())
        if (
            searches := [one for one in start.searches if one.whole <= whole and one.parts <= parts]
        )
    ]
    places = _places(
        text, {word for _, word, _ in starts if 0 < counts[word] * _SPARSE < len(text)}
    )
    found = []
    for start, word, searches in starts:
        offset = start.words.get(word, 0)
        begins = [
            at - offset
            for at in places.get(word, ())
            if at >= offset and text.startswith(start.text, at - offset)
        ]
        found += [
            (one.place, (one.pattern, begins if word in places else _find(start.text, text)))
            for one in searches
        ]
    found.sort(key=itemgetter(0))
    return [
        (table.signatures[number], [one for _, one in tries])
        for number, tries in groupby(found, key=lambda one: one[0][0])
    ]


def _places(text: str, words: Collection[str]) -> dict[str, list[int]]:
    """Return where a text has rare words; empty for few: then a search for each is faster."""
    if len(words) < _MANY:
        return {}
    places: dict[str, list[int]] = {word: [] for word in words}
    for kind in (WORD, NUMBER):
        for match in kind.finditer(text):
            if match[0] in places:
                places[match[0]].append(match.start())
    return places


def _find(words: str, text: str) -> Iterator[int]:
    place = text.find(words)
    while place >= 0:
        yield place
        place = text.find(words, place + 1)


def _match(signature: Signature, text: str, tries: Iterable[_Try], since: int = 0) -> _Match | None:
    """Return the first match of the heaviest of the patterns that ends after a place."""
    found: _Match | None = None
    for pattern, begins in tries:
        weight = sum(len(piece.text) for piece in pattern)
        if found and found.weight >= weight:
            continue
        for start in begins:
            end = _follow(pattern, text, start)
            complete = None if end < 0 else _complete_at(signature, text, start, end)
            if complete is not None and complete > since:
                found = _Match(signature, start, end, weight)
                break
    return found


def _follow(pattern: Pattern, text: str, end: int) -> int:
    """Return the end of the pieces from a place on; -1 where one is missing."""
    for piece in pattern:
        place = text.find(piece.text, end, end + piece.gap + len(piece.text))
        if place < 0 or (piece.unbroken and " " in text[end:place]):
            return -1
        end = place + len(piece.text)
        if not _bounded(piece.text, text, place, end):
            return -1
    return end


def _bounded(piece: str, text: str, start: int, end: int) -> bool:
    """Tell whether a number at an end of the piece is whole in the text."""
    if piece[0].isdigit() and start and text[start - 1].isdigit():
        return False
    return not (text[end : end + 1].isdigit() and _NUMBER_AT_END.search(piece))


def _complete_at(signature: Signature, text: str, start: int, end: int) -> int | None:
    """Return where a match and a word near it are complete; None without such a word.

    What a tool prints as its only line has nothing near it. Then a likely cause is named.
    """
    near = signature.near
    if not near or any(word in text[max(0, start - _NEARBY) : end] for word in near):
        return end
    if signature.certainty == "likely" and _is_all(text, start, end):
        return end
    after = text[end : end + _NEARBY]
    places = [place + len(word) for word in near if (place := after.find(word)) >= 0]
    return end + min(places) if places else None


def _is_all(text: str, start: int, end: int) -> bool:
    """Tell whether a text has nothing but the matched words, blanks and stops."""
    around = len(text) - (end - start)
    return around <= _AROUND and not (text[:start] + text[end:]).strip(" .!:")


def _mask_native(text: str, table: ErrorTable) -> str:
    """Overwrite the phrases in which a word of another vendor means nothing; keep places."""
    for phrase in table.native_phrases:
        text = text.replace(phrase, "~" * len(phrase))
    return text


def _is_foreign(match: _Match, text: str, table: ErrorTable) -> bool:
    """Tell whether words of another vendor stand near the match of an NVIDIA cause."""
    if table.by_id[match.signature.cause].foreign:
        return False
    before = text[max(0, match.start - _FOREIGN_REACH) : match.start]
    after = text[match.end : match.end + _FOREIGN_REACH]
    return any(word in before or word in after for word in table.foreign_words)


def _drop_covered(found: Sequence[_Match]) -> list[_Match]:
    """Drop matches that share words with a stronger match of another cause."""
    return [
        match
        for match in found
        if not any(
            other.start < match.end
            and match.start < other.end
            and other.strength > match.strength
            and other.signature.cause != match.signature.cause
            for other in found
        )
    ]


# --- with a stack -------------------------------------------------------------------------------

_WORST: tuple[tuple[str, Here], ...] = (
    ("fail", "fails"),
    ("unknown", "unknown"),
    ("warn", "warns"),
)


def compare_verdict(
    causes: Sequence[FoundCause], verdict: Mapping[str, Any]
) -> tuple[FoundCause, ...]:
    """Add to each cause what its rules say of the stack; causes that fail here come first.

    Args:
        verdict: the answer about the stack on its target or pools, in JSON form.
    """
    compared = [_compare(found, verdict) for found in causes]
    return tuple(sorted(compared, key=lambda found: found.here != "fails"))


def _compare(found: FoundCause, verdict: Mapping[str, Any]) -> FoundCause:
    rules = found.cause.rules
    if not rules:
        return found
    mine = [finding for finding in verdict["findings"] if finding["rule"] in rules]
    for outcome, here in _WORST:
        named = [finding for finding in mine if finding["outcome"] == outcome]
        if named:
            return replace(found, here=here, findings=tuple(named))
    passed = any(rule in verdict["checked"]["passed"] for rule in rules)
    return replace(found, here="holds" if passed else "not-applicable")
