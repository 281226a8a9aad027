"""Colour, measure and wrap text for people, without a library, so that it loads fast."""

from __future__ import annotations

import os
import sys
from typing import TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_DEFAULT_WIDTH = 100


def wants_colour(stream: TextIO) -> bool:
    """Tell whether to colour the output of a stream.

    ``NO_COLOR`` (not empty) forbids, ``FORCE_COLOR`` (not empty, not 0) demands; otherwise a
    terminal gets colour. Source: no-color.org, force-color.org.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width_of(stream: TextIO) -> int:
    """Return the columns of a stream's terminal; ``COLUMNS`` wins, 100 without a terminal."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return max(int(columns), 40)
    try:
        return max(os.get_terminal_size(stream.fileno()).columns, 40)
    except (OSError, ValueError):
        return _DEFAULT_WIDTH


def escape_unencodable(stream: TextIO) -> None:
    """Make a stream escape characters that its encoding lacks, as JSON does, instead of failing.

    JSON output keeps its meaning.
    """
    import codecs
    import io
    import json

    def escape(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        return json.dumps(error.object[error.start : error.end])[1:-1], error.end

    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error("compatgate-escape", escape)
        stream.reconfigure(errors="compatgate-escape")


def paint(text: str, *styles: str, colour: bool) -> str:
    """Return the text in the styles (``bold``, ``red``, ...), or unchanged without colour."""
    if not colour or not text:
        return text
    return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


def strip_controls(text: str) -> str:
    """Return the text without terminal control characters; line breaks stay.

    Under GitHub Actions, also remove workflow commands.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
    if ("::" in text or "##[" in text) and os.environ.get("GITHUB_ACTIONS") == "true":
        return strip_commands(text)
    return text


def say(text: str) -> None:
    """Print a line for people on standard error, whatever the format of the answer is."""
    print(strip_controls(text), file=sys.stderr)


def strip_commands(text: str) -> str:
    """Return the text without workflow commands.

    The runner obeys ``::error::x`` at the beginning of a line, leading blanks ignored, and
    ``##[error]x`` anywhere. Source: actions/runner, src/Runner.Common/ActionCommand.cs.
    """
    import re

    return re.sub(r"(^|\s)::", r"\1: :", text).replace("##[", "## [")


def wrap(text: str, width: int) -> list[str]:
    """Break text at blanks into lines of at most ``width`` characters; longer words stay whole."""
    lines: list[str] = []
    line = ""
    for word in strip_controls(" ".join(text.split())).split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line] if line else lines or [""]


def wrap_beside(label: str, text: str, width: int) -> list[str]:
    """Return a text beside its label; further lines stand below the text's beginning."""
    first, *rest = wrap(text, max(width - len(label), 30))
    return [f"{label}{first}", *(f"{'':<{len(label)}}{line}" for line in rest)]
