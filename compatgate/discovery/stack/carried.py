"""What a package's files hold, in one line for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST = 12


def carried_by(record: Mapping[str, Any]) -> str:
    """Return what the record of a package in a stack says: code, links, and what was not read.

    Args:
        record: as ``measured`` of a stack has it.
    """
    libraries = record.get("libraries", ())
    if not libraries and not record.get("unread"):
        return "no GPU code and no link to a GPU library"
    said = []
    code = _ordered(name for one in libraries for name in one.get("sass", ()))
    code += _ordered(name for one in libraries for name in one.get("ptx", ()))
    coded = sum(bool(one.get("sass") or one.get("ptx")) for one in libraries)
    if coded:
        where = "1 library" if coded == 1 else f"{coded} libraries"
        said.append(f"{' '.join(_few(code))} in {where}")
    needs = sorted({name for one in libraries for name in one.get("needs", ())})
    if needs:
        said.append(f"needs {' '.join(_few(needs))}")
    if record.get("built_for_torch"):
        said.append(f"built for torch {record['built_for_torch']}")
    if unread := record.get("unread"):
        said.append(f"not read: {' '.join(_few(list(unread)))}")
    return "; ".join(said) or "linked against GPU libraries, no GPU code"


def _ordered(names: Any) -> list[str]:
    def place(name: str) -> tuple[int, str]:
        digits = "".join(filter(str.isdecimal, name))
        return int(digits or 0), name

    return sorted(set(names), key=place)


def _few(names: list[str]) -> list[str]:
    left = len(names) - _MOST
    return names if left <= 0 else [*names[:_MOST], f"and {left} more"]
