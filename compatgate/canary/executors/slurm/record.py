"""What Slurm says of a job, from the output of its commands. Pure."""

from __future__ import annotations

import re

from msgspec import Struct

SACCT_FIELDS = ("JobIDRaw", "JobName", "State", "ExitCode", "NodeList")
"""For ``sacct --parsable2 --format``, in this order."""
_EXIT = re.compile(r"(\d+):(\d+)")


class Record(Struct, frozen=True):
    """A job as Slurm knows it.

    Attributes:
        state: base state in capitals, ``PENDING``, ``NODE_FAIL``.
        reason: why it waits, or ended; "" where Slurm gives none.
        exit_code, signal: of the batch script.
        node: where it is or was; "" before.
        restarts: how often Slurm put it back into its queue.
    """

    name: str
    state: str
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    node: str = ""
    restarts: int = 0


def read_scontrol(text: str) -> Record | None:
    """From ``scontrol --oneliner show job``, in the form that it has had since Slurm 2.

    None where there is no job in it. Its ``--json`` came late, is missing where Slurm was built
    without it, and changed its shape between releases. Free text (comment, paths) stands after
    what is read here.
    """
    if not text.startswith("JobId="):
        return None
    exit_code, signal = _exit(_field(text, "ExitCode"))
    return Record(
        name=_field(text, "JobName"),
        state=_field(text, "JobState").partition("+")[0],
        reason=_said(_field(text, "Reason")),
        exit_code=exit_code,
        signal=signal,
        node=_said(_field(text, "NodeList")),
        restarts=_whole(_field(text, "Restarts")),
    )


def read_sacct(text: str) -> Record | None:
    """From ``sacct --parsable2 --noheader --allocations`` with `SACCT_FIELDS`; the last line.

    ``CANCELLED by 1000`` names who did it.
    """
    lines = [line.split("|") for line in text.splitlines() if "|" in line]
    if not lines or len(lines[-1]) != len(SACCT_FIELDS):
        return None
    _, name, state, exit_text, node = lines[-1]
    exit_code, signal = _exit(exit_text)
    word, _, by = state.partition(" ")
    return Record(
        name=name,
        state=word,
        reason=by,
        exit_code=exit_code,
        signal=signal,
        node=_said(node),
    )


def _field(text: str, name: str) -> str:
    found = re.search(rf"(?:^| ){name}=(\S*)", text)
    return found[1] if found else ""


def _said(value: str) -> str:
    return "" if value in ("None", "(null)", "N/A", "None assigned", "Unknown") else value


def _exit(text: str) -> tuple[int, int]:
    found = _EXIT.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0
