"""YAML text into node trees, its depth checked first.

libyaml's composer recurses in C, where deep nesting ends the process instead of raising; its
events come one after another, so depth is counted on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.events import CollectionEndEvent, CollectionStartEvent, StreamEndEvent
from yaml.nodes import Node

DEEPEST = 32
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooMuchError(Exception):
    """A text that would cost more than it can be worth.

    Attributes:
        line: where that shows, from 1.
        problem: in words.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


def compose(text: str) -> Iterator[Node]:
    """The documents of a text as nodes; an alias is the node that it stands for.

    Raises:
        yaml.YAMLError: not YAML; what came before was given.
        TooMuchError: nested too deeply.
    """
    _check_depth(text)
    loader = _Loader(text)
    try:
        while loader.check_node():
            yield loader.get_node()
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    loader = _Loader(text)
    depth = 0
    try:
        while not isinstance(event := loader.get_event(), StreamEndEvent):
            if isinstance(event, CollectionStartEvent):
                depth += 1
                if depth > DEEPEST:
                    mark: Any = event.start_mark
                    raise TooMuchError(mark.line + 1, "nested too deeply")
            elif isinstance(event, CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError:
        return  # composing ends here too, and says so
    finally:
        loader.dispose()
