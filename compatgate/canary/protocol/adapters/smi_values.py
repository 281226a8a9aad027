"""Values of ``nvidia-smi -q`` and ``-q -x``, which name the same things a little differently."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from compatgate.canary.protocol.adapters.found import Found

_GPU = re.compile(r"GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?: \S+)?")
_METRICS = (
    ("temperature", "C", re.compile(r".*temperature/gpu_(?:current_)?temp")),
    ("power", "W", re.compile(r".*power_readings/(?:instant(?:aneous)?_)?power_draw")),
    ("clock-sm", "MHz", re.compile(r".*(?:^|/)clocks/sm(?:_clock)?")),
)
_ECC = re.compile(r".*volatile/(?:.*uncorrect\w*|double_bit/total)")
_SLOW = re.compile(
    r".*clocks_(?:throttle|event)_reasons/.*(?:hw_slowdown|thermal_slowdown|power_brake_slowdown)"
)
_ROWS = re.compile(r".*remapped_rows/remapp(?:ing_failure_occurred|ed_row_failure)")

_Values = dict[int, dict[str, str]]


def read(text: str, attached: int | None, found: Found) -> None:
    """Report what a log or a document says; nothing where the text is neither."""
    gpus = _of_xml(text) if "<nvidia_smi_log" in text else _of_text(text)
    for gpu, values in gpus.items():
        for name, unit, pattern in _METRICS:
            for value in _matching(values, pattern):
                if match := _NUMBER.fullmatch(value):
                    found.metric(f"{name}-gpu{gpu}", unit, [float(match[1])])
    many = attached or len(gpus)
    _check(gpus, many, "ecc", _ECC, lambda value: value.isdecimal() and int(value) > 0, found)
    _check(gpus, many, "unthrottled", _SLOW, lambda value: value == "Active", found)
    _check(gpus, many, "rows", _ROWS, lambda value: value == "Yes", found)


def _check(
    gpus: _Values, many: int, name: str, pattern: re.Pattern[str], bad: Any, found: Found
) -> None:
    """A check that holds when every GPU states the values and none of them is bad."""
    stated = {gpu: list(_matching(values, pattern)) for gpu, values in gpus.items()}
    known = [gpu for gpu, values in stated.items() if values]
    wrong = [gpu for gpu, values in stated.items() if any(map(bad, values))]
    if wrong:
        found.check(name, False, ", ".join(f"GPU {gpu}" for gpu in wrong))
    elif known and len(known) < many:
        found.problem(f"{len(known)} of {many} GPUs state what the check {name} asks")
    elif known and any(value not in ("N/A", "") for gpu in known for value in stated[gpu]):
        found.check(name, True, f"{len(known)} GPUs")


def _matching(values: dict[str, str], pattern: re.Pattern[str]) -> Iterator[str]:
    return (value for path, value in values.items() if pattern.fullmatch(path))


def _of_text(text: str) -> _Values:
    """Values of each GPU by their path; how far a line is indented says what it belongs to."""
    gpus: _Values = defaultdict(dict)
    count, path = -1, list[tuple[int, str]]()
    for line in text.splitlines():
        if _GPU.match(line):
            count, path = count + 1, []
            continue
        if count < 0 or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        key, colon, value = (part.strip() for part in line.partition(" : "))
        while path and path[-1][0] >= indent:
            path.pop()
        path.append((indent, re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")))
        if colon:
            gpus[count].setdefault("/".join(name for _, name in path), value)
    return dict(gpus)


def _of_xml(text: str) -> _Values:
    """As `_of_text`; the document was found well-formed before."""
    gpus: _Values = defaultdict(dict)
    path: list[str] = []
    held: list[str] = []
    count = -1

    def start(name: str, _: dict[str, Any]) -> None:
        nonlocal count
        path.append(name)
        held.clear()
        count += path[1:] == ["gpu"]

    def end(_: str) -> None:
        if path[1:2] == ["gpu"] and (value := "".join(held).strip()):
            gpus[count].setdefault("/".join(path[2:]), value)
        path.pop()
        held.clear()

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = held.append
    whole = text[text.find("<nvidia_smi_log") :]
    parser.Parse(whole[: whole.rfind(">") + 1].partition("</nvidia_smi_log>")[0], False)
    return dict(gpus)
