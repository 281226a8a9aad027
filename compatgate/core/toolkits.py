"""A stack's CUDA among the toolkits of the facts, and the lowest driver that runs it."""

from __future__ import annotations

from compatgate.core.facts import Facts, Source, Toolkit
from compatgate.core.target import Pool
from compatgate.core.versions import Version, show


def find_toolkit(cuda: Version, facts: Facts) -> Toolkit | None:
    """The row of a toolkit, the first of its series where no update is stated.

    None for a release that the facts do not know.
    """
    series = facts.toolkits_of.get(cuda.major_minor, ())
    if len(cuda.parts) < 3 or not series:
        return series[0] if series else None
    text = show(cuda.at(3))
    wanted = facts.cuda_driver.same_row.get(text, text)
    if all(len(t.version.parts) < 3 for t in series):
        return series[0]  # before CUDA 11 the table has one row a series
    return next((t for t in series if show(t.version.at(3)) == wanted), None)


def find_floor(
    cuda: Version, toolkit: Toolkit | None, pool: Pool, facts: Facts
) -> tuple[Version, Source] | None:
    """The lowest driver that runs a CUDA on a pool without forward compatibility.

    Args:
        cuda: of the stack.
        toolkit: its row.
        pool: whose system and processor count; its driver does not.
        facts: the tables.

    Returns:
        The driver, and who says so; None where that is not published.
    """
    os = pool.driver_os
    compat = facts.cuda_driver.minor_compat.get(cuda.major)
    if compat is None:
        own = toolkit.driver.get(os) if toolkit else None
        return (own, toolkit.source) if own and toolkit else None
    special = compat.exceptions.get(show(cuda.major_minor), {})
    arm = f"{os}-aarch64" if pool.cpu == "aarch64" else os
    minimum = special.get(arm) or special.get(os) or compat.minimum.get(os)
    return (minimum, compat.source) if minimum else None
