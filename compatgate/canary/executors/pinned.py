"""An image's digest by asking its registry, for executors that have no engine to ask."""

from __future__ import annotations

from compatgate.discovery.image.reference import parse_reference
from compatgate.errors import Infrastructure, Unavailable

_DEADLINE_S = 60.0


def by_digest(reference: str) -> str:
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
    from compatgate.discovery.image.deadline import Deadline
    from compatgate.discovery.image.options import options_from_environment
    from compatgate.discovery.image.registry import places
    from compatgate.discovery.image.transport import Transport

    options = options_from_environment()
    try:
        with Deadline(_DEADLINE_S) as deadline, Transport(options, deadline) as transport:
            # The registry itself, not a mirror: what a tag means is its to say.
            registry = places(named, transport, options)[-1]
            digest = registry.digest_of(named.locator) or registry.manifest(named.locator).digest
    except Unavailable as error:
        raise Infrastructure(error.problem, field="image", value=reference) from error
    return f"{named.registry}/{named.repository}@{digest}"
