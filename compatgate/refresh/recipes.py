"""How a package index tells of a framework: the section ``index`` of its fact file."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from packaging.version import Version


class BuildRecipe(Struct, frozen=True):
    """How a build is read from the index.

    Attributes:
        name: of the build; ``{cuda}`` is its CUDA as ``132``, ``{major}`` its major.
        accepts: ``minor``, ``major`` or ``range`` of the CUDA that it requires, or a range.
        label: its name is its label.
        package: the distribution that holds it; None: the framework's own.
        packages: all distributions that hold it.
        extras: whose requirements name its CUDA; none: the core ones.
        default: what a plain install gives.
        built_with: the CUDA that it requires is the one that it was built with.
        through: the framework that it pins, whose CUDA is its own.
    """

    name: str
    accepts: str
    label: bool = False
    package: str | None = None
    packages: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    default: bool = False
    built_with: bool = False
    through: str | None = None


class Recipe(Struct, frozen=True):
    """How the releases of a framework are read from the index.

    Attributes:
        releases: distributions whose releases are those of the framework.
        python: the distribution whose wheels tell the Pythons; None: the first of ``releases``.
        parts: numbers that name a release (TensorRT 11.4.0.106 is 11.4.0); 0: all of them.
        pins: frameworks that every build pins.
        extras: of the framework's own metadata, whose requirements are kept.
    """

    releases: tuple[str, ...]
    builds: tuple[BuildRecipe, ...]
    python: str | None = None
    parts: int = 0
    pins: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()

    def title(self, version: Version) -> str:
        """Return the number of a release as facts write it."""
        if self.parts:
            return ".".join(map(str, (*version.release, 0, 0, 0)[: self.parts]))
        return version.public

    @property
    def names(self) -> tuple[str, ...]:
        """Name every distribution that is asked for."""
        builds = (build.package for build in self.builds if build.package)
        return tuple(dict.fromkeys((*self.releases, *builds)))


def recipe_of(document: dict[str, Any]) -> Recipe | None:
    """Read the recipe of a framework; None where its file has none."""
    section = document.get("index")
    if section is None:
        return None
    stated = {"releases": document.get("distributions", [document["component"]]), **section}
    return msgspec.convert(stated, Recipe)
