"""A target of two pools, and a shell in which the page's examples are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import prepared
import pytest
from cuda_toolkit import toolkit

__all__ = ["toolkit"]
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "build-hints.md").read_text()
MATRIX = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod}
spec:
  pools:
    - {name: a100, gpu: A100-SXM4-80GB, driver: 535.183.01, os: linux}
    - {name: l4, gpu: L4, driver: 550.54.15, os: linux}
"""


@pytest.fixture(scope="session")
def page() -> str:
    """docs/how-to/build-hints.md."""
    return PAGE


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that knows the target ``prod``."""
    folder = tmp_path_factory.mktemp("gate")
    (folder / "matrix.yaml").write_text(MATRIX)
    words = ["matrix", "import", str(folder / "matrix.yaml"), "--database", str(folder / "gate.db")]
    subprocess.run(
        [sys.executable, "-m", "compatgate", *words], check=True, cwd=ROOT, capture_output=True
    )
    return folder / "gate.db"


@pytest.fixture
def shell(database: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run an example of the page, or a script, in a folder of its own.

    ``programs`` are scripts to find on the path, by name; ``variables`` are of the environment.
    """
    folder = tmp_path / "bin"
    folder.mkdir()

    def program(name: str, text: str) -> None:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    shutil.copy2(prepared.program(), folder)

    def run(
        example: str, programs: dict[str, str] | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        for name, text in (programs or {}).items():
            program(name, text)
        blocks = dict(re.findall(r"```sh title=\"(\w+)\"\n(.*?)```", PAGE, re.DOTALL))
        kept = {k: os.environ[k] for k in ("HOME", "LANG", "TMPDIR") if k in os.environ}
        environment = {
            **kept,
            **prepared.of_interpreter(),
            "PATH": f"{folder}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "COMPATGATE_DATABASE": str(database),
            **variables,
        }
        return subprocess.run(
            ["sh", "-e", "-c", blocks.get(example, example)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
