"""Write the files of the Helm chart that come from the program; ``--check`` names stale ones.

They hold what the webhook asks about, from ``matrix/kubernetes/kinds.yaml``, and what a worker may
do in the namespace of its Jobs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml
from worker_objects import make_worker_objects

from compatgate.service.cluster.chart import asked_objects
from compatgate.service.cluster.kinds import load_kinds

FILES = Path(__file__).parents[1] / "deploy" / "helm" / "compatgate" / "files"
_HEAD = "# Written by scripts/chart_files.py (`make docs`); do not edit.\n"


def contents() -> dict[str, str]:
    """Return the name of each file and its text."""
    worker = make_worker_objects("canary")
    (role,) = (one for one in worker if one["kind"] == "Role")
    policies = {
        one["metadata"]["name"]: one["spec"] for one in worker if one["kind"] == "NetworkPolicy"
    }
    found = {
        "asked.yaml": asked_objects(load_kinds()),
        "worker.yaml": {"rules": role["rules"], "networkPolicies": policies},
    }
    return {
        name: _HEAD + yaml.safe_dump(body, sort_keys=False, width=100)
        for name, body in found.items()
    }


def stale() -> list[str]:
    """Return the names of files that differ from what the program says now."""
    return [
        name
        for name, text in contents().items()
        if not (FILES / name).is_file() or (FILES / name).read_text() != text
    ]


def main() -> int:
    """Write the files, or with ``--check`` name stale ones."""
    if "--check" in sys.argv:
        for name in stale():
            print(f"{name} is stale: make docs")
        return 1 if stale() else 0
    for name, text in contents().items():
        (FILES / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
