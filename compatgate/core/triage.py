"""Name the causes of a pasted error, and say whether a stack explains them.

`find_causes` matches a text with the signatures of ``error_signatures.yaml``. They are literal
pieces with bounded gaps, not regular expressions, so the time grows with the text alone.
`compare_verdict` adds what a verdict on a stack and its pools says about the rules behind a cause.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import unescape
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
    Search,
    Signature,
)

MAX_TEXT = 16 << 20  # Characters of a text that are read. Callers refuse longer texts.
_NEARBY = 160
_FOREIGN_REACH = 400
_AROUND = 8
_EXCERPT = 240
_MANY = 100
"""Rare words from which on a walk over all words of a text is faster than a search for each."""
_SPARSE = 1000  # a word is rare if it is once in so many characters
_ESCAPES = re.compile(r"(?:\x1b|\^\[|#033|\\(?:x1b|033|u001b))\[[0-9;]*[A-Za-z]")
_NOISE = re.compile(r"NVRM:|#012|\*\*|%20|\[\s*\d+\.\d+\]|[\u2500-\u257f]|^[ >]*>", re.MULTILINE)
"""Text that kernel logs, Markdown and frames around tracebacks put between words of a message."""
_BLANKS = re.compile(r"\s+")
_QUOTES = '\u2018\u2019\u201c\u201d"`'
_ALIKE = str.maketrans(
    {**dict.fromkeys(_QUOTES, "'"), "\uff0c": ",", "\uff1a": ":", "\u0130": "I", "\\": None}
)
_LACKING = {"blank": re.compile(" "), "word": re.compile("[a-z0-9]")}
_NUMBER_AT_END = re.compile(r"(?<![a-z0-9_])\d+$")
"""A number that is not a part of a name, such as ``_zn3c10``."""

Here = Literal["fails", "warns", "unknown", "holds", "not-applicable"]
"""The results of the rules behind a cause for a stack on its pools."""


class FoundCause(Struct, frozen=True):
    """A cause that a text shows."""

    cause: Cause
    confidence: Certainty  # ``certain`` only where the text alone names the cause
    signature: str  # id of the signature that matched best
    seen: str  # the matched words
    # what the rules say of the stack in question; None: no stack was given, or no rule finds this
    # cause
    here: Here | None = None
    findings: tuple[Mapping[str, Any], ...] = ()  # findings of these rules, in JSON form

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


class _Match(Struct, frozen=True):
    signature: Signature
    rank: tuple[int, int]
    start: int
    end: int

    @property
    def strength(self) -> tuple[bool, int]:
        """Return what decides between matches of the same words."""
        return not self.signature.symptom, self.rank[0]


def find_causes(text: str, table: ErrorTable) -> tuple[FoundCause, ...]:
    """Return the causes that a text shows: sure ones first, then as the text has them.

    Nothing is returned for a text that no signature knows. Where signatures of several causes
    match the same words, the longest wins. Symptoms count only where nothing else is found, and
    what another cause explains is left out. Of several causes none is certain.

    Args:
        text: an error or a log; beyond `MAX_TEXT` characters it is not read.
    """
    clean = clean_text(text[:MAX_TEXT])
    found = _matches(clean.lower(), table)
    best = _best([match for match in found if not match.signature.symptom] or found, _rank)
    explained = {name for cause in best for name in table.by_id[cause].explains}
    named = [match for cause, match in best.items() if cause not in explained]
    return tuple(
        FoundCause(
            table.by_id[match.signature.cause],
            match.signature.certainty if len(named) == 1 else "likely",
            match.signature.id,
            clean[match.start : min(match.end, match.start + _EXCERPT)],
        )
        for match in sorted(named, key=_rank)
    )


def find_signatures(text: str, table: ErrorTable, since: int = 0) -> list[tuple[Signature, int]]:
    """Return the signatures whose words end after a place of a text, and where they begin.

    Of several signatures of a cause, the surest and longest counts. This serves a log that is read
    line by line: the text is the new line and a few before it.
    """
    best = _best(_matches(text.lower(), table, since), lambda one: (_rank(one)[0], -one.rank[0]))
    return [(match.signature, match.start) for match in best.values()]


def clean_text(text: str) -> str:
    """Join the lines of a text, and remove what stands between the words of one message."""
    text = unescape(_ESCAPES.sub("", text)).translate(_ALIKE)
    return _BLANKS.sub(" ", _NOISE.sub(" ", text))


def _rank(match: _Match) -> tuple[bool, int]:
    return match.signature.certainty != "certain", match.start


def _best(found: Iterable[_Match], key: Callable[[_Match], tuple[bool, int]]) -> dict[str, _Match]:
    best: dict[str, _Match] = {}
    for match in found:
        kept = best.setdefault(match.signature.cause, match)
        if key(match) < key(kept):
            best[match.signature.cause] = match
    return best


def _matches(text: str, table: ErrorTable, since: int = 0) -> list[_Match]:
    """Return what counts of the signatures' matches that end after a place."""
    found: dict[int, _Match] = {}
    for search, begins in _possible(text, table):
        signature = table.signatures[search.signature]
        for begin in begins if search.signature not in found else ():
            end = _follow(search.pattern, text, begin)
            if end >= 0 and _complete_at(signature, text, begin, end) > since:
                found[search.signature] = _Match(signature, search.rank, begin, end)
                break
    masked = text
    for phrase in table.native_phrases if found else ():
        masked = masked.replace(phrase, "~" * len(phrase))
    own = [match for _, match in sorted(found.items()) if not _is_foreign(match, masked, table)]
    return [match for match in own if not any(_covers(other, match) for other in own)]


