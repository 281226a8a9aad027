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
    """Return the argument vector, with the seed in its place."""
    return [part.replace("{seed}", str(job.seed)) for part in job.workload.command]


def job_environment(job: Job, scratch: str, more: Mapping[str, str]) -> dict[str, str]:
    """Variables of the program; the workload's own win.

    Args:
        job: what is run.
        scratch: the one folder to write to.
        more: of the executor.
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
    """Tell programs what the stated stack needs; nothing where it is not stated."""
    if job.needs_ptx is None:
        return {}
    return {"COMPATGATE_NEEDS_PTX": "yes" if job.needs_ptx else "no"}


def check_single_machine(job: Job, host: str) -> None:
    """For executors whose host is a single machine.

    Raises:
        BadInput: the workload runs on several.
    """
    if job.workload.nodes > 1:
        raise BadInput(
            f"{job.workload.name} runs on {job.workload.nodes} nodes, and {host} is one",
            field="nodes",
            value=job.workload.nodes,
            hint="run it on a slurm or kubernetes host",
        )


_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


def check_name(name: str) -> str:
    """Return the name, where it can be that of a folder and of a job.

    Raises:
        BadInput: it cannot.
    """
    if not _SAFE.fullmatch(name):
        raise BadInput(f"{name!r} is not a name", field="run", value=name)
    return name


_DEADLINE_S = 60.0


def pin_image(reference: str) -> str:
    """``name@sha256:...``; a reference with a digest is left as it is, and not asked for.

    Raises:
        BadInput: it is no reference.
        NotFound: the registry has no such image.
        Infrastructure: it does not answer.
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
            # The registry itself, not a mirror: what a tag means is its to say.
            registry = registries_of(named, transport, options)[-1]
            digest = registry.digest_of(named.locator) or registry.manifest(named.locator).digest
    except Unavailable as error:
        raise Infrastructure(error.problem, field="image", value=reference) from error
    return f"{named.registry}/{named.repository}@{digest}"


T = TypeVar("T")
_ROOM = 256
"""Items that may wait to be fetched; the reading waits for them then."""
_WAIT_S = 0.5


class Pump(Generic[T]):
    """Items that a thread reads, to be fetched with patience.

    Args:
        items: what is read; closed by the thread.
        hang_up: has a read that waits come back, whatever it then says.
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
            Exception: as reading them.
        """
        item = self._queue.get(timeout=timeout)
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Have the thread end."""
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
    """Return the error for what a runtime said; None where that says nothing of image or driver.

    Args:
        what: it said.
        program: that the workload's command calls.
        host: where.
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
    """Return the innermost cause, which says more than what wraps it."""
    seen = {id(error)}
    while (inner := error.__cause__ or error.__context__) and id(inner) not in seen:
        seen.add(id(inner))
        error = inner
    return " ".join(str(error).split()) or type(error).__name__
