"""What the witnesses of a node say, line by line beside each other, and who decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    return Line("Newest CUDA of the driver", said)


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
    if not order:
        yield "Nobody tells its driver and GPUs: what the kubelet hands out decides nothing."
        return
    first = order[0]
    if len(order) == 1 and first.witness == "labels":
        yield "Only the labels tell its driver and GPUs, so they decide."
    elif len(order) == 1:
        yield "Only the driver itself tells its version and GPUs, so it decides."
    elif first.witness == "driver":
        yield "The driver's own report decides about driver and GPUs."
    else:
        when = order[1].seen_at.strftime("%Y-%m-%d %H:%MZ")
        yield (
            f"The driver's own report is of {when}, more than a day older than the labels: "
            "the labels decide, the driver may have been replaced since."
        )
    for second in order[1:]:
        left = [w for w, there in (("driver", first.driver), ("GPUs", first.gpus)) if not there]
        if left:
            whose = "the labels'" if second.witness == "labels" else "the older report's"
            yield f"It says nothing of {' and '.join(left)}: there {whose} word counts."
