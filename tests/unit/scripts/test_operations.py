"""The operations that client and commands read are those of the routes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "operations.py"


def test_the_operations_are_those_of_the_routes() -> None:
    """Run `make docs` where this fails."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
