"""Where findings are shown by what reviews changes, and what tells them apart from run to run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256

from compatgate.cli.formats import Answer, Json, Place


def place(finding: Json, answer: Answer) -> Place:
    """The line of the component; without a file the path names the target, as one is demanded."""
    known = answer.place(finding)
    if known is None:
        return Place(f"compatgate/{_plain(answer.verdict['target'] or 'pool')}")
    return Place(relative(known.path), known.line)


def relative(path: str) -> str:
    """The path from the working directory, with slashes; one outside of it stays absolute."""
    if path == "-":
        return "stdin"
    shown = os.path.relpath(path)
    outside = shown == os.pardir or shown.startswith(os.pardir + os.sep)
    shown = os.path.abspath(path) if outside else shown
    return shown.replace(os.sep, "/").encode("utf-8", "replace").decode()


def each(answers: Sequence[Answer]) -> Iterator[tuple[Json, Answer, str]]:
    """Every finding with its answer and its fingerprint.

    A fingerprint, 64 hexadecimal digits, is unique in a report, and the same for the same finding
    in every run, however its message is worded.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    for answer in answers:
        for finding in answer.verdict["findings"]:
            parts = (
                answer.verdict["target"] or "pool",
                relative(answer.file) if answer.file else "",
                finding["rule"],
                str(finding["component"]),
                *finding["pools"],
            )
            number = seen[parts]
            seen[parts] += 1
            told = "\0".join((*parts, str(number))).encode("utf-8", "replace")
            yield finding, answer, sha256(told).hexdigest()


def _plain(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-._") else "-" for c in name)
