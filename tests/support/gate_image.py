"""The image of deploy/compose/Dockerfile, where no base image can be had.

The final stage of the Dockerfile is built by the engine as it is. Its base is the interpreter that
runs the tests, and its first stage an environment with the installed dependencies and the program,
laid out as the wheel lays it out.
"""

from __future__ import annotations

import io
import re
import sys
import sysconfig
import tarfile
import tempfile
from importlib.metadata import distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from engines import PYTHON, linked_files, place_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compatgate.catalog.library import compile_all

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "compose" / "Dockerfile"
BASE = "compatgate-test/base:1"
EXTRAS: frozenset[str] = frozenset()
"""Extras that the stand-in needs: none, as the test runs on SQLite."""
_SITE = f"opt/compatgate/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
_PROGRAM = """\
#!/opt/compatgate/bin/python
import sys
from compatgate.cli.main import main
sys.exit(main())
"""
_PASSWD = "compatgate:x:10001:10001::/var/lib/compatgate:/usr/sbin/nologin\n"


def build(api: Any, tag: str) -> None:
    """Build the image in an engine that has `engines.PYTHON`."""
    text = DOCKERFILE.read_text()
    final = text[text.rindex("FROM ") :]
    environment, libraries = _environment()
    _build(api, BASE, f"FROM {PYTHON}\nADD layer.tar /\n", libraries)
    _build(api, tag, f"ARG PYTHON\nFROM {BASE} AS build\nADD layer.tar /\n{final}", environment)


def _build(api: Any, tag: str, dockerfile: str, layer: bytes) -> None:
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        _add(tar, "Dockerfile", dockerfile.encode())
        _add(tar, "layer.tar", layer)
    context.seek(0)
    steps = list(api.build(fileobj=context, custom_context=True, tag=tag, rm=True, decode=True,
                           buildargs={"PYTHON": BASE}))  # fmt: skip
    assert "error" not in steps[-1], steps[-1]


def final_stage() -> dict[str, str]:
    """The instructions of the final stage, by their first word; the last of each counts."""
    text = DOCKERFILE.read_text()
    return dict(re.findall(r"^([A-Z]+) (.+)$", text[text.rindex("FROM ") :], re.MULTILINE))


def _environment() -> tuple[bytes, bytes]:
    """Make the layer of the environment, and that of the libraries which its modules link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, "opt/compatgate/pyvenv.cfg", b"home = /usr/local/bin\n")
        _add(tar, "opt/compatgate/bin/compatgate", _PROGRAM.encode(), mode=0o755)
        link = tarfile.TarInfo("opt/compatgate/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/local/bin/python3"
        tar.addfile(link)
        modules = _add_packages(tar)
        tar.add(ROOT / "compatgate", f"{_SITE}/compatgate", filter=_plain)
        for name in ("matrix", "canary", "migrations"):
            tar.add(ROOT / name, f"{_SITE}/compatgate/_data/{name}", filter=_plain)
        with tempfile.TemporaryDirectory() as folder:
            compile_all(folder)
            tar.add(folder, f"{_SITE}/compatgate/_data/catalog", filter=_plain)
        _add(tar, "etc/passwd", _PASSWD.encode())
        state = tarfile.TarInfo("state")
        state.type, state.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(state)
    return buffer.getvalue(), _libraries(modules)


def _add_packages(tar: tarfile.TarFile) -> list[Path]:
    """Add the dependencies; return their compiled modules."""
    site = Path(sysconfig.get_paths()["platlib"])
    modules: list[Path] = []
    for name in sorted(_dependencies()):
        for file in distribution(name).files or ():
            path = site / file
            if ".." in file.parts or "__pycache__" in file.parts or not path.is_file():
                continue
            tar.add(path, f"{_SITE}/{file}", filter=_plain)
            if ".so" in path.name:
                modules.append(path)
            if path.suffix == ".py" and (code := Path(cache_from_source(path))).is_file():
                tar.add(code, f"{_SITE}/{code.relative_to(site)}", filter=_plain)
    return modules


def _libraries(modules: list[Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(linked_files(modules)):
            if "site-packages" not in path and "/ld-linux" not in path:
                tar.add(Path(path).resolve(), place_of(path), filter=_plain)
    return buffer.getvalue()


def _dependencies() -> set[str]:
    """Names of all distributions that the program needs with `EXTRAS`."""
    found: set[str] = set()
    waiting = [("compatgate", EXTRAS)]
    while waiting:
        name, extras = waiting.pop()
        for text in distribution(name).requires or ():
            wanted = Requirement(text)
            marks = [{"extra": extra} for extra in (extras or {""})]
            needed = wanted.marker is None or any(wanted.marker.evaluate(m) for m in marks)
            if needed and (named := canonicalize_name(wanted.name)) not in found:
                found.add(named)
                waiting.append((wanted.name, frozenset(wanted.extras)))
    return found


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode |= 0o555 if member.isdir() else 0o444
    return member


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    tar.addfile(member, io.BytesIO(data))
