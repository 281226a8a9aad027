"""Which of all judged runs still speak: the latest of each kind."""

from __future__ import annotations

from collections.abc import Iterable

from compatgate.core.matrix import Evidence

Kind = tuple[str, str, str, bool, tuple[tuple[str, str], ...]]
"""Suite, SKU, driver, whether for development, and the components: what the rules tell apart."""


def kind_of(run: Evidence) -> Kind:
    """What a run is evidence about, whatever came of it."""
    components = tuple(sorted((name, version.text) for name, version in run.components.items()))
    return (run.suite, run.sku, run.driver.text, run.development, components)


def newest(runs: Iterable[Evidence], known: Iterable[Evidence] = ()) -> tuple[Evidence, ...]:
    """The latest judged run of each kind.

    Rules look for the latest run among those that are about a stack, and runs of one kind are all
    about the same stacks: what is left out could decide nothing. So the gate's memory grows with
    what was tested, not with how often.

    Args:
        runs: in the order in which they became known.
        known: earlier ones.
    """
    found: dict[Kind, Evidence] = {kind_of(run): run for run in known}
    for run in runs:
        if run.outcome == "inconclusive":
            continue
        kind = kind_of(run)
        latest = found.get(kind)
        if latest is None or run.finished >= latest.finished:
            found.pop(kind, None)
            found[kind] = run
    return tuple(found.values())
