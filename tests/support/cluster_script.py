"""What happens to the pod of a job in a served cluster, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from api_objects import Object
from cluster_fake import Cluster


def script(*steps: Callable[[Cluster, str], Any]) -> Callable[[Cluster, Object], None]:
    """What happens to the only pod of a job, step by step."""

    def play(cluster: Cluster, made: Object) -> None:
        pod = cluster.place(made)
        for step in steps:
            time.sleep(0.1)
            step(cluster, pod)

    return play


def runs(cluster: Cluster, pod: str) -> None:
    cluster.run(pod)


def prints(*lines: str) -> Callable[[Cluster, str], None]:
    return lambda cluster, pod: cluster.say(pod, *lines)


def ends(code: int = 0, reason: str | None = None, **more: Any) -> Callable[[Cluster, str], None]:
    return lambda cluster, pod: cluster.end(pod, code, reason, **more)


def fails(reason: str, message: str, **more: Any) -> Callable[[Cluster, str], None]:
    """The pod fails as such, and says why; its container may never have begun."""
    return lambda cluster, pod: cluster.change(
        pod, phase="Failed", reason=reason, message=message, **more
    )


def waits(reason: str, message: str = "") -> Callable[[Cluster, str], None]:
    waiting = {"waiting": {"reason": reason, "message": message}}
    return lambda cluster, pod: cluster.change(pod, phase="Pending", container=waiting)


def disrupted(reason: str, message: str = "") -> dict[str, Any]:
    held = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return {"conditions": [held]}
