"""Functions fit on a screen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST = 60


def test_no_function_has_more_lines_than_a_screen() -> None:
    long = [line for folder in ("compatgate", "scripts") for line in long_functions(ROOT / folder)]
    assert not long, f"split into steps: {', '.join(long)}"


def long_functions(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST:
                    yield f"{path.relative_to(ROOT)}: {node.name} ({lines} lines)"
