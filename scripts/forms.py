"""Count the declarations of a run, a target's pool and a waiver, and structs that mirror another.

``python scripts/forms.py [--list]``. A declaration is a class, a parameter list or an argument list
that names at least half of the thing's fields; the options of a command count as one for the
function that adds them. Two structs mirror each other if they have the same fields, or all but one.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "compatgate"
THINGS = {
    "run": {"suite", "target", "pool", "entry", "host", "priority", "purpose", "state"},
    "pool of a target": {"gpu", "driver", "os", "cpu", "count", "platform", "sharing", "node"},
    "waiver": {"rules", "targets", "owner", "reason", "expires", "match"},
}
FEWEST_FIELDS = 4
"""Fields of the smallest struct that counts as the mirror of another."""


class Form(NamedTuple):
    """A place that names the fields of a thing."""

    path: str
    line: int
    name: str
    lines: int
    fields: frozenset[str]


def list_forms(package: Path) -> Iterator[Form]:
    """Yield every class, parameter list and argument list of a package."""
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = path.relative_to(package).as_posix()
        for node in ast.walk(tree):
            for kind, names in _named(node):
                last = getattr(node, "end_lineno", None) or 0
                first = getattr(node, "lineno", 0)
                if isinstance(node, ast.FunctionDef) and kind != "options of ":
                    last = node.body[0].lineno - 1
                name = kind + getattr(node, "name", "call")
                yield Form(where, first, name, last - first + 1, frozenset(names))


def _named(node: ast.AST) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, ast.ClassDef):
        yield "class ", class_fields(node)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        yield "", {one.arg for one in every}
        yield "options of ", set(_options(node))
    elif isinstance(node, ast.Call):
        yield "", {one.arg for one in node.keywords if one.arg}


def class_fields(node: ast.ClassDef) -> set[str]:
    """Return the annotated names of a class's body."""
    return {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def _options(function: ast.AST) -> Iterator[str]:
    """Yield the names of the options that a function adds to a parser."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            for value in node.args:
                if isinstance(value, ast.Constant) and str(value.value).startswith("--"):
                    yield str(value.value)[2:].replace("-", "_")


def forms_of(thing: str, every: list[Form]) -> list[Form]:
    """Return the forms that name at least half of a thing's fields."""
    wanted = THINGS[thing]
    return [one for one in every if 2 * len(one.fields & wanted) >= len(wanted)]


def mirrors(every: list[Form]) -> list[list[Form]]:
    """Return groups of structs with the same fields, or all but one."""
    structs = [
        one for one in every if one.name.startswith("class ") and len(one.fields) >= FEWEST_FIELDS
    ]
    groups: dict[int, set[int]] = {number: {number} for number in range(len(structs))}
    for (a, one), (b, other) in combinations(enumerate(structs), 2):
        if len(one.fields ^ other.fields) <= 1:
            joined = groups[a] | groups[b]
            for number in joined:
                groups[number] = joined
    distinct = {id(group): group for group in groups.values() if len(group) > 1}
    return [[structs[number] for number in sorted(group)] for group in distinct.values()]


def main() -> int:
    """Print the counts, with ``--list`` each place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print each place")
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE)
    args = parser.parse_args()
    every = list(list_forms(args.package))
    for thing in THINGS:
        found = forms_of(thing, every)
        print(f"{thing}: {len(found)} declarations, {sum(one.lines for one in found)} lines")
        if args.list:
            print(*(f"  {one.path}:{one.line} {one.name}" for one in found), sep="\n")
    groups = mirrors(every)
    print(f"structs that mirror another: {len(groups)} groups, {sum(map(len, groups))} structs")
    if args.list:
        for group in groups:
            print("  " + " = ".join(f"{one.path}:{one.name[6:]}" for one in group))
    return 0


if __name__ == "__main__":
    sys.exit(main())
