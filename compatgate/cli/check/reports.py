"""In which forms, and into which files, the answers of ``check`` go."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from compatgate.cli.formats import Answer, View, render_all
from compatgate.errors import BadInput

STDOUT = "-"


class Report(Struct, frozen=True):
    """One form and where it goes; ``-`` is standard output."""

    form: str
    path: str = STDOUT


def read_reports(forms: Sequence[str], output: str | None) -> list[Report]:
    """Read ``--format NAME[=FILE]`` and ``--output FILE``.

    A form without a file goes to ``--output``, or else to standard output; where every form has
    a file, standard output gets the text for people.

    Raises:
        BadInput: two would go to one place.
    """
    reports: list[Report] = []
    for stated in forms:
        form, _, path = stated.partition("=")
        reports.append(Report(form, path or output or STDOUT))
    if not any("=" not in stated for stated in forms):
        reports.insert(0, Report("text", output or STDOUT))
    paths = [report.path for report in reports]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        where = "standard output" if twice == STDOUT else twice
        hint = "name a file for each but one: --format sarif=compatgate.sarif"
        raise BadInput(f"several forms would go to {where}", field="--format", hint=hint)
    return reports


def refuse_inputs(reports: Sequence[Report], inputs: Iterable[str | None]) -> None:
    """Refuse a report that would take the place of a file that is read.

    Raises:
        BadInput: names the file.
    """
    read = {os.path.realpath(path) for path in inputs if path and path != STDOUT}
    for report in reports:
        if report.path != STDOUT and os.path.realpath(report.path) in read:
            raise BadInput(f"{report.path} is read; a report would overwrite it", field="--format")


def remove_old(reports: Sequence[Report]) -> None:
    """Remove the files of an earlier run: where there is no answer now, none must be found."""
    for report in reports:
        with suppress(OSError):
            if report.path != STDOUT and stat.S_ISREG(os.lstat(report.path).st_mode):
                os.unlink(report.path)


def write_reports(reports: Sequence[Report], answers: Sequence[Answer]) -> None:
    """Write every report.

    Raises:
        BadInput: a file cannot be written.
    """
    from compatgate.cli.terminal import wants_colour, width_of

    for report in reports:
        if report.path != STDOUT:
            from compatgate.cli.output import write_output

            text = render_all(report.form, answers)
            write_output(report.path, f"{text}\n".encode("utf-8", "backslashreplace"))
            continue
        view = View(width=width_of(sys.stdout), colour=wants_colour(sys.stdout))
        if text := render_all(report.form, answers, view):
            print(text)
