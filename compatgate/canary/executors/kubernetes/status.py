"""Read the status of a job from its Job and its pods in the cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.executors import Status, explain_start_error
from compatgate.canary.executors.kubernetes.objects import CONTAINER, FIRST, INDEX
from compatgate.errors import BadInput, CompatgateError, InfrastructureError, NotFound

_KILLED = 137
_OWN_LIMIT = re.compile(r"EmptyDir volume|ephemeral local storage|local ephemeral storage limit")
"""Messages of the kubelet for a pod that exceeded its own disk limits."""
_LATE_START_REASON = "pulling its image used up the pod's time before the program's time was up"
_KIND_ORDER = ("lost", "timeout", "failed", "waiting", "running", "exited")


class Obstacle(Struct, frozen=True):
    """Temporary reason why a job does not start, and the error to raise after ``grace_s`` of it."""

    reason: str
    error: CompatgateError
    grace_s: float = 0.0
    telling: bool = True


class JobStatus(Struct, frozen=True):
    """Status of a job, and the obstacle to its start, which becomes an error after a while."""

    status: Status
    obstacle: Obstacle | None = None


def read_job_status(
    job: dict[str, Any] | None,
    pods: Sequence[dict[str, Any]],
    timeout_s: int,
    container: str,
) -> JobStatus:
    """Return the status of a job from the known objects.

    A node's failure says nothing about the program, so it takes precedence over the program's
    result on other nodes. A job of several nodes runs once all of them do, and has ended once one
    has failed. The Job is None where it is not known, or not asked for.
    """
    read = _first_block_status if container == FIRST else _pod_status
    first = min(
        (read(pod, timeout_s) for pod in pods),
        key=lambda one: (_KIND_ORDER.index(_kind(one.status)), one.obstacle is None),
        default=None,
    )
    wanted = int((job or {}).get("spec", {}).get("completions") or 1)
    if first is None or (len(pods) < wanted and _kind(first.status) in _KIND_ORDER[3:]):
        return JobStatus(_status_without_pods(job))
    return first


def find_first_pod(pods: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the pod whose output is the job's: the only one, or the node with the index 0."""
    first = (p for p in pods if (p["metadata"].get("annotations") or {}).get(INDEX, "0") == "0")
    return next(first, None)


