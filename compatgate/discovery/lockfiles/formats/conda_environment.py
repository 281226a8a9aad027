"""environment.yml: what a conda environment is asked to hold, and what pip adds to it.

Source: conda's "Creating an environment file manually", and its match specifications
(https://docs.conda.io/projects/conda-build/en/stable/resources/package-spec.html).
"""

from __future__ import annotations

import re
from typing import Any

from compatgate.discovery.lockfiles import conda
from compatgate.discovery.lockfiles.formats.requirements import RequirementsTxt
from compatgate.discovery.lockfiles.interface import Contents, LockFile, Package, Selection
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.text import MOST_PACKAGES, read_yaml, refuse_variable
from compatgate.errors import BadInput

_NAME = re.compile(r".*environment.*\.ya?ml|conda.*\.ya?ml", re.IGNORECASE)
_SHAPE = re.compile(r"^dependencies:\s*$", re.MULTILINE)


class CondaEnvironment:
    """A conda environment file, also as ``conda env export`` writes it."""

    name = "environment.yml"

    def recognises(self, file: LockFile) -> bool:
        """A YAML file with dependencies."""
        if not file.may_end(".yml", ".yaml"):
            return False
        return bool(_SHAPE.search(file.text) or _NAME.fullmatch(file.name))

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> Contents:
        """conda's and pip's packages."""
        document = read_yaml(file.text, file.name)
        stated = document.get("dependencies") if isinstance(document, dict) else None
        if not isinstance(stated, list):
            hint = "a conda environment has a list of dependencies"
            raise BadInput("is not a conda environment", field=file.name, hint=hint)
        if len(stated) > MOST_PACKAGES:
            raise BadInput(f"has more than {MOST_PACKAGES} dependencies", field=file.name)
        packages: list[Package] = []
        pip: list[str] = []
        lines = _lines(file.text)
        for item in stated:
            if isinstance(item, dict):
                pip += _pip(item, file)
            else:
                packages.append(_conda(item, file, lines))
        if not pip:
            return Contents(tuple(packages))
        inner = LockFile(f"{file.name} (pip)", "\n".join(pip), file.beside)
        added = RequirementsTxt().read(inner, platform, selection)
        packages += [_at(package, file) for package in added.packages]
        return Contents(tuple(packages), added.indexes, added.open)


def _conda(item: Any, file: LockFile, lines: dict[str, int]) -> Package:
    if not isinstance(item, str):
        raise BadInput("a dependency must be text", field=file.name, value=item)
    where = f"{file.name}:{lines[item]}" if item in lines else file.name
    package = conda.from_spec(refuse_variable(item, where), where)
    if package is None:
        raise BadInput(f"{item[:100]!r} is not a conda dependency", field=where)
    return package


def _pip(item: dict[str, Any], file: LockFile) -> list[str]:
    lines = item.get("pip")
    if set(item) != {"pip"} or not isinstance(lines, list):
        if "pip" in item and not lines:
            return []
        raise BadInput("only pip may have dependencies of its own", field=file.name, value=item)
    if not all(isinstance(line, str) for line in lines):
        raise BadInput("pip's dependencies must be text", field=file.name)
    return [line.replace("\n", " ") for line in lines]


def _at(package: Package, file: LockFile) -> Package:
    return Package(
        package.name,
        f"{file.name}: pip {package.name}",
        version=package.version,
        specifier=package.specifier,
        sources=package.sources,
        when=package.when,
    )


def _lines(text: str) -> dict[str, int]:
    """The line of each item of a list, found again in the text."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        item = line.split(" #")[0].strip()
        if item.startswith("-"):
            found.setdefault(item[1:].strip().strip("\"'"), number)
    return found
