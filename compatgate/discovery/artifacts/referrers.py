"""Which artifacts refer to an image.

Source: opencontainers/distribution-spec ``spec.md``, "Listing Referrers", "Pushing Manifests with
Subject" and "Referrers Tag Schema".
"""

from __future__ import annotations

import random
import re
import time
from urllib.parse import quote, urljoin

from compatgate.discovery.artifacts.manifest import Descriptor, Listed, index, read, sound
from compatgate.discovery.artifacts.push import push_manifest
from compatgate.discovery.image.manifest import OCI_INDEX
from compatgate.discovery.image.registry import LARGEST_MANIFEST, Registry
from compatgate.errors import BadInput, NotFound, TimedOut, Unavailable

SETTLE_S = 0.3
"""What others need at most between reading such a list and writing it."""
_MOST_PAGES = 20
_ATTEMPTS = 10
_MOST_TROUBLES = 3
_NEXT = re.compile(r'<([^<>]+)>\s*;\s*rel="?next"?')


def referrers(registry: Registry, digest: str, kind: str) -> list[Descriptor]:
    """The artifacts of a kind that refer to an image; of the registry's list, else of the tag's.

    Raises:
        Unavailable: the registry does not answer.
        Damaged: its list cannot be read.
    """
    found = _of_registry(registry, digest, kind)
    if found is None:
        found = _of_tag(registry, digest)
    return [one for one in found if one.artifact_type == kind]


def list_by_tag(registry: Registry, digest: str, own: Descriptor) -> None:
    """Add an artifact to the list that a tag holds, where the registry keeps none itself.

    Whoever read the list before may write it after, without this one; so it is looked at again when
    they have had the time to.

    Raises:
        Unavailable: the registry does not answer, or others kept overwriting it.
    """
    troubles = 0
    for attempt in range(_ATTEMPTS):
        try:
            listed = _of_tag(registry, digest)
            if any(one.digest == own.digest for one in listed):
                return
            push_manifest(registry, index([*listed, own]), OCI_INDEX, _tag(digest))
        except (
            BadInput,
            Unavailable,
        ) as error:  # registries stumble over a tag that is just being written
            troubles += 1
            if troubles > _MOST_TROUBLES or isinstance(error, TimedOut):
                raise
        time.sleep(SETTLE_S * random.uniform(1, 2 + attempt))  # noqa: S311 - not all at once again
    what = f"others write the list of {digest} at the same time"
    raise Unavailable(what, field="image", hint="try again")


def _of_registry(registry: Registry, digest: str, kind: str) -> list[Descriptor] | None:
    """None where the registry has no such list."""
    url = registry.url(f"referrers/{digest}?artifactType={quote(kind, safe='')}")
    found: list[Descriptor] = []
    for _ in range(_MOST_PAGES):
        with registry.send("GET", url, {"Accept": OCI_INDEX}) as answer:
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise registry.refusal(answer, f"referrers of {digest}")
            listed = read(answer.read_all(LARGEST_MANIFEST), Listed, f"referrers of {digest}")
            following = _NEXT.search(answer.headers.get("Link", ""))
        found += sound(listed.manifests)
        if following is None:
            return found
        url = urljoin(url, following[1])
    raise Unavailable(f"{digest} has more artifacts than are read", field="image")


def _of_tag(registry: Registry, digest: str) -> list[Descriptor]:
    try:
        found = registry.manifest(_tag(digest))
    except NotFound:
        return []
    return sound(read(found.data, Listed, f"the list of artifacts of {digest}").manifests)


def _tag(digest: str) -> str:
    algorithm, _, digits = digest.partition(":")
    return f"{algorithm[:32]}-{digits[:64]}"
