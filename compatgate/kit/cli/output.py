"""Colour, wrap and print text; print tables and JSON; write and read files.

Every command loads it, so it imports no library before one is needed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from compatgate.errors import BadInput, quote_error

if TYPE_CHECKING:
    from datetime import datetime

LARGEST_INPUT = 32 * 1024 * 1024
"""Maximum size of a file to read, in bytes."""
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


def shorten_text(text: str, most: int) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


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


def print_json(value: Any) -> None:
    """Print one JSON value, for programs; objects become what msgspec makes of them."""
    from msgspec import to_builtins

    print(json.dumps(value, indent=2, ensure_ascii=False, default=to_builtins))


def print_answer(form: str, answer: Any, text: str | Callable[[], str]) -> int:
    """Print an answer as JSON, or as text; return exit status 0."""
    if form == "json":
        print_json(answer)
    else:
        print(text if isinstance(text, str) else text())
    return 0


def format_fields(fields: Mapping[str, object], indent: str = "", width: int = 10) -> str:
    """Return names and values as lines, without those that have no value."""
    lines = [f"{indent}{name:<{width}} {value}" for name, value in fields.items() if value]
    return strip_controls("\n".join(lines))


def format_cells(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of values, each on one line without control characters, ``-`` for none."""
    texts = (("-" if value in (None, "") else str(value) for value in row) for row in rows)
    return format_table(head, [[" ".join(strip_controls(t).split()) for t in row] for row in texts])


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as text, each column as wide as its longest cell."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def list_fields(fields: Mapping[str, Any], width: int, indent: int = 0) -> Iterator[str]:
    """Yield names and values as lines, members of members below them; skip unknown values."""
    known = {str(name): value for name, value in fields.items() if value is not None}
    plain = [name for name, value in known.items() if not _is_nested(value)]
    column = max(map(len, plain), default=0)
    for name, value in known.items():
        if not _is_nested(value):
            yield from wrap_beside(f"{' ' * indent}{name:<{column}}  ", _to_text(value), width)
            continue
        yield f"{' ' * indent}{name}"
        for part in value if isinstance(value, list) else [value]:
            first, *rest = list(list_fields(part, width, indent + 4)) or [""]
            yield f"{' ' * (indent + 2)}{'-' if isinstance(value, list) else ' '} {first.strip()}"
            yield from rest


def _is_nested(value: Any) -> bool:
    if isinstance(value, dict):
        return not all(isinstance(one, int) for one in value.values())
    return isinstance(value, list) and any(isinstance(part, dict) for part in value)


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        value = [f"{name}:{count}" for name, count in value.items()]
    if isinstance(value, (list, tuple)):
        separator = "; " if any(" " in str(part) for part in value) else ", "
        return separator.join(map(str, value)) or "none"
    return str(value)


def format_time(moment: datetime | None) -> str | None:
    """Format a time to the second, ``2026-11-03 09:30:00Z``."""
    return moment.strftime("%Y-%m-%d %H:%M:%SZ") if moment else None


def format_json_time(moment: str | None) -> str | None:
    """Format a JSON time to the second, ``2026-11-03 09:30:00Z``."""
    return f"{moment[:19].replace('T', ' ')}Z" if moment else None


def write_output(path: str, content: bytes) -> None:
    """Write a file atomically; ``-`` is standard output."""
    if path == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    from pathlib import Path

    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # a pipe or a device cannot be replaced
            return
        part.write_bytes(content)
        part.replace(target)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        reason = quote_error(error)
        raise BadInput(f"cannot write {path}: {reason}", field="--output", value=path) from None


def read_text(path: str, option: str, largest: int = LARGEST_INPUT) -> str:
    """Read a file, or standard input for ``-``, as text; replace bytes that are not UTF-8."""
    data = read_bytes(path, option, largest)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # PowerShell's "nvidia-smi > file"
        return data.decode("utf-16", "replace")
    return data.decode("utf-8", "replace")


def name_input(path: str) -> str:
    """Return the name of a file for messages; ``-`` is standard input."""
    return "standard input" if path == "-" else path


@contextmanager
def open_input(path: str, option: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for ``-``; an error while it is read names the option."""
    try:
        if path == "-":
            yield sys.stdin.buffer
        else:
            with open(path, "rb") as file:
                yield file
    except OSError as error:
        what = f"cannot read '{path}': {error.strerror}"
        raise BadInput(what, field=option, value=path) from None


def read_bytes(path: str, option: str, largest: int = LARGEST_INPUT) -> bytes:
    """Read a file, or standard input for ``-``."""
    with open_input(path, option) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        size = f"{largest >> 20} MiB" if largest >> 20 else f"{largest >> 10} KiB"
        raise BadInput(f"'{path}' is larger than {size}", field=option)
    return data
