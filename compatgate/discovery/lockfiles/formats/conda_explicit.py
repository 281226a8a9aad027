"""Explicit lists: ``@EXPLICIT`` and one URL a line, as ``conda list --explicit`` writes them.

Source: conda's "Identical conda environments", and conda-lock's explicit rendering.
"""

from __future__ import annotations

import re

from compatgate.discovery.lockfiles import conda
from compatgate.discovery.lockfiles.formats.requirements import RequirementsTxt
from compatgate.discovery.lockfiles.interface import Contents, LockFile, Package, Selection
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.text import MOST_PACKAGES, refuse_variable
from compatgate.errors import BadInput, Inconclusive

_MARK = re.compile(r"^@EXPLICIT\s*$", re.MULTILINE)
_PIP = "# pip "


class CondaExplicit:
    """conda's explicit specification."""

    name = "conda explicit list"

    def recognises(self, file: LockFile) -> bool:
        """The line ``@EXPLICIT``."""
        return bool(_MARK.search(file.text))

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> Contents:
        """Every package, if they are for the platform."""
        packages: list[Package] = []
        subdirs: set[str] = set()
        pip: list[str] = []
        for number, raw in enumerate(file.text.splitlines(), 1):
            line = refuse_variable(raw.strip(), f"{file.name}:{number}")
            is_pip = line.startswith(_PIP)
            pip.append(line.removeprefix(_PIP).partition(" --hash")[0] if is_pip else "")
            if not line or line.startswith("#") or line == "@EXPLICIT":
                continue
            package = conda.from_url(line, f"{file.name}:{number}")
            if package is None or not conda.subdir(line):
                hint = "after @EXPLICIT each line is the URL of a package"
                raise BadInput("is not a package's URL", field=f"{file.name}:{number}", hint=hint)
            packages.append(package)
            subdirs.add(conda.subdir(line))
            if len(packages) > MOST_PACKAGES:
                raise BadInput(f"has more than {MOST_PACKAGES} packages", field=file.name)
        subdirs.discard("noarch")
        if subdirs and platform.conda not in subdirs:
            problem = f"is for {', '.join(sorted(subdirs))}, the target is {platform.conda}"
            raise Inconclusive(problem, field=file.name, hint=f"list one for {platform.conda}")
        added = RequirementsTxt().read(LockFile(file.name, "\n".join(pip)), platform, selection)
        return Contents((*packages, *added.packages))
