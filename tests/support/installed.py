"""Distributions as installers leave them: metadata, lists and files, by path."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

SITE = "usr/local/lib/python3.12/site-packages"


def install(
    name: str,
    version: str,
    files: Mapping[str, bytes] | None = None,
    *,
    requires: Sequence[str] = (),
    tag: str = "cp312-cp312-linux_x86_64",
    record: bool = True,
    installer: str = "pip",
    editable: str = "",
    site: str = SITE,
) -> dict[str, bytes]:
    """The files of a distribution that pip installed, by path from the root."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    made = {
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", *lines, "", "Text"]).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
        f"{info}/INSTALLER": f"{installer}\n".encode(),
        **(files or {}),
    }
    if editable:
        url = {"url": f"file://{editable}", "dir_info": {"editable": True}}
        made[f"{info}/direct_url.json"] = json.dumps(url).encode()
    if record:
        made[f"{info}/RECORD"] = "\n".join(f'"{path}",sha256=x,1' for path in made).encode()
    return {f"{site}/{path}": data for path, data in made.items()}


def install_conda(
    name: str,
    version: str,
    files: Mapping[str, bytes],
    *,
    build: str = "h1_0",
    prefix: str = "opt/env",
) -> dict[str, bytes]:
    """The files of a package that conda installed, by path from the root."""
    build = "h1_0"
    record = {"name": name, "version": version, "build": build, "files": list(files)}
    meta = f"{prefix}/conda-meta/{name}-{version}-{build}.json"
    placed = {f"{prefix}/{path}": data for path, data in files.items()}
    return {**placed, meta: json.dumps(record).encode()}


def unpack(root: Path, *parts: Mapping[str, bytes]) -> Path:
    """Write files below a folder."""
    for files in parts:
        for path, data in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
    return root
