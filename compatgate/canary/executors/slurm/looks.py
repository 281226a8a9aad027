"""What was seen of each job: the controller is asked seldom, and forgiven while it restarts."""

from __future__ import annotations

import logging
import time

from msgspec.structs import replace

from compatgate.canary.executors.interface import Handle, Status
from compatgate.canary.executors.slurm.commands import Commands
from compatgate.canary.executors.slurm.folder import Work, last_words
from compatgate.canary.executors.slurm.states import Stage, refusal, standing
from compatgate.errors import Infrastructure

_PATIENCE_S = 300.0
"""How long a controller may be away; jobs run on without it."""
_SETTLING_S = 0.5
_log = logging.getLogger(__name__)


class _Seen:
    def __init__(self, run: str) -> None:
        self.run = run
        self.status = Status("waiting", reason="Slurm: handed in")
        self.stage = Stage()
        self.asked = 0.0
        self.answered = time.monotonic()
        self.killed = False


class Looks:
    """Looks at jobs.

    Args:
        commands: of the cluster.
        work: its work directory.
        poll: seconds between two questions to the controller about a job of which nothing is new.
    """

    def __init__(self, commands: Commands, work: Work, poll: float) -> None:
        self._commands = commands
        self._work = work
        self._poll = poll
        self._jobs: dict[str, _Seen] = {}

    def status(self, handle: Handle) -> Status:
        """How a job stands.

        Raises:
            CompatgateError: it will never run.
            Infrastructure: the controller has not answered for long.
        """
        seen = self._jobs.setdefault(handle.id, _Seen(handle.run))
        stage = self._work.stage(handle)
        now = time.monotonic()
        # A program that has ended is settled by Slurm within moments.
        poll = self._poll if stage.exit_code is None else min(self._poll, _SETTLING_S)
        if _has_ended(seen.status) or (stage == seen.stage and now - seen.asked < poll):
            return seen.status
        seen.asked, seen.stage = now, stage
        try:
            record = self._commands.look(handle.id, handle.run)
        except Infrastructure as error:
            if now - seen.answered > _PATIENCE_S:
                raise
            seen.asked = time.monotonic()
            _log.warning("job %s: %s", handle.id, error.detail)
            return seen.status
        seen.answered = time.monotonic()
        # The node may have written in the meantime, and Slurm's word is the later one.
        stage = self._work.stage(handle)
        log = self._work.log(handle)
        if refused := refusal(record, stage, last_words(log)):
            raise refused
        status = standing(record, stage, log, killed_here=seen.killed)
        if status.state == "lost" and not stage.started and log:
            status = replace(status, reason=f"{status.reason}: {last_words(log)}")
        seen.status = status
        return seen.status

    def ended(self, handle: Handle) -> bool:
        """Whether the job is known to have ended."""
        seen = self._jobs.get(handle.id)
        return seen is not None and _has_ended(seen.status)

    def killed(self, handle: Handle) -> None:
        """Remember that the end of this job is this worker's doing."""
        seen = self._jobs.setdefault(handle.id, _Seen(handle.run))
        seen.killed, seen.asked = True, 0.0

    def forget(self, run: str) -> None:
        """Let go of what is known of a run's jobs."""
        for number, seen in list(self._jobs.items()):
            if seen.run == run:
                del self._jobs[number]


def _has_ended(status: Status) -> bool:
    return status.state not in ("waiting", "running")
