"""What a user reads names no file of the checkout: an installed wheel has none of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from compatgate.resources import package_dir

_OF_CHECKOUT = re.compile(r"(?:^|[\s('\"])(?:docs|deploy|scripts|tests|bench|matrix)/\w")


def _texts(path: Path) -> Iterator[str]:
    source = path.read_text()
    if path.suffix == ".html" or not _OF_CHECKOUT.search(source):
        yield source
        return
    tree = ast.parse(source)
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield "" if node.value.startswith('"""') else node.value  # a module that is written


def test_no_message_names_a_file_of_the_checkout() -> None:
    paths = [path for kind in ("*.py", "*.html") for path in package_dir().rglob(kind)]
    strays = [f"{p}: {t[:200]}" for p in paths for t in _texts(p) if _OF_CHECKOUT.search(t)]
    assert not strays
