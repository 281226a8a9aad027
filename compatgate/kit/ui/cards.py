"""Draw cards: a sentence and its reasons as a picture that chats and wikis can show."""

from __future__ import annotations

import textwrap

from msgspec import Struct

from compatgate.kit.ui.assets import Look, colour_of, escape_text

WIDTH, HEIGHT = 1200, 630
_MARGIN, _BAND = 72, 28
_CHARACTERS = 66
"""Characters of a line of 28 px in most sans-serif fonts."""
_MAX_LINES = 9
_FIRST, _STEP = 268, 40
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" \
viewBox="0 0 {width} {height}" role="img" aria-label="{title}">
<title>{title}</title>
<rect width="{width}" height="{height}" fill="#ffffff"/>
<rect width="{band}" height="{height}" fill="{colour}"/>
<g font-family="Verdana,DejaVu Sans,Geneva,sans-serif" fill="#1b1d1f">
<text x="{left}" y="112" font-size="54" font-weight="bold" fill="{colour}">{word}</text>
<text x="{left}" y="172" font-size="34">{subject}</text>
<text x="{left}" y="216" font-size="28" fill="#585d63">{place}</text>
{lines}
<text x="{left}" y="598" font-size="24" fill="#585d63">{foot}</text>
</g>
</svg>
"""
_LINE = '<text x="{left}" y="{at}" font-size="28">{text}</text>'


class Card(Struct, frozen=True):
    """The content of a card.

    Attributes:
        word: the answer; says all that the colour does.
        subject: of the answer, in one line.
        place: where it holds, in one line.
        paragraphs: reasons, most important first; what does not fit is left out.
        foot: origin and date.
    """

    word: str
    look: Look
    subject: str
    place: str
    paragraphs: tuple[str, ...]
    foot: str


def draw_card(card: Card) -> bytes:
    """Return the card as SVG, without active content."""
    lines = "\n".join(
        _LINE.format(left=_MARGIN, at=_FIRST + _STEP * row, text=escape_text(text))
        for row, text in enumerate(_wrap(card.paragraphs))
    )
    return _SVG.format(
        width=WIDTH,
        height=HEIGHT,
        band=_BAND,
        left=_MARGIN,
        colour=colour_of(card.look),
        title=escape_text(f"{card.word}: {card.subject} on {card.place}"),
        word=escape_text(card.word),
        subject=escape_text(_shorten(card.subject, 54)),
        place=escape_text(_shorten(card.place, _CHARACTERS)),
        foot=escape_text(card.foot),
        lines=lines,
    ).encode()


def _wrap(paragraphs: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    for paragraph in paragraphs:
        left = _MAX_LINES - len(lines)
        if left < 1:
            break
        lines += textwrap.wrap(paragraph, _CHARACTERS, max_lines=min(left, 4), placeholder=" …")
    return lines


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
