"""The JSON that nccl-tests writes with ``-J FILE`` (2.15 and later), where a workload prints it."""

from __future__ import annotations

from typing import Any

from compatgate.canary.protocol.adapters.documents import documents, member, objects
from compatgate.canary.protocol.adapters.found import Found
from compatgate.canary.protocol.adapters.nccl_rows import Rank, Row, Run
from compatgate.canary.protocol.fields import Broken, number


def read(text: str, found: Found) -> list[Run]:
    """The runs whose JSON is in the text; [] where there is none.

    Raises:
        Broken: a document is cut off, or has not this shape.
    """
    bodies = [body for body in documents(text, "version") if "nccl_version" in body]
    return [_run(body, found) for body in bodies]


def _run(body: dict[str, Any], found: Found) -> Run:
    rows = [row for result in objects(body, "results") for row in _rows(result)]
    if not rows:
        found.problem("the JSON document has no results")
    bounds = member(body, "out_of_bounds", dict, {})
    average = member(body, "average_bus_bandwidth", dict, {})
    for missing in ("out_of_bounds", "average_bus_bandwidth", "end_time"):
        if missing not in body:
            found.problem(f"the JSON document has no {missing}: the test did not end")
    for error in member(body, "errors", list, []):
        if error:
            found.problem(f"nccl-tests reports an error: {error}")
    return Run(
        rows=tuple(rows),
        ranks=tuple(_rank(item) for item in _devices(body)),
        nccl=str(member(body, "nccl_version", int)),
        out_of_bounds=member(bounds, "count", int),
        average=number("bandwidth", average["bandwidth"]) if "bandwidth" in average else None,
        bandwidth_ok=_okay(average),
    )


def _okay(average: dict[str, Any]) -> bool | None:
    return {"true": True, "false": False}.get(str(average.get("okay", "")))


def _devices(body: dict[str, Any]) -> list[dict[str, Any]]:
    config = member(body, "config", dict, {})
    return objects(config, "devices") if "devices" in config else []


def _rank(item: dict[str, Any]) -> Rank:
    return Rank(
        number=member(item, "rank", int, 0),
        host=member(item, "hostname", str, ""),
        pci=member(item, "device_hex", str, "").strip("[]"),
        gpu=member(item, "device_info", str, "").strip(),
    )


def _rows(result: dict[str, Any]) -> list[Row]:
    sides = [
        _side(result, side, in_place)
        for in_place, name in ((False, "out_of_place"), (True, "in_place"))
        if (side := member(result, name, dict)) is not None
    ]
    if not sides:
        raise Broken("a result has neither out_of_place nor in_place")
    return sides


def _side(result: dict[str, Any], side: dict[str, Any], in_place: bool) -> Row:
    wrong = side.get("nwrong")
    size = member(result, "size", int)
    if size is None:
        raise Broken("a result has no size")
    return Row(
        size,
        member(result, "type", str, ""),
        member(result, "redop", str, ""),
        member(result, "root", str, "").strip(),
        in_place,
        number("time", side.get("time", side.get("cpu_time"))),
        number("alg_bw", side.get("alg_bw")),
        number("bus_bw", side.get("bus_bw")),
        None if wrong is None else number("nwrong", wrong),
    )
