"""Errors of the engine in our words: what another attempt may mend, and what it will not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compatgate.canary.executors.causes import innermost
from compatgate.canary.executors.docker.connect import Engine
from compatgate.canary.executors.starting import cannot_start
from compatgate.errors import BadInput, CompatgateError, Conflict, Infrastructure, NotFound

NO_TOOLKIT_HINT = (
    "install the NVIDIA Container Toolkit on it, run 'nvidia-ctk runtime configure "
    "--runtime=docker' and restart the engine"
)
NO_CDI_HINT = (
    "install the NVIDIA Container Toolkit on it and run 'nvidia-ctk cdi generate "
    "--output=/etc/cdi/nvidia.yaml'"
)
_NO_ACCESS = re.compile(
    r"pull access denied|manifest (?:for .* )?(?:unknown|not found)|not found|"
    r"repository does not exist|no matching manifest|unauthorized|denied:|name unknown|"
    r"no basic auth|authentication required"
)


@contextmanager
def translated(engine: Engine) -> Iterator[Any]:
    """Talk to the engine: gives its client.

    Raises:
        Infrastructure: it cannot be reached, went away or failed within.
        Conflict: what is to be made exists.
        CompatgateError: it refused.
    """
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield engine.api()
    except APIError as error:
        raise _refusal(error, engine) from error
    except (DockerException, RequestException, HTTPError, OSError, EOFError) as error:
        engine.close()
        raise Infrastructure(
            f"the engine of {engine.where} does not answer: {innermost(error)}",
            field="host",
            value=engine.host.name,
            hint="see that it runs and that the worker may talk to it",
        ) from error


def _refusal(error: Any, engine: Engine) -> CompatgateError:
    what = explanation(error)
    if error.status_code == 409:
        return Conflict(f"the engine of {engine.where} refuses: {what}")
    if error.status_code == 400:
        return BadInput(f"the engine of {engine.where} refuses: {what}")
    return Infrastructure(f"the engine of {engine.where} failed: {what}")


@contextmanager
def starting(program: str, host: str) -> Iterator[None]:
    """Around the start of a container, where the engine finds out what it lacks.

    Raises:
        CompatgateError: the engine has no GPUs; the image has not what is called.
    """
    from docker.errors import APIError

    try:
        yield
    except APIError as error:
        if refusal := _cannot_start(explanation(error), program, host):
            raise refusal from error
        raise


def _cannot_start(what: str, program: str, host: str) -> CompatgateError | None:
    if "could not select device driver" in what and '"cdi"' not in what:
        problem = (
            f"the engine of {host} has no GPUs to give: the NVIDIA Container Toolkit is missing"
        )
        return CompatgateError(problem, field="host", value=host, hint=NO_TOOLKIT_HINT)
    if "CDI" in what or '"cdi"' in what:
        problem = f"the engine of {host} does not know the GPU by its CDI name: {what}"
        return CompatgateError(problem, field="host", value=host, hint=NO_CDI_HINT)
    return cannot_start(what, program, host)


def no_image(reference: str, what: str) -> CompatgateError | None:
    """The error for a registry's answer, None where another attempt may get another one."""
    if not _NO_ACCESS.search(what):
        return None
    return NotFound(
        f"there is no image {reference}: {what}",
        field="image",
        value=reference,
        hint="check its name; a private one needs 'docker login' for the worker's user",
    )


def explanation(error: Any) -> str:
    """What the engine said, in one line."""
    return " ".join(str(error.explanation or error).split())