def _possible(text: str, table: ErrorTable) -> Iterator[tuple[Search, Iterable[int]]]:
    """Yield patterns all of whose words a text has, the longest first, and where they may begin."""
    counts = Counter(WORD.findall(text))
    joined = " ".join(counts)
    counts.update(NUMBER.findall(text))
    parts = {part for part in table.parts if part in joined}
    searches = [
        (search, min(search.whole, key=counts.__getitem__, default=""))
        for word in table.searches.keys() & {*counts, *parts, ""}
        for search in table.searches[word]
        if search.whole <= counts.keys() and search.parts <= parts
    ]
    rare = {word for _, word in searches if 0 < counts[word] * _SPARSE < len(text)}
    places: dict[str, list[int]] = {word: [] for word in rare}
    for kind in (WORD, NUMBER) if len(rare) > _MANY else ():
        for match in kind.finditer(text):
            if match[0] in rare:
                places[match[0]].append(match.start())
    for search, word in sorted(searches, key=lambda one: one[0].rank, reverse=True):
        yield search, _begins(search.pattern, places.get(word) or (len(text),), text)


def _begins(pattern: Pattern, places: Iterable[int], text: str) -> Iterator[int]:
    """Yield where a pattern may begin that has a word at one of some places, or ends there."""
    first, last, begin = pattern[0].text, pattern[-1].text, 0
    span = sum(piece.gap + len(piece.text) for piece in pattern)
    reach, end = span - len(last), 0
    for place in places:
        begin = max(begin, place - span) if place < len(text) else begin
        while (found := text.find(first, begin, place + len(first))) >= 0:
            if end < found + len(first) and len(pattern) > 1:
                end = text.find(last, found + len(first))
                if end < 0:
                    return
            # A frequent beginning is skipped where the rarer end is out of reach.
            if end > found + reach:
                begin = end - reach
            else:
                yield found
                begin = found + 1


def _follow(pattern: Pattern, text: str, end: int) -> int:
    """Return the end of the pieces from a place on; -1 where one is missing.

    A number at an end of a piece must be whole in the text.
    """
    for piece in pattern:
        place = text.find(piece.text, end, end + piece.gap + len(piece.text))
        if place < 0 or (piece.lacks and _LACKING[piece.lacks].search(text, end, place)):
            return -1
        end = place + len(piece.text)
        if piece.text[0].isdigit() and place and text[place - 1].isdigit():
            return -1
        if text[end : end + 1].isdigit() and _NUMBER_AT_END.search(piece.text):
            return -1
    return end


def _complete_at(signature: Signature, text: str, start: int, end: int) -> int:
    """Return where a match and a word near it are complete; -1 without such a word.

    What a tool prints as its only line has nothing near it. Then a likely cause is named.
    """
    near = signature.near
    if not near or any(word in text[max(0, start - _NEARBY) : end] for word in near):
        return end
    around = len(text) - (end - start)
    alone = around <= _AROUND and not (text[:start] + text[end:]).strip(" .!:")
    if alone and signature.certainty == "likely":
        return end
    after = text[end : end + _NEARBY]
    places = [place + len(word) for word in near if (place := after.find(word)) >= 0]
    return end + min(places) if places else -1


def _is_foreign(match: _Match, text: str, table: ErrorTable) -> bool:
    """Tell whether words of another vendor stand near the match of an NVIDIA cause."""
    if table.by_id[match.signature.cause].foreign:
        return False
    before = text[max(0, match.start - _FOREIGN_REACH) : match.start]
    after = text[match.end : match.end + _FOREIGN_REACH]
    return any(word in before or word in after for word in table.foreign_words)


def _covers(match: _Match, other: _Match) -> bool:
    """Tell whether a match of another cause shares words with another one and is stronger."""
    return (
        match.start < other.end
        and other.start < match.end
        and match.strength > other.strength
        and match.signature.cause != other.signature.cause
    )


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
