"""Read manifests and blobs of a registry by digest, and verify every byte.

Source: opencontainers/distribution-spec ``spec.md``, "Pulling manifests" and "Pulling blobs".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

from msgspec import Struct

from compatgate.discovery.registry import authentication
from compatgate.discovery.registry.authentication import Credentials, find_credentials
from compatgate.discovery.registry.image_spec import (
    ACCEPT,
    Descriptor,
    Reference,
    is_digest,
    is_loopback,
)
from compatgate.discovery.registry.limits import ImageOptions, damaged_error
from compatgate.discovery.registry.transport import CHUNK, Response, Transport
from compatgate.errors import BadInput, CompatgateError, DamagedContent, NotFound, Unavailable

LARGEST_MANIFEST = 4 * 1024 * 1024
LARGEST_CONFIG = 16 * 1024 * 1024


class ManifestBytes(Struct, frozen=True):
    """The bytes of a manifest, with their digest."""

    digest: str
    media_type: str
    data: bytes


class Registry:
    """A server of a repository: a registry or a mirror.

    Hosts in ``plain_http`` may receive credentials without TLS, besides loopback.
    """

    def __init__(
        self,
        base: str,
        reference: Reference,
        transport: Transport,
        credentials: Callable[[], Credentials | None],
        plain_http: frozenset[str] = frozenset(),
    ) -> None:
        self.base = base
        self._repository = reference.repository
        self._transport = transport
        self._credentials = credentials
        self._plain_http = plain_http
        self._authorization = ""

    def manifest(self, locator: str, size: int | None = None) -> ManifestBytes:
        """Return a manifest or index."""
        with self._get(f"manifests/{locator}", {"Accept": ACCEPT}, f"image {locator}") as answer:
            data = answer.read_all(LARGEST_MANIFEST)
            stated = answer.headers.get("Docker-Content-Digest", "")
            media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        wanted = locator if ":" in locator else stated
        algorithm = wanted.partition(":")[0] if wanted.startswith("sha512:") else "sha256"
        digest = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
        if wanted and digest != wanted:
            raise damaged_error(
                f"the manifest {locator} should have the digest {wanted}, it has {digest}"
            )
        if size is not None and len(data) != size:
            raise damaged_error(
                f"the manifest {locator} should have {size} bytes, it has {len(data)}"
            )
        return ManifestBytes(digest, media_type, data)

    def digest_of(self, locator: str) -> str | None:
        """Return the digest of a tag without a body; None where the registry does not say."""
        headers = {"Accept": ACCEPT}
        path = f"manifests/{locator}"
        with self._get(path, headers, f"image {locator}", method="HEAD") as answer:
            digest = answer.headers.get("Docker-Content-Digest", "")
        return digest if is_digest(digest) else None

    def config(self, descriptor: Descriptor) -> bytes:
        """Return a whole small blob."""
        if descriptor.size > LARGEST_CONFIG:
            what = f"the config has {descriptor.size} bytes (max {LARGEST_CONFIG})"
            raise BadInput(what, field="image")
        parts = bytearray()
        with self.blob(descriptor) as blob:
            while data := blob.read():
                parts += data
        return bytes(parts)

    @contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[Blob]:
        """Open a blob; close the connection at the end of the block."""
        headers = {"Accept-Encoding": "identity"}
        with self._get(f"blobs/{descriptor.digest}", headers, descriptor.digest) as answer:
            yield Blob(answer, descriptor)

    def _get(
        self, path: str, headers: dict[str, str], what: str, *, method: str = "GET"
    ) -> Response:
        answer = self.send(method, self.url(path), headers)
        if answer.status == 200:
            return answer
        answer.close()
        raise self.refusal(answer, what)

    def url(self, path: str) -> str:
        """Return the URL of a path in the repository."""
        return f"{self.base}/v2/{self._repository}/{path}"

    def send(self, method: str, url: str, headers: dict[str, str]) -> Response:
        """Send a request with authentication, and return the answer of any status."""
        own = urlsplit(url)[:2] == urlsplit(self.base)[:2]
        for attempt in range(2):
            known = {"Authorization": self._authorization} if self._authorization and own else {}
            answer = self._transport.open(url, {**headers, **known}, method=method)
            if answer.status != 401 or attempt or not own:
                return answer
            answer.close()
            self._authorization = authentication.authorize(
                answer.headers.get("WWW-Authenticate", ""),
                self._repository,
                self._credentials(),
                self._fetch,
                plain_http=self._plain_http,
            )
        raise AssertionError("the second answer returns or raises")

    def _fetch(self, url: str, headers: dict[str, str], form: bytes | None) -> tuple[int, bytes]:
        method = "GET" if form is None else "POST"
        with self._transport.open(url, headers, body=form, method=method) as answer:
            return answer.status, answer.read_all(authentication.LARGEST_TOKEN)

    def refusal(self, answer: Response, what: str) -> CompatgateError:
        """Return the error for an unexpected answer."""
        if answer.status in (401, 403):
            return authentication.access_error(
                f"{self.base} does not allow {self._repository} to be read"
            )
        if answer.status == 404:
            hint = "check the name, the tag and whether it was deleted"
            problem = f"{self.base} has no {what} in {self._repository}"
            return NotFound(problem, field="image", hint=hint)
        return Unavailable(f"{self.base} answers {answer.status} for {what}", field="image")


def list_registries(
    reference: Reference, transport: Transport, options: ImageOptions
) -> list[Registry]:
    """Return the servers of an image, mirrors first."""
    if options.registries is not None and reference.registry not in options.registries:
        raise BadInput(
            f"images of {reference.registry} are not allowed here",
            field="image",
            value=str(reference),
            hint=f"allowed: {', '.join(sorted(options.registries)) or 'none'}",
        )
    plain = is_loopback(reference.host) or reference.host in options.plain_http
    origin = f"{'http' if plain else 'https'}://{reference.host}"
    registries = []
    for base in (*options.mirrors.get(reference.registry, ()), origin):
        place = reference
        if base != origin:  # a mirror receives its own credentials, never the registry's
            host = base.partition("://")[2].partition("/")[0]
            place = Reference(host, reference.repository)
        credentials = partial(
            find_credentials,
            place,
            transport.deadline,
            folder=options.docker_config,
            helpers=options.helpers,
        )
        registries.append(Registry(base, reference, transport, credentials, options.plain_http))
    return registries


class Blob:
    """A blob that is read once, in order, and verified at its end."""

    def __init__(self, response: Response, descriptor: Descriptor) -> None:
        self.verified = False
        self.position = 0
        self._response = response
        self._descriptor = descriptor
        self._hash = hashlib.new(descriptor.digest.partition(":")[0])

    def read(self, size: int = CHUNK, /) -> bytes:
        """Return the next bytes; ``b""`` at the end."""
        if self.verified:
            return b""
        data = self._response.read(size)
        self.position += len(data)
        self._hash.update(data)
        if self.position > self._descriptor.size:
            raise self._damaged(f"has more than the {self._descriptor.size} bytes it should have")
        if not data:
            if self.position < self._descriptor.size:
                what = f"ends after {self.position} of {self._descriptor.size} bytes"
                raise self._damaged(what)
            found = f"{self._hash.name}:{self._hash.hexdigest()}"
            if found != self._descriptor.digest:
                raise self._damaged(f"has the digest {found}")
            self.verified = True
        return data

    def drain(self) -> None:
        """Read the remaining bytes, to verify the blob."""
        while self.read():
            pass

    def _damaged(self, what: str) -> DamagedContent:
        return damaged_error(f"the blob {self._descriptor.digest} {what}")
