"""Declare the settings of a command: option, variable, reading and help of each in one place.

A class lists `Setting` objects in the order of the help; its attributes are their values. Values
are read when they are used, so that ``--help`` imports no service.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from compatgate.kit.cli.usage import Part, add_parts, add_usage, read_usage

T = TypeVar("T")


class Heading(NamedTuple):
    """A group of options in the help; empty: those without a group."""

    title: str


class Shared(NamedTuple):
    """Options that other commands have as well; their values are attributes of the arguments."""

    part: Part


class Setting(Generic[T]):
    """A setting: its option, else its variable, as its reader reads it.

    ``read`` takes the text, or None, and the source's name for errors; ``type`` reads the text
    while the command line is parsed, instead.
    """

    def __init__(
        self,
        usage: str,
        read: Callable[[Any, str], T] = lambda value, field: value,
        *,
        type: Callable[[str], T] | None = None,  # noqa: A002 - as argparse names it
        variable: str = "",
    ) -> None:
        ((self.name, (self.option,), _, _),) = read_usage(usage)
        self._usage = usage
        self._read = read
        self._variable = variable
        self._argparse = {"type": type} if type else {}

    def add(self, group: argparse._ActionsContainer) -> None:
        """Add the option."""
        add_usage(group, self._usage, **{self.name: self._argparse})

    def __get__(self, settings: Settings, owner: object = None) -> T:
        """Return the value."""
        stated = getattr(settings.args, self.name)
        if not stated and self._variable:
            return self._read(os.environ.get(self._variable) or None, self._variable)
        return self._read(stated, self.option)


class Repeated(Setting[tuple[T, ...]]):
    """A setting that may be repeated; the items of the variable, comma-separated, are added."""

    def __init__(
        self,
        usage: str,
        read: Callable[[Any, str], tuple[T, ...]] = lambda texts, field: tuple(texts),
        *,
        variable: str = "",
    ) -> None:
        super().__init__(usage, read, variable=variable)

    def __get__(self, settings: Settings, owner: object = None) -> tuple[T, ...]:
        """Return the values."""
        items = os.environ.get(self._variable, "").split(",") if self._variable else []
        named = [item.strip() for item in items if item.strip()]
        stated = self._read(getattr(settings.args, self.name), self.option)
        return (*stated, *self._read(named, self._variable)) if named else stated


class Settings:
    """The settings of one call of a command; a subclass declares them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser) -> None:
        """Add the option of every setting, each below its heading."""
        group: argparse._ActionsContainer = parser
        for item in vars(cls).values():
            if isinstance(item, Heading):
                group = parser.add_argument_group(item.title) if item.title else parser
            elif isinstance(item, Shared):
                add_parts(group, [item.part])
            elif isinstance(item, Setting):
                item.add(group)
