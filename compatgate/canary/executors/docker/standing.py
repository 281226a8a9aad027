"""How a container stands: whether it ended by itself, for want of memory, or by another hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from compatgate.canary.executors.interface import Status

_REMEMBERED = 256
"""Events that an engine remembers; it forgets all when it restarts (moby, daemon/events)."""
_KILLED = (137, 143, 255)
_RESTARTED = "the engine was restarted, and the container ended with it"
_STOPPED = "the container was stopped on its host: by hand, or with the engine"


def status(api: Any, container: str, *, killed_here: bool = False) -> Status:
    """How a container stands now.

    A container that was stopped because its engine was looks like one that was killed, and says
    nothing about the program. The engine's memory tells: it knows of stopping it, and an engine
    that knows of the start has not been restarted since.

    Args:
        api: the engine's client.
        container: its id.
        killed_here: this worker killed it.
    """
    from docker.errors import NotFound

    try:
        state = api.inspect_container(container)["State"]
    except NotFound:
        return Status("lost", reason="the engine does not know the container")
    match state["Status"]:
        case "created":
            return Status("waiting")
        case "running" | "paused" | "restarting":
            return Status("running")
    exit_code = int(state["ExitCode"])
    if killed_here:
        return Status("exited", exit_code, reason="killed")
    seen = _events(api)
    own = {e["Action"] for e in seen if (e.get("Actor") or {}).get("ID") == container}
    if state["OOMKilled"] or "oom" in own:
        return Status("exited", exit_code, oom_killed=True, reason="out of memory")
    killed = exit_code in _KILLED
    if "start" not in own and (killed or len(seen) < _REMEMBERED):
        return Status("lost", reason=_RESTARTED)
    if "kill" in own and killed:
        return Status("lost", reason=_STOPPED)
    return Status("exited", exit_code)


def _events(api: Any) -> list[dict[str, Any]]:
    """Everything that the engine remembers, up to now on its own clock: it waits for no more."""
    whole, _, fraction = str(api.info()["SystemTime"]).partition(".")
    seconds = int(datetime.fromisoformat(whole.rstrip("Z")).replace(tzinfo=UTC).timestamp())
    nanoseconds = fraction.rstrip("Z").ljust(9, "0")[:9]
    until = f"{seconds}.{nanoseconds}"
    return list(api.events(since=1, until=until, decode=True))
