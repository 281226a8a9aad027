"""Messages pass on the words of other libraries by one function, after a sentence of ours."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from compatgate.errors import explain_form, locate_error, quote_error

PACKAGE = Path(__file__).parents[2] / "compatgate"


@cache
def parse_package() -> dict[Path, ast.Module]:
    """Return the package's files, read once: not while tests are collected."""
    return {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}


@cache
def list_classes() -> frozenset[str]:
    return frozenset(
        node.name
        for tree in parse_package().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )


def caught_elsewhere(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches an error that compatgate does not define."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(kind).rpartition(".")[2] for kind in kinds if kind is not None}
    return handler.name is not None and not names <= list_classes()


def as_text(node: ast.AST, name: str) -> bool:
    """Return whether an expression turns the error of this name into text."""
    match node:
        case ast.FormattedValue(value=ast.Name(id=found)):
            return found == name
        case ast.FormattedValue(value=ast.BoolOp(values=values)):
            return any(isinstance(value, ast.Name) and value.id == name for value in values)
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=found)]):
            return found == name
    return False


def quotes(tree: ast.AST) -> Iterator[int]:
    """Yield the lines on which a caught error of others becomes text."""
    for handler in ast.walk(tree):
        if isinstance(handler, ast.ExceptHandler) and caught_elsewhere(handler):
            yield from (
                getattr(node, "lineno", handler.lineno)
                for node in ast.walk(handler)
                if as_text(node, str(handler.name))
            )


def test_only_one_function_passes_on_what_another_library_says() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path, tree in parse_package().items()
        for line in quotes(tree)
    ]
    assert not found, "write a sentence that names the field, then {quote_error(error)}"


def test_no_message_consists_of_what_another_library_says() -> None:
    bare = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, tree in parse_package().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in list_classes()
        and node.args
        if getattr(getattr(node.args[0], "func", None), "id", "") == "quote_error"
    ]
    assert not bare, "begin with a sentence that names the field"


def test_words_of_others_are_one_line_without_backquotes_and_not_long() -> None:
    assert quote_error(ValueError("Expected `int`,\n  got `str`")) == "Expected 'int', got 'str'"
    assert quote_error(ValueError()) == "ValueError"
    assert quote_error(OSError(28, "No space left on device", "/x")) == "No space left on device"
    assert len(quote_error(ValueError("x" * 5000))) == 300


def test_an_error_of_form_names_its_field() -> None:
    error = ValueError("Expected `int`, got `str` - at `$.limits[...].gpus`")
    assert locate_error(error) == ("limits[0].gpus", "Expected 'int', got 'str'")
    assert explain_form(error) == "limits[0].gpus has the wrong form: Expected 'int', got 'str'"
    assert locate_error(ValueError("lacks field `name` - at `$.a`"))[0] == "a.name"
    assert explain_form(ValueError("odd"), "the line") == "the line has the wrong form: odd"
