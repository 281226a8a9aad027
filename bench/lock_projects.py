"""Lock five projects for one target with the real uv and the package index; needs the network.

Prints for each whether `compatgate lock` wrote a lock, and whether `compatgate check --lock` passes
it. No part of `make bench`: the answers change with the package index.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

POOL = "driver=580.95.05,gpu=H100-SXM5-80GB"
PROJECTS = {
    "train/requirements.in": "torch>=2.6\ntorchvision\ntransformers>=4.50\naccelerate\ndatasets\n",
    "serve/pyproject.toml": """[project]
name = "serve"
version = "0.1"
requires-python = ">=3.11,<3.13"
dependencies = ["vllm>=0.11", "fastapi", "prometheus-client"]
""",
    "keras/requirements.in": "tensorflow[and-cuda]>=2.16\nkeras\npandas\n",
    "fit/pyproject.toml": """[project]
name = "fit"
version = "0.1"
requires-python = ">=3.12"
dependencies = ["jax[cuda12]>=0.6", "flax", "optax"]
""",
    "attention/requirements.in": "torch>=2.6\nflash-attn>=2.8\neinops\n",
}


def main() -> None:
    """Print a line for each project, and the last lines of what failed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PROJECTS.items():
            source = Path(folder) / name
            source.parent.mkdir(exist_ok=True)
            source.write_text(text)
            made = _run("lock", "--in", str(source), "--read-wheels")
            lock = str(source.with_name("pylock.toml"))
            checked = _run("check", "--lock", lock, "--read-wheels").returncode
            print(f"{name}: lock {made.returncode}, check {checked}")
            if made.returncode:
                print("\n".join(f"  {line}" for line in made.stderr.splitlines()[-8:]))


def _run(command: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "compatgate", command, "--pool", POOL, *options]
    return subprocess.run(program, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
