"""Help executors with their jobs: command, variables, safe names, image digests, output, errors."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from typing import Generic, TypeVar

from compatgate.canary.executors.interface import Job
from compatgate.discovery.registry.reference import parse_reference
from compatgate.errors import BadInput, CompatgateError, Infrastructure, NotFound, Unavailable


def job_command(job: Job) -> list[str]:
    """Return the argument vector, with the seed filled in."""
    return [part.replace("{seed}", str(job.seed)) for part in job.workload.command]


def job_environment(job: Job, scratch: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the program; the workload's own take precedence.

    Args:
        job: job to run.
        scratch: the only writable folder.
        more: variables of the executor.
    """
    return {
        "HOME": scratch,
        "TMPDIR": scratch,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "COMPATGATE_SEED": str(job.seed),
        **_ptx_environment(job),
        **more,
        **job.workload.environment,
    }


def _ptx_environment(job: Job) -> dict[str, str]:
    """Return the variables that state whether the stack needs PTX; none if that is not stated."""
    if job.needs_ptx is None:
        return {}
    return {"COMPATGATE_NEEDS_PTX": "yes" if job.needs_ptx else "no"}


def check_single_machine(job: Job, host: str) -> None:
    """Check that the job fits on a single machine.

    Raises:
        BadInput: the workload runs on several nodes.
    """
    if job.workload.nodes > 1:
        raise BadInput(
            f"{job.workload.name} runs on {job.workload.nodes} nodes, but {host} is one machine",
            field="nodes",
            value=job.workload.nodes,
            hint="run it on a slurm or kubernetes host",
        )


_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


def check_name(name: str) -> str:
    """Return the name if it is valid for a folder and a job.

    Raises:
        BadInput: it is not valid.
    """
    if not _SAFE.fullmatch(name):
        raise BadInput(f"{name!r} is not a valid name", field="run", value=name)
    return name


_DEADLINE_S = 60.0


def pin_image(reference: str) -> str:
    """Resolve a reference to ``name@sha256:...``; one with a digest is returned unchanged.

    Raises:
        BadInput: the reference is not valid.
        NotFound: the registry does not have the image.
        Infrastructure: the registry does not answer.
    """
    named = parse_reference(reference)
    if named.digest:
        return str(named)
    # The client for registries takes a tenth of a second to import.
    from compatgate.discovery.registry.client import registries_of
    from compatgate.discovery.registry.limits import Deadline, options_from_environment
    from compatgate.discovery.registry.transport import Transport

    options = options_from_environment()
    try:
        with Deadline(_DEADLINE_S) as deadline, Transport(options, deadline) as transport:
            # Ask the registry itself, not a mirror: only the registry decides what a tag means.
            registry = registries_of(named, transport, options)[-1]
            digest = registry.digest_of(named.locator) or registry.manifest(named.locator).digest
    except Unavailable as error:
        raise Infrastructure(error.problem, field="image", value=reference) from error
    return f"{named.registry}/{named.repository}@{digest}"


T = TypeVar("T")
_ROOM = 256
"""Maximum number of items that wait to be fetched; reading pauses at this number."""
_WAIT_S = 0.5


class Pump(Generic[T]):
    """Queue of items that a thread reads, to be fetched with a timeout.

    Args:
        items: iterator to read; the thread closes it.
        hang_up: interrupts a waiting read, whatever the read then raises.
    """

    def __init__(self, items: Generator[T], hang_up: Callable[[], None]) -> None:
        self._items = items
        self._hang_up = hang_up
        self._queue: queue.Queue[T | BaseException | None] = queue.Queue(_ROOM)
        self._closed = False
        threading.Thread(target=self._read, name="compatgate-pump", daemon=True).start()

    def get(self, timeout: float) -> T | None:
        """Return the next item; None at the end.

        Args:
            timeout: seconds.

        Raises:
            queue.Empty: nothing came in that time.
            Exception: an error of the reading thread.
        """
        item = self._queue.get(timeout=timeout)
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Make the thread end."""
        self._closed = True
        with suppress(Exception):
            self._hang_up()
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()

    def _read(self) -> None:
        last: BaseException | None = None
        try:
            with closing(self._items):
                for item in self._items:
                    self._put(item)
                    if self._closed:
                        break
        except Exception as error:
            last = error
        self._put(last)

    def _put(self, item: T | BaseException | None) -> None:
        while not self._closed:
            with suppress(queue.Full):
                self._queue.put(item, timeout=_WAIT_S)
                return


_NOT_IN_IMAGE = re.compile(
    r"executable file not found|exec format error|"
    r"(?:exec|stat) \S+: (?:no such file or directory|permission denied)"
)


def start_error(what: str, program: str, host: str) -> CompatgateError | None:
    """Return the error for a runtime's message; None if it names neither image nor driver.

    Args:
        what: message of the runtime.
        program: program that the workload's command calls.
        host: name of the host.
    """
    if match := re.search(r"requirement error: (.*)", what):
        problem = f"NVIDIA's container runtime refuses the image on {host}: {match[1]}"
        hint = "the image asks for a newer driver or another GPU; see 'compatgate require'"
        return CompatgateError(problem, field="image", hint=hint)
    if _NOT_IN_IMAGE.search(what):
        problem = f"the image cannot run {program!r}, which the workload's command calls: {what}"
        return NotFound(problem, field="command", value=program)
    return None


def innermost_cause(error: BaseException) -> str:
    """Return the message of the innermost cause, which is more specific than its wrappers."""
    seen = {id(error)}
    while (inner := error.__cause__ or error.__context__) and id(inner) not in seen:
        seen.add(id(inner))
        error = inner
    return " ".join(str(error).split()) or type(error).__name__
