"""From what witnesses say of a node to what counts, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from msgspec import Struct

from compatgate.core.versions import parse_version
from compatgate.errors import BadInput
from compatgate.gate.nodes.witnesses import Gpus, Who, Witness

OUTDATED = timedelta(days=1)
"""By which a driver's report may be older than the labels and still decide."""
SHARED = ".shared"
"""Ends the name of a resource that several containers use at once."""


class Concluded(Struct, frozen=True):
    """What counts of a node.

    Attributes:
        driver: None: no witness tells.
        gpus: kinds; empty: no witness tells, or it has none.
        disagreements: in sentences, each with what decides.
    """

    driver: str | None
    gpus: tuple[Gpus, ...]
    disagreements: tuple[str, ...]


def conclude(witnesses: Mapping[Who, Witness]) -> Concluded:
    """Weigh witnesses: the driver's own report decides, unless it is long out of date."""
    labels, own = witnesses.get("labels"), witnesses.get("driver")
    ordered = ranked(witnesses)
    said: list[str] = []
    if labels and own:
        decides = _decides(own, outdated=ordered[0] is labels)
        said += _drivers(labels, own, decides)
        said += _gpus(labels, own, decides)
    if labels and (kubelet := witnesses.get("kubelet")):
        said += _resources(labels, kubelet)
    said += [remark for witness in witnesses.values() for remark in witness.remarks]
    driver = next((w.driver for w in ordered if w.driver), None)
    gpus = next((w.gpus for w in ordered if w.gpus), ())
    return Concluded(driver, gpus, tuple(dict.fromkeys(said)))


def ranked(witnesses: Mapping[Who, Witness]) -> tuple[Witness, ...]:
    """Who may tell the driver and the GPUs: of what both say, the first one's word counts."""
    labels, own = witnesses.get("labels"), witnesses.get("driver")
    outdated = bool(labels and own and labels.seen_at - own.seen_at > OUTDATED)
    return tuple(one for one in ((labels, own) if outdated else (own, labels)) if one)


def mismatched(labels: Witness, kubelet: Witness) -> dict[str, tuple[int, int]]:
    """Resources of which the kubelet hands out another number than the labels make, by name."""
    found = {}
    for name, expected in labels.resources.items():
        given = kubelet.resources.get(name, 0) + kubelet.resources.get(f"{name}{SHARED}", 0)
        if given != expected:
            found[name] = (expected, given)
    return found


def same_driver(one: str, other: str) -> bool:
    """Whether two spellings are the same driver, ``535.54.03`` and ``535.54.3`` being one."""
    try:
        return parse_version("driver", one) == parse_version("driver", other)
    except BadInput:
        return one == other


def shown_gpus(gpus: Iterable[Gpus]) -> str:
    """``8 x A100-SXM4-80GB``."""
    return ", ".join(f"{kind.count} x {kind.gpu}" for kind in gpus) or "no GPU"


def _decides(own: Witness, *, outdated: bool) -> str:
    if outdated:
        when = own.seen_at.strftime("%Y-%m-%d %H:%MZ")
        return f"the driver's own report is of {when}, long before the labels, which decide"
    return "the driver's own report decides"


def _drivers(labels: Witness, own: Witness, decides: str) -> list[str]:
    if not labels.driver or not own.driver or same_driver(labels.driver, own.driver):
        return []
    return [f"the labels say driver {labels.driver}, the driver itself {own.driver}: {decides}"]


def _gpus(labels: Witness, own: Witness, decides: str) -> list[str]:
    if not labels.gpus or not own.gpus or labels.gpus == own.gpus:
        return []
    theirs, its = shown_gpus(labels.gpus), shown_gpus(own.gpus)
    return [f"the labels say {theirs}, the driver itself {its}: {decides}"]


def _resources(labels: Witness, kubelet: Witness) -> list[str]:
    """Where the kubelet hands out more or fewer GPUs than there are; neither is the driver."""
    return [
        f"the labels make {expected} of {name}, the kubelet hands out {given}"
        for name, (expected, given) in mismatched(labels, kubelet).items()
    ]
