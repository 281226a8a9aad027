"""Say how a long computation is called: here, or in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Compute(Protocol):
    """Calls a function of a module with plain values, snapshots and facts."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of the function, or raise its error."""
        ...


def compute_here(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in this process: of a command, whose user waits for nothing else."""
    return function(*args, **kwargs)
