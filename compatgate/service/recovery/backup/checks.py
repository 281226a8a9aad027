"""Describe the result of one check, and print a list of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from compatgate.errors import CompatgateError, quote_error

State = Literal["ok", "warn", "fail", "skip"]


class Check(Struct, frozen=True):
    """One check.

    Attributes:
        state: ``skip``: does not apply here, or could not be checked; says why.
        fix: what to do; empty: nothing.
    """

    name: str
    state: State
    message: str
    fix: str = ""


def failed(name: str, error: CompatgateError) -> Check:
    """Return the check that an error ended."""
    return Check(name, "fail", " ".join(error.problem.split()), " ".join(error.hint.split()))


def guarded(name: str, check: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """Yield the results of a check; an error becomes a failed check."""
    try:
        yield from check()
    except CompatgateError as error:
        yield failed(name, error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        yield Check(name, "fail", f"{where}{quote_error(error)}")


def print_checks(checks: Sequence[Check], *, as_json: bool) -> int:
    """Print results; return 1 if a check failed, else 0."""
    from compatgate.kit.cli.output import print_json
    from compatgate.kit.cli.terminal import strip_controls

    ok = all(check.state != "fail" for check in checks)
    if as_json:
        print_json({"ok": ok, "checks": [msgspec.to_builtins(check) for check in checks]})
        return 0 if ok else 1
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        fix = f"; {check.fix}" if check.fix else ""
        line = f"{check.state:<4}  {check.name:<{width}}  {check.message}{fix}"
        print(strip_controls(line))
    return 0 if ok else 1
