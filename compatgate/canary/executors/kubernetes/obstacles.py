"""What keeps a pod from starting: how long it may, and the error that it is then. Pure."""

from __future__ import annotations

import re

from msgspec import Struct

from compatgate.canary.executors.starting import cannot_start
from compatgate.errors import BadInput, CompatgateError, Infrastructure, NotFound

PULL_GRACE_S = 120.0
"""A registry may be away for a moment, or a pull secret on its way."""
_CONFIG_GRACE_S = 30.0
_NO_PULL = (
    "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "ErrImageNeverPull",
    "RegistryUnavailable",
)  # fmt: skip
_NO_START = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_PASSING = re.compile(
    r"i/o timeout|dial tcp|TLS handshake|connection re(?:fused|set)|deadline exceeded|"
    r"toomanyrequests|Too Many Requests|server error|status(?: code)?:? 5\d\d|unexpected EOF|"
    r"RegistryUnavailable|no space left"
)
_BARE = re.compile(r'(?:Back-off pulling image "[^"]*")?')
"""All that older clusters say between two tries."""


class Obstacle(Struct, frozen=True):
    """Something that may pass.

    Attributes:
        reason: as the cluster says it.
        error: that it is once it has lasted for ``grace_s``.
        telling: it names a cause.
    """

    reason: str
    error: CompatgateError
    grace_s: float = 0.0
    telling: bool = True


def obstacle(reason: str, message: str, program: str) -> Obstacle | None:
    """What a container that waits says of it; None where it waits as all do.

    Args:
        reason: of the waiting container.
        message: in one line.
        program: that it is to run.
    """
    said = f"{reason}: {message}" if message else reason
    if reason == "InvalidImageName":
        return Obstacle(said, BadInput(f"the cluster reads no image there: {said}", field="image"))
    if reason in _NO_PULL:
        passing = _PASSING.search(said)
        hint = "" if passing else "check its name; a private one needs image_pull_secrets"
        kind = Infrastructure if passing else NotFound
        error = kind(f"the cluster cannot pull the image: {said}", field="image", hint=hint)
        return Obstacle(said, error, PULL_GRACE_S, not _BARE.fullmatch(message))
    if reason in _NO_START:
        return _grace(start_refused(message or reason, program))
    return None


def start_refused(message: str, program: str) -> Obstacle:
    """The container's runtime would not start it."""
    error = cannot_start(message, program, "the cluster") or CompatgateError(
        f"the cluster cannot start the container: {message}", field="host"
    )
    return Obstacle(message, error)


def _grace(found: Obstacle) -> Obstacle:
    return Obstacle(found.reason, found.error, _CONFIG_GRACE_S)
