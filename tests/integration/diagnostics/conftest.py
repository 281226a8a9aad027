"""CUDA libraries for tests: compiled here, with the functions that the real ones export."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_POINTER = "int {name}(int *v) {{ *v = {value}; return 0; }}"
_SIZE = "unsigned long {name}(void) {{ return {value}; }}"
_PROPERTY = "int {name}(int kind, int *v) {{ int p[] = {{{value}}}; *v = p[kind]; return 0; }}"
FORMS = {
    "cudaRuntimeGetVersion": _POINTER,
    "cuDriverGetVersion": _POINTER,
    "ncclGetVersion": _POINTER,
    "cudnnGetVersion": _SIZE,
    "cudnnGetCudartVersion": _SIZE,
    "cublasGetProperty": _PROPERTY,
    "cublasLtGetProperty": _PROPERTY,
    "getInferLibVersion": "int {name}(void) {{ return {value}; }}",
}
Build = Callable[..., Path]


def need(program: str, package: str) -> str:
    """A program that tests cannot do without; in CI it must be there."""
    found = shutil.which(program)
    if found:
        return found
    reason = f"no {program}: install Debian's {package}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Compile a shared library: ``build("libcudart.so.12", cudaRuntimeGetVersion="12040")``."""
    compiler = need("gcc", "gcc")

    def make(name: str, *, folder: Path | None = None, source: str = "", **functions: str) -> Path:
        path = (folder or tmp_path / "lib") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        code = tmp_path / f"{name}.c"
        lines = [FORMS[f].format(name=f, value=value) for f, value in functions.items()]
        code.write_text("\n".join([source, *lines, ""]))
        soname = ".".join(name.split(".")[:3])
        command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", path, code, "-ldl"]
        subprocess.run(list(map(str, command)), check=True)
        return path

    return make


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python program; it has begun when it printed a line. All are ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def start(
        program: str, *, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not start"
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def loading() -> Callable[..., str]:
    """A program that loads libraries, says so, and waits."""

    def program(*paths: Path) -> str:
        loads = "".join(f"ctypes.CDLL({str(path)!r}); " for path in paths)
        return f"import ctypes, sys; {loads}print('ready', flush=True); sys.stdin.read()"

    return program
