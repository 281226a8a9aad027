"""Images that come onto the engine as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from compatgate.canary.executors.docker.errors import explanation, no_image
from compatgate.canary.executors.interface import Progress
from compatgate.discovery.image.reference import Reference, is_digest, parse_reference
from compatgate.errors import Infrastructure, NotFound


def have(api: Any, reference: str, progress: Progress) -> str:
    """Find an image on the engine, or pull it.

    What is named by digest or id is not asked for again; a tag is, unless the image was made on
    this engine and has no registry to come from.
    """
    from docker.errors import ImageNotFound

    try:
        found = api.inspect_image(reference)
        if "sha256:" in reference or not found.get("RepoDigests"):
            return _identity(found, reference)
    except ImageNotFound:
        if reference.startswith("sha256:"):
            raise NotFound(
                f"there is no image {reference} on the engine", field="image", value=reference
            ) from None
    _pull(api, reference, progress)
    return _identity(api.inspect_image(reference), reference)


def _identity(image: dict[str, Any], reference: str) -> str:
    """By digest under the name that was asked for; engines leave ``docker.io/library/`` out."""
    digests: list[str] = image.get("RepoDigests") or []
    named = None if is_digest(reference) else parse_reference(reference)
    of_name = [d for d in digests if named and _is_of(named, parse_reference(d))]
    return str((of_name or digests or [image["Id"]])[0])


def _is_of(one: Reference, other: Reference) -> bool:
    return (one.registry, one.repository) == (other.registry, other.repository)


def _pull(api: Any, reference: str, progress: Progress) -> None:
    from docker.errors import APIError
    from docker.utils import parse_repository_tag

    name, tag = parse_repository_tag(reference)
    doing = f"pulling {reference}"
    progress(doing, None)
    try:
        for share in _shares(api.pull(name, tag=tag or "latest", stream=True, decode=True)):
            progress(doing, share)
    except _Said as error:
        what = str(error)
    except APIError as error:
        what = explanation(error)
    else:
        return
    raise no_image(reference, what) or Infrastructure(
        f"cannot pull {reference}: {what}", field="image", value=reference
    )


class _Said(Exception):
    """An error that came in a stream of progress."""


def _shares(events: Iterable[dict[str, Any]]) -> Iterator[float]:
    """How much of all layers known so far is here, unpacking counting a third."""
    total: dict[str, int] = {}
    done: dict[str, float] = {}
    for event in events:
        if error := event.get("error"):
            raise _Said(" ".join(str(error).split()))
        layer, detail = event.get("id"), event.get("progressDetail") or {}
        size, current = detail.get("total"), detail.get("current")
        if not (layer and size and current):
            continue
        part = min(current / size, 1.0)
        unpacking = event.get("status") == "Extracting"
        total.setdefault(layer, size)
        done[layer] = total[layer] * ((2 + part) / 3 if unpacking else part * 2 / 3)
        yield sum(done.values()) / sum(total.values())
