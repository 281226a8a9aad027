"""A conda channel of packages without content, for a solver."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def package(name: str, version: str, build: str, *depends: str, number: int = 0) -> dict[str, Any]:
    """A package for linux-64."""
    whole = f"{name}-{version}-{build}"
    return {
        "name": name,
        "version": version,
        "build": build,
        "build_number": number,
        "depends": list(depends),
        "subdir": "linux-64",
        "md5": hashlib.md5(whole.encode(), usedforsecurity=False).hexdigest(),
        "sha256": hashlib.sha256(whole.encode()).hexdigest(),
        "size": 1,
    }


def write_channel(folder: Path, packages: Iterable[dict[str, Any]]) -> str:
    """Write a channel, and return its URL."""
    named = {f"{one['name']}-{one['version']}-{one['build']}.conda": one for one in packages}
    for subdir, found in (("linux-64", named), ("noarch", {})):
        (folder / subdir).mkdir(parents=True)
        document = {
            "info": {"subdir": subdir},
            "packages": {},
            "packages.conda": found,
            "repodata_version": 1,
        }
        (folder / subdir / "repodata.json").write_text(json.dumps(document))
    return folder.as_uri()
