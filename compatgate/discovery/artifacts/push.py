"""Pushing small blobs and manifests.

Source: opencontainers/distribution-spec ``spec.md``, "Pushing blobs" and "Pushing manifests".
"""

from __future__ import annotations

import time
from contextlib import suppress
from urllib.parse import quote

from compatgate.discovery.artifacts.manifest import Descriptor
from compatgate.discovery.image.registry import Registry
from compatgate.discovery.image.transport import Response
from compatgate.errors import BadInput

PAUSES_S = (0.2, 0.6)
"""Before an artifact is pushed once more."""
_WRITTEN = "written to"


def push_blob(registry: Registry, data: bytes, digest: str) -> None:
    """Push a blob, unless it is there.

    Raises:
        Unavailable: the registry does not answer, or not let it be.
    """
    with registry.send("HEAD", registry.url(f"blobs/{digest}"), {}) as answer:
        if answer.status == 200:
            return
    with registry.send("POST", registry.url("blobs/uploads/"), {"Content-Length": "0"}) as answer:
        if answer.status != 202:
            raise registry.refusal(answer, "upload", _WRITTEN)
        place = registry.lead(answer)
    joint = "&" if "?" in place else "?"
    url = f"{place}{joint}digest={quote(digest, safe='')}"
    with registry.send("PUT", url, {"Content-Type": "application/octet-stream"}, data) as answer:
        if answer.status != 201:
            raise registry.refusal(answer, f"blob {digest}", _WRITTEN)


def push_manifest(registry: Registry, data: bytes, media_type: str, locator: str) -> Response:
    """Push a manifest under a tag or its digest; the answer is closed, its headers are there.

    Raises:
        Unavailable: the registry does not answer, or not let it be.
        BadInput: it takes no manifests of this form.
    """
    url = registry.url(f"manifests/{locator}")
    with registry.send("PUT", url, {"Content-Type": media_type}, data) as answer:
        if answer.status in (400, 415):
            said = answer.read_all(64 * 1024).decode("utf-8", "replace")[:300]
            hint = "it needs to take OCI manifests with any config (distribution 2.7 and later)"
            what = f"{registry.base} refuses the manifest: {said}"
            raise BadInput(what, field="image", hint=hint)
        if answer.status not in (200, 201):
            raise registry.refusal(answer, f"manifest {locator}", _WRITTEN)
        return answer


def push_all(
    registry: Registry, blobs: dict[str, bytes], manifest: bytes, own: Descriptor
) -> Response:
    """Push an artifact's blobs, then its manifest under its digest.

    While others push the same blobs, registries refuse a manifest for want of them: what is refused
    is tried again.

    Raises:
        Unavailable: the registry does not answer, or not let it be.
        BadInput: it takes no manifests of this form.
    """
    for pause in PAUSES_S:
        with suppress(BadInput):
            return _push_once(registry, blobs, manifest, own)
        time.sleep(pause)
    return _push_once(registry, blobs, manifest, own)


def _push_once(
    registry: Registry, blobs: dict[str, bytes], manifest: bytes, own: Descriptor
) -> Response:
    for digest, data in blobs.items():
        push_blob(registry, data, digest)
    return push_manifest(registry, manifest, own.media_type, own.digest)
