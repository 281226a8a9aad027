"""How a job stands, from what the cluster shows of its Job and its pods. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from compatgate.canary.executors.interface import Status
from compatgate.canary.executors.kubernetes.names import INDEX
from compatgate.canary.executors.kubernetes.obstacles import Obstacle, obstacle, start_refused
from compatgate.canary.executors.kubernetes.pod import CONTAINER

_KILLED = 137
_OWN_LIMIT = re.compile(r"EmptyDir volume|ephemeral local storage|local ephemeral storage limit")
"""What the kubelet says when a pod used more of the disk than its own limits allow."""
_NO_ROOM_LEFT = "its image took so long that the pod's time was up before the program's"
_ORDER = ("lost", "timeout", "failed", "waiting", "running", "exited")


class Seen(Struct, frozen=True):
    """How a job stands.

    Attributes:
        obstacle: what keeps it from starting, and is an error once it has lasted.
    """

    status: Status
    obstacle: Obstacle | None = None


def standing(job: dict[str, Any] | None, pods: Sequence[dict[str, Any]], timeout_s: int) -> Seen:
    """How a job stands by what is known of it.

    What befell a node says nothing of the program, so it comes before what the program did on
    others. A job of several nodes runs once all of them do, and has ended once one has failed.

    Args:
        job: its Job; None where that is not known, or not asked for.
        pods: all of it.
        timeout_s: that the program may take.
    """
    seen = [_pod(pod, timeout_s) for pod in pods]
    first = min(seen, key=_rank, default=None)
    wanted = int((job or {}).get("spec", {}).get("completions") or 1)
    if first is None or (len(pods) < wanted and _kind(first.status) in _ORDER[3:]):
        return Seen(_without_pods(job))
    return first


def first_pod(pods: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The pod whose output is the job's: the only one, or the node with the index 0."""
    for pod in pods:
        if (pod["metadata"].get("annotations") or {}).get(INDEX, "0") == "0":
            return pod
    return None


def condition(thing: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """A condition that holds."""
    for each in thing.get("status", {}).get("conditions") or []:
        if each["type"] == kind and each["status"] == "True":
            found: dict[str, Any] = each
            return found
    return None


def _rank(seen: Seen) -> tuple[int, bool]:
    return _ORDER.index(_kind(seen.status)), seen.obstacle is None


def _kind(status: Status) -> str:
    return "failed" if status.state == "exited" and status.exit_code else status.state


def _without_pods(job: dict[str, Any] | None) -> Status:
    if job is None:
        return Status("lost", reason="the cluster does not know the job")
    if failed := condition(job, "Failed"):
        if failed.get("reason") == "DeadlineExceeded":
            return Status("lost", reason="the Job's deadline passed before it was placed")
        return Status("lost", reason=f"its pod was removed ({_said(failed)})")
    if condition(job, "Complete"):
        return Status("lost", reason="its pod was removed before its output was read")
    if job["spec"].get("suspend"):
        return Status("waiting", reason="its queue has not admitted it")
    return Status("waiting", reason="it has no pod yet")


def _pod(pod: dict[str, Any], timeout_s: int) -> Seen:
    status = pod.get("status") or {}
    phase = status.get("phase", "Pending")
    if phase == "Succeeded":
        return Seen(Status("exited", 0))
    if phase == "Failed":
        return _failed(pod, timeout_s)
    if "deletionTimestamp" in pod["metadata"] or status.get("reason") == "NodeLost":
        return Seen(Status("lost", reason=_disruption(pod) or "its pod was removed"))
    if phase == "Pending":
        return _pending(pod)
    return Seen(Status("running"))


def _pending(pod: dict[str, Any]) -> Seen:
    waiting = (_container(pod).get("state") or {}).get("waiting") or {}
    if found := obstacle(waiting.get("reason", ""), _line(waiting.get("message")), _program(pod)):
        return Seen(Status("waiting", reason=found.reason), found)
    for each in pod["status"].get("conditions") or []:
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return Seen(Status("waiting", reason=_said(each)))
    return Seen(Status("waiting", reason=waiting.get("reason", "it is not placed yet")))


def _failed(pod: dict[str, Any], timeout_s: int) -> Seen:
    status = pod["status"]
    reason, message = status.get("reason", ""), _line(status.get("message"))
    ended = (_container(pod).get("state") or {}).get("terminated") or {}
    if reason == "DeadlineExceeded":
        return Seen(_after_deadline(pod, timeout_s))
    if reason == "Evicted" and _OWN_LIMIT.search(message):
        return Seen(Status("exited", ended.get("exitCode") or _KILLED, reason=message))
    if disrupted := _disruption(pod):
        return Seen(Status("lost", reason=disrupted))
    if reason:
        return Seen(Status("lost", reason=f"{reason}: {message}" if message else reason))
    return _by_itself(ended, message, _program(pod))


def _by_itself(ended: dict[str, Any], message: str, program: str) -> Seen:
    match ended.get("reason"):
        case "OOMKilled":
            return Seen(Status("exited", ended["exitCode"], True, "out of memory"))
        case "StartError" | "ContainerCannotRun":
            refused = start_refused(_line(ended.get("message")), program)
            return Seen(Status("lost", reason=refused.reason), refused)
        case "ContainerStatusUnknown" | None:
            why = _line(ended.get("message")) or message or "its end was not seen"
            return Seen(Status("lost", reason=why))
    return Seen(Status("exited", ended["exitCode"]))


def _after_deadline(pod: dict[str, Any], timeout_s: int) -> Status:
    """Whether the program had its time before the pod's was up."""
    state = _container(pod).get("state") or {}
    began = (state.get("terminated") or state.get("running") or {}).get("startedAt")
    if not began or not pod["status"].get("startTime"):
        return Status("lost", reason="its pod did not start within its deadline")
    placed = datetime.fromisoformat(pod["status"]["startTime"])
    late = (datetime.fromisoformat(began) - placed).total_seconds()
    if pod["spec"]["activeDeadlineSeconds"] - late < timeout_s:
        return Status("lost", reason=_NO_ROOM_LEFT)
    return Status("timeout", reason="its pod's deadline passed")


def _disruption(pod: dict[str, Any]) -> str:
    """What was done to the pod: preempted, drained, its node away."""
    found = condition(pod, "DisruptionTarget")
    return _said(found) if found else ""


def _container(pod: dict[str, Any]) -> dict[str, Any]:
    for each in pod.get("status", {}).get("containerStatuses") or []:
        if each["name"] == CONTAINER:
            found: dict[str, Any] = each
            return found
    return {}


def _program(pod: dict[str, Any]) -> str:
    containers = pod["spec"]["containers"]
    command: list[str] = next((c["command"] for c in containers if c["name"] == CONTAINER), [""])
    return command[0]


def _said(found: dict[str, Any]) -> str:
    reason, message = found.get("reason") or "", _line(found.get("message"))
    return f"{reason}: {message}" if reason and message else reason or message


def _line(text: str | None) -> str:
    return " ".join((text or "").split())[:1000]
