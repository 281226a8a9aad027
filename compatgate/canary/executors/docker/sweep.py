"""Removes what a run left on an engine, and nothing else."""

from __future__ import annotations

import time
from typing import Any

from compatgate.canary.executors.docker.names import RUN, of_run
from compatgate.errors import Infrastructure

_PATIENCE_S = 60


def clean(api: Any, run: str) -> int:
    """Remove the containers, volumes and built images that carry the run's label.

    Returns:
        How many there were.

    Raises:
        Infrastructure: something would not go.
    """
    removed: set[str] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while left := _left(api, run):
        for kind, name in left:
            removed.add(name)
            _remove(api, kind, name)
        if time.monotonic() > deadline:
            names = ", ".join(name[:64] for _, name in left)
            raise Infrastructure(f"the engine does not remove {names}")
        if _left(api, run):
            time.sleep(0.2)
    return len(removed)


def runs(api: Any) -> set[str]:
    """Ids of the runs whose label something on the engine carries."""
    labelled = {"label": RUN}
    found = [
        *api.containers(all=True, filters=labelled),
        *(api.volumes(filters=labelled)["Volumes"] or []),
        *api.images(all=True, filters=labelled),
    ]
    return {thing["Labels"][RUN] for thing in found}


def _left(api: Any, run: str) -> list[tuple[str, str]]:
    """Containers first: they hold the others."""
    mine = of_run(run)
    containers = [c["Id"] for c in api.containers(all=True, filters=mine)]
    volumes = [v["Name"] for v in api.volumes(filters=mine)["Volumes"] or []]
    images = [i["Id"] for i in api.images(all=True, filters=mine)]
    return [
        *(("container", name) for name in containers),
        *(("volume", name) for name in volumes),
        *(("image", name) for name in images),
    ]


def _remove(api: Any, kind: str, name: str) -> None:
    from docker.errors import APIError

    try:
        match kind:
            case "container":
                api.remove_container(name, v=True, force=True)
            case "volume":
                api.remove_volume(name, force=True)
            case _:
                api.remove_image(name, force=True)
    except APIError as error:
        # Gone in the meantime, or another removal is at work: the next look tells.
        if error.status_code not in (404, 409):
            raise