def find_condition(thing: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Return a condition of an object if it is true."""
    conditions: list[dict[str, Any]] = thing.get("status", {}).get("conditions") or []
    true = (one for one in conditions if one["type"] == kind and one["status"] == "True")
    return next(true, None)


def _kind(status: Status) -> str:
    return "failed" if status.state == "exited" and status.exit_code else status.state


def _status_without_pods(job: dict[str, Any] | None) -> Status:
    if job is None:
        return Status("lost", reason="the cluster does not know the job")
    if failed := find_condition(job, "Failed"):
        if failed.get("reason") == "DeadlineExceeded":
            return Status("lost", reason="the Job's deadline passed before it was placed")
        return Status("lost", reason=f"its pod was removed ({_condition_text(failed)})")
    if find_condition(job, "Complete"):
        return Status("lost", reason="its pod was removed before its output was read")
    if job["spec"].get("suspend"):
        return Status("waiting", reason="its queue has not admitted the job")
    return Status("waiting", reason="the job has no pod yet")


def _pod_status(pod: dict[str, Any], timeout_s: int) -> JobStatus:
    status = pod.get("status") or {}
    phase = status.get("phase", "Pending")
    if phase == "Succeeded":
        return JobStatus(Status("exited", 0))
    if phase == "Failed":
        return _failed_status(pod, timeout_s)
    if "deletionTimestamp" in pod["metadata"] or status.get("reason") == "NodeLost":
        return JobStatus(Status("lost", reason=_disruption_text(pod) or "its pod was removed"))
    if phase == "Pending":
        return _pending_status(pod)
    return JobStatus(Status("running"))


def _first_block_status(pod: dict[str, Any], timeout_s: int) -> JobStatus:
    """Return the status of the init container, which runs while its pod is pending."""
    status = pod.get("status") or {}
    listed = status.get("initContainerStatuses") or []
    state: dict[str, Any] = next((each["state"] for each in listed if each["name"] == FIRST), {})
    ended = state.get("terminated")
    if disrupted := _disruption_text(pod):
        return JobStatus(Status("lost", reason=disrupted))
    if status.get("phase") == "Failed" and status.get("reason"):
        return _failed_status(pod, timeout_s)
    if ended:
        return _by_itself(ended, _first_line(ended.get("message")), _program(pod))
    if "deletionTimestamp" in pod["metadata"] or status.get("reason") == "NodeLost":
        return JobStatus(Status("lost", reason="its pod was removed"))
    if "running" in state:
        return JobStatus(Status("running"))
    return _pending_status(pod, state)


def _pending_status(pod: dict[str, Any], state: dict[str, Any] | None = None) -> JobStatus:
    state = (_container(pod).get("state") or {}) if state is None else state
    waiting = state.get("waiting") or {}
    if result := find_obstacle(
        waiting.get("reason", ""), _first_line(waiting.get("message")), _program(pod)
    ):
        return JobStatus(Status("waiting", reason=result.reason), result)
    for each in pod["status"].get("conditions") or []:
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return JobStatus(Status("waiting", reason=_condition_text(each)))
    return JobStatus(
        Status("waiting", reason=waiting.get("reason", "the pod is not scheduled yet"))
    )


def _failed_status(pod: dict[str, Any], timeout_s: int) -> JobStatus:
    status = pod["status"]
    reason, message = status.get("reason", ""), _first_line(status.get("message"))
    ended = (_container(pod).get("state") or {}).get("terminated") or {}
    if reason == "DeadlineExceeded":
        return JobStatus(_deadline_status(pod, timeout_s))
    if reason == "Evicted" and _OWN_LIMIT.search(message):
        return JobStatus(Status("exited", ended.get("exitCode") or _KILLED, reason=message))
    if disrupted := _disruption_text(pod):
        return JobStatus(Status("lost", reason=disrupted))
    if reason:
        return JobStatus(Status("lost", reason=f"{reason}: {message}" if message else reason))
    return _by_itself(ended, message, _program(pod))


def _by_itself(ended: dict[str, Any], message: str, program: str) -> JobStatus:
    match ended.get("reason"):
        case "OOMKilled":
            return JobStatus(Status("exited", ended["exitCode"], True, "out of memory"))
        case "StartError" | "ContainerCannotRun":
            refused = make_start_obstacle(_first_line(ended.get("message")), program)
            return JobStatus(Status("lost", reason=refused.reason), refused)
        case "ContainerStatusUnknown" | None:
            why = _first_line(ended.get("message")) or message or "its end was not observed"
            return JobStatus(Status("lost", reason=why))
    return JobStatus(Status("exited", ended["exitCode"]))


def _deadline_status(pod: dict[str, Any], timeout_s: int) -> Status:
    """Return ``timeout`` if the program had its whole time limit; ``lost`` otherwise."""
    state = _container(pod).get("state") or {}
    began = (state.get("terminated") or state.get("running") or {}).get("startedAt")
    if not began or not pod["status"].get("startTime"):
        return Status("lost", reason="its pod did not start within its deadline")
    placed = datetime.fromisoformat(pod["status"]["startTime"])
    late = (datetime.fromisoformat(began) - placed).total_seconds()
    if pod["spec"]["activeDeadlineSeconds"] - late < timeout_s:
        return Status("lost", reason=_LATE_START_REASON)
    return Status("timeout", reason="its pod's deadline passed")


def _disruption_text(pod: dict[str, Any]) -> str:
    """Return why the pod was disrupted: preempted, drained, its node away."""
    return _condition_text(find_condition(pod, "DisruptionTarget") or {})


def _container(pod: dict[str, Any]) -> dict[str, Any]:
    each: list[dict[str, Any]] = pod.get("status", {}).get("containerStatuses") or []
    return next((one for one in each if one["name"] == CONTAINER), {})


def _program(pod: dict[str, Any]) -> str:
    containers = pod["spec"]["containers"]
    command: list[str] = next((c["command"] for c in containers if c["name"] == CONTAINER), [""])
    return command[0]


def _condition_text(found: dict[str, Any]) -> str:
    reason, message = found.get("reason") or "", _first_line(found.get("message"))
    return f"{reason}: {message}" if reason and message else reason or message


def _first_line(text: str | None) -> str:
    return " ".join((text or "").split())[:1000]


PULL_GRACE_S = 120.0
"""Grace period of image pulls: a registry may be away briefly, a pull secret may come late."""
_CONFIG_GRACE_S = 30.0
_NO_PULL = (
    "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "ErrImageNeverPull",
    "RegistryUnavailable",
)  # fmt: skip
_NO_START = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_TEMPORARY_ERROR = re.compile(
    r"i/o timeout|dial tcp|TLS handshake|connection re(?:fused|set)|deadline exceeded|"
    r"toomanyrequests|Too Many Requests|server error|status(?: code)?:? 5\d\d|unexpected EOF|"
    r"RegistryUnavailable|no space left"
)
_BARE_BACKOFF = re.compile(r'(?:Back-off pulling image "[^"]*")?')
"""The whole message of older clusters between two attempts."""


def find_obstacle(reason: str, message: str, program: str) -> Obstacle | None:
    """Return the obstacle of a waiting container; None for an ordinary wait."""
    text = f"{reason}: {message}" if message else reason
    if reason == "InvalidImageName":
        return Obstacle(
            text, BadInput(f"the cluster cannot read the image reference: {text}", field="image")
        )
    if reason in _NO_PULL:
        passing = _TEMPORARY_ERROR.search(text)
        hint = "" if passing else "check the name; a private image needs image_pull_secrets"
        kind = InfrastructureError if passing else NotFound
        error = kind(f"the cluster cannot pull the image: {text}", field="image", hint=hint)
        return Obstacle(text, error, PULL_GRACE_S, not _BARE_BACKOFF.fullmatch(message))
    if reason in _NO_START:
        return replace(make_start_obstacle(message or reason, program), grace_s=_CONFIG_GRACE_S)
    return None


def make_start_obstacle(message: str, program: str) -> Obstacle:
    """Return the obstacle for a container that the runtime does not start."""
    error = explain_start_error(message, program, "the cluster") or CompatgateError(
        f"the cluster cannot start the container: {message}", field="host"
    )
    return Obstacle(message, error)
