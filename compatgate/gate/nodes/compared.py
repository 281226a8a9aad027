"""What the witnesses of a node say, line by line beside each other, and who decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec import Struct

from compatgate.gate.nodes.conclude import SHARED, mismatched, ranked, same_driver, shown_gpus
from compatgate.gate.nodes.witnesses import Who, Witness
from compatgate.store.nodes import NodeRow

ORDER: tuple[Who, ...] = ("driver", "labels", "kubelet")


class Line(Struct, frozen=True):
    """One thing that witnesses tell.

    Attributes:
        said: by witness; who says nothing of it is left out.
        decides: whose word counts; None: nobody's does, it is only shown.
        differ: what they say is not the same.
    """

    name: str
    said: dict[Who, str]
    decides: Who | None = None
    differ: bool = False


class Compared(Struct, frozen=True):
    """The witnesses of a node.

    Attributes:
        witnesses: the driver itself first.
        why: who decides about driver and GPUs, in sentences.
    """

    witnesses: tuple[Witness, ...]
    lines: tuple[Line, ...]
    why: tuple[str, ...]


def compare(row: NodeRow) -> Compared:
    """Lay side by side what was reported of a node."""
    heard = msgspec.convert(row.witnesses, dict[Who, Witness])
    lines = (_driver(heard), _gpus(heard), _cuda(heard), *_resources(heard))
    there = tuple(line for line in lines if line.said)
    return Compared(tuple(heard[w] for w in ORDER if w in heard), there, tuple(_why(heard)))


def _driver(heard: Mapping[Who, Witness]) -> Line:
    said = {who: one.driver for who, one in heard.items() if one.driver}
    labels, own = said.get("labels"), said.get("driver")
    differ = bool(labels and own and not same_driver(labels, own))
    return Line("Driver", said, _first(heard, said), differ)


def _gpus(heard: Mapping[Who, Witness]) -> Line:
    kinds = {who: one.gpus for who, one in heard.items() if one.gpus}
    said = {who: shown_gpus(gpus) for who, gpus in kinds.items()}
    differ = len(kinds) == 2 and kinds["labels"] != kinds["driver"]
    return Line("GPUs", said, _first(heard, said), differ)


def _cuda(heard: Mapping[Who, Witness]) -> Line:
    said = {who: one.cuda for who, one in heard.items() if one.cuda}
    return Line("CUDA, at most", said)


def _resources(heard: Mapping[Who, Witness]) -> Iterator[Line]:
    """What the labels let expect beside what the kubelet hands out."""
    labels, kubelet = heard.get("labels"), heard.get("kubelet")
    wrong = mismatched(labels, kubelet) if labels and kubelet else {}
    names = {
        name.removesuffix(SHARED) for one in (labels, kubelet) if one for name in one.resources
    }
    for name in sorted(names):
        said: dict[Who, str] = {}
        if labels and name in labels.resources:
            said["labels"] = f"{labels.resources[name]} to be expected"
        if kubelet:
            said["kubelet"] = _handed_out(kubelet, name)
        yield Line(name, said, differ=name in wrong)


def _handed_out(kubelet: Witness, name: str) -> str:
    whole, shared = kubelet.resources.get(name, 0), kubelet.resources.get(f"{name}{SHARED}")
    return f"{whole} handed out" if shared is None else f"{whole + shared} handed out, by sharing"


def _first(heard: Mapping[Who, Witness], said: Mapping[Who, str]) -> Who | None:
    return next((one.witness for one in ranked(heard) if one.witness in said), None)


def _why(heard: Mapping[Who, Witness]) -> Iterator[str]:
    order = ranked(heard)
    if not any(one.driver or one.gpus for one in order):
        yield "No witness tells its driver and GPUs: what the kubelet hands out decides nothing."
        return
    first, second = order[0], order[1] if len(order) > 1 else None
    if second is None:
        yield f"{_ALONE[first.witness]} its driver and GPUs: that is what counts."
    elif first.witness == "driver":
        yield "The driver's own report decides about driver and GPUs."
    else:
        when = second.seen_at.strftime("%Y-%m-%d %H:%MZ")
        yield (
            f"The driver's own report is of {when}, more than a day older than the labels: "
            "the labels decide, since the driver may have been replaced."
        )
    if second and (left := [name for name, of in _PARTS if not of(first) and of(second)]):
        yield f"{_SILENT[first.witness]} of {' and '.join(left)}: there the other's word counts."


_ALONE = {"labels": "Only the labels tell", "driver": "Only the driver itself tells"}
_SILENT = {"labels": "The labels say nothing", "driver": "The driver's report says nothing"}
_PARTS: tuple[tuple[str, Callable[[Witness], object]], ...] = (
    ("the driver", lambda one: one.driver),
    ("GPUs", lambda one: one.gpus),
)
