"""The lines of a requirements file, with continuations joined and includes followed.

Source: pip's "Requirements File Format" (https://pip.pypa.io/en/stable/reference/requirements-file-format/).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from msgspec import Struct

from compatgate.discovery.lockfiles.interface import LockFile
from compatgate.discovery.lockfiles.text import MOST_PACKAGES, decode
from compatgate.errors import BadInput

_DEEPEST = 8
_MOST_FILES = 32
_COMMENT = re.compile(r"(^|\s)#.*$")
_OPTION = re.compile(
    r"(?P<name>--?[A-Za-z][A-Za-z\-]*)(?:\s*=\s*|\s+|(?<=^-[rcife])|$)(?P<value>.*)"
)
FIRST_INDEX = ("-i", "--index-url")
MORE_INDEXES = ("--extra-index-url",)
INDEX = (*FIRST_INDEX, *MORE_INDEXES, "-f", "--find-links")
_REQUIREMENTS = ("-r", "--requirement")
_CONSTRAINTS = ("-c", "--constraint")
_IGNORED = frozenset(
    (
        "--no-index",
        "--pre",
        "--prefer-binary",
        "--require-hashes",
        "--no-binary",
        "--only-binary",
        "--trusted-host",
        "--use-feature",
        "--no-build-isolation",
        "--no-deps",
    )
)


class Line(Struct, frozen=True):
    """One logical line.

    Attributes:
        origin: file and line.
        option: ``-i``, ``-e``, ...; empty for a requirement.
        constraint: it stands in a constraints file.
    """

    origin: str
    text: str
    option: str = ""
    constraint: bool = False


class Lines:
    """Reads a requirements file and what it includes; `unread` names includes that were not."""

    def __init__(self, file: LockFile) -> None:
        self._file = file
        self._seen: set[tuple[str, bool]] = set()
        self.unread: list[str] = []

    def __iter__(self) -> Iterator[Line]:
        """Every line, those of includes in their place.

        Raises:
            BadInput: an unknown option, an include outside the folder or too many of them.
        """
        return self._read(self._file.name, self._file.text, "", constraint=False, depth=0)

    def _read(
        self, name: str, text: str, folder: str, *, constraint: bool, depth: int
    ) -> Iterator[Line]:
        for number, joined in _joined(text):
            origin = f"{name}:{number}"
            if not joined.startswith("-"):
                yield Line(origin, joined, constraint=constraint)
                continue
            match = _OPTION.fullmatch(joined)
            option = match["name"] if match else joined.split()[0]
            value = match["value"].strip().strip("\"'") if match else ""
            if option in _REQUIREMENTS + _CONSTRAINTS:
                inner = constraint or option in _CONSTRAINTS
                yield from self._include(origin, value, folder, constraint=inner, depth=depth + 1)
            elif option in INDEX or option in ("-e", "--editable"):
                yield Line(origin, value, option, constraint)
            elif option not in _IGNORED:
                hint = "a requirements file has one requirement or option a line"
                raise BadInput(f"{option!r} is not an option", field=origin, hint=hint)

    def _include(
        self, origin: str, value: str, folder: str, *, constraint: bool, depth: int
    ) -> Iterator[Line]:
        path = posixpath.normpath(posixpath.join(folder, value.replace("\\", "/")))
        if "://" in value or self._file.beside is None:
            self.unread.append(f"{value!r}, included at {origin}, was not read")
            return
        if path.startswith(("/", "..")) or ":" in path or "\0" in path or not value:
            problem = f"{value!r} is not within the folder of {self._file.name}"
            raise BadInput(problem, field=origin, hint="copy it there, or compile one file")
        if (path, constraint) in self._seen:
            return
        self._seen.add((path, constraint))
        if depth > _DEEPEST or len(self._seen) > _MOST_FILES:
            raise BadInput("includes too many files", field=origin)
        try:
            data = self._file.beside(path)
        except OSError as error:
            raise BadInput(f"{value!r} cannot be read: {error.strerror}", field=origin) from None
        text = decode(data, path) if data.strip() else ""
        folder = posixpath.dirname(path)
        yield from self._read(path, text, folder, constraint=constraint, depth=depth)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each logical line; comments and empty lines left out."""
    pending: list[str] = []
    first = 1
    for number, raw in enumerate(text.splitlines(), 1):
        if number > MOST_PACKAGES * 20:
            raise BadInput("has too many lines", field=str(number))
        if not pending:
            first = number
        comment = raw.lstrip().startswith("#")
        if raw.rstrip().endswith("\\") and not comment:
            pending.append(raw.rstrip()[:-1])
            continue
        if not comment:
            pending.append(raw)
        joined = _COMMENT.sub("", "".join(pending)).strip()
        pending = []
        if joined:
            yield first, joined
    if pending and (joined := _COMMENT.sub("", "".join(pending)).strip()):
        yield first, joined
