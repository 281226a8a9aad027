"""The real compiler and its listings, without a GPU; real wheels from the package index.

Downloads are kept in the cache folder of pytest. In CI, what cannot be had is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

_OLDEST = (13, 5)
"""The first toolkit that can concatenate entries."""
_TOOLKIT = "cuda-toolkit[nvcc,cuobjdump,cudart]>=13.5,<14"
_SOURCE = """\
__global__ void {name}(float *p) {{ p[threadIdx.x] = p[threadIdx.x] * {factor}.0f + 1.0f; }}
"""


class Listing(NamedTuple):
    """What cuobjdump lists: ``sm_90a`` or ``sm_90`` for PTX, once for each entry, sorted."""

    sass: list[str]
    ptx: list[str]
    isa: list[str]


class Toolkit:
    """``nvcc`` and its companions, working in a folder of their own."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries = binaries
        self.folder = folder
        self._made: dict[tuple[str, ...], Path] = {}

    def run(self, tool: str, *arguments: object) -> str:
        """Run a tool of the toolkit or of the system; its standard output."""
        path = self.binaries / tool
        command = [str(path) if path.exists() else tool, *map(str, arguments)]
        result = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
        return result.stdout

    def source(self, name: str) -> Path:
        """A translation unit with a kernel of that name."""
        path = self.folder / f"{name}.cu"
        path.write_text(_SOURCE.format(name=name, factor=len(name) + 1))
        return path

    def make(self, suffix: str, *flags: str, sources: tuple[str, ...] = ("kernel",)) -> Path:
        """Compile; the same flags give the same file."""
        key = (suffix, *flags, *sources)
        if key not in self._made:
            out = self.folder / f"made{len(self._made)}{suffix}"
            form = {".so": ["-shared"], ".o": ["-c"], ".cubin": ["-cubin"], ".ptx": ["-ptx"]}
            form |= {".fatbin": ["-fatbin"], ".a": ["-lib"]}
            units = [self.source(name) for name in sources]
            self.run("nvcc", "-Xcompiler", "-fPIC", *form[suffix], *flags, *units, "-o", out)
            self._made[key] = out
        return self._made[key]

    def listing(self, path: Path) -> Listing:
        """Every entry of the file, relocatable ones too, as cuobjdump dumps its headers."""
        text = self.run("cuobjdump", "-all", path)
        sass, ptx, isa = [], [], []
        for block in re.split(r"(?=Fatbin \w+(?: \w+)? code:)", text):
            arch = re.search(r"^\s*arch = sm_(\w+)", block, re.MULTILINE)
            if arch is None:
                continue
            if block.startswith("Fatbin elf"):
                sass.append(f"sm_{arch[1]}")
            elif block.startswith("Fatbin ptx"):
                ptx.append(f"compute_{arch[1]}")
                version = re.search(r"code version = \[(\d+),(\d+)\]", block)
                assert version is not None
                isa.append(f"{version[1]}.{version[2]}")
        return Listing(sorted(sass), sorted(ptx), sorted(isa))

    def names(self, path: Path) -> tuple[set[str], set[str]]:
        """What ``--list-elf`` and ``--list-ptx`` name; they leave the ``f`` of cubins out."""
        text = self.run("cuobjdump", "--list-elf", "--list-ptx", path)
        found = re.findall(r"sm_(\w+)\.(cubin|ptx)$", text, re.MULTILINE)
        return {a for a, kind in found if kind == "cubin"}, {a for a, k in found if k == "ptx"}


@pytest.fixture(scope="session")
def toolkit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Toolkit:
    """nvcc, from the path or from the package index."""
    compiler = shutil.which("nvcc")
    if compiler and shutil.which("cuobjdump") and _release(compiler) >= _OLDEST:
        return Toolkit(Path(compiler).resolve().parent, tmp_path_factory.mktemp("nvcc"))
    folder = request.config.cache.mkdir("cuda-toolkit-13")
    pattern = "lib/python*/site-packages/nvidia/*/bin/nvcc"
    if not list(folder.glob(pattern)):
        venv.create(folder, with_pip=False)
        _pip("--python", str(folder / "bin" / "python"), "install", _TOOLKIT)
    (compiler_path,) = folder.glob(pattern)
    return Toolkit(compiler_path.parent, tmp_path_factory.mktemp("nvcc"))


@pytest.fixture(scope="session")
def wheel(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """A wheel from the package index, downloaded once."""

    def download(requirement: str) -> Path:
        folder = request.config.cache.mkdir("wheels-" + re.sub(r"\W", "-", requirement))
        if not list(folder.glob("*.whl")):
            wanted = ["--no-deps", "--only-binary=:all:", "--dest", str(folder)]
            _pip("download", *wanted, requirement)
        (path,) = folder.glob("*.whl")
        return path

    return download


@pytest.fixture(scope="session")
def pip() -> Callable[..., str]:
    """pip of this interpreter."""
    return _pip


def _release(compiler: str) -> tuple[int, int]:
    text = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"release (\d+)\.(\d+)", text.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    except subprocess.TimeoutExpired:
        _missing(f"pip {' '.join(arguments)} took too long")
    if result.returncode:
        _missing(f"pip {' '.join(arguments)}: {result.stderr.strip()[-500:]}")
    return result.stdout


def _missing(why: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
