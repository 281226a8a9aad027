"""Registries that keep the lists of referrers themselves, and those that misbehave."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from compatgate.discovery.registry import artifacts
from compatgate.discovery.registry.artifacts import (
    ArtifactLayer,
    attach_artifact,
    fetch_attachments,
    open_location,
)
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.errors import BadInput, CompatgateError, Unavailable

INDEX = "application/vnd.oci.image.index.v1+json"
KIND, MEDIA = "application/vnd.in-toto+json", "application/vnd.dsse.envelope.v1+json"


@pytest.fixture
def options(tmp_path: Path) -> ImageOptions:
    return ImageOptions(docker_config=str(tmp_path))


def fetched(reference: str, digest: str, options: ImageOptions) -> list[bytes]:
    with open_location(reference, options) as place:
        return [one.data for one in fetch_attachments(place, digest, KIND, MEDIA)]


def pushed(reference: str, digest: str, options: ImageOptions, *data: bytes, kind=KIND) -> None:
    with open_location(reference, options) as place:
        for one in data:
            attach_artifact(place, digest, kind, [ArtifactLayer(one, MEDIA)], {"a": "b"})


def test_a_registry_that_keeps_the_list_needs_no_tag(
    oci_registry: Any, options: ImageOptions
) -> None:
    reference, digest = oci_registry.image()
    pushed(reference, digest, options, b"one", b"two")
    pushed(reference, digest, options, b"another kind", kind="application/other")
    assert sorted(fetched(reference, digest, options)) == [b"one", b"two"]
    assert not [asked for asked in oci_registry.asked if "manifests/sha256-" in asked]


def test_of_those_who_attach_at_the_same_time_none_is_lost(
    registry: Any, options: ImageOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "SETTLE_S", 0.2)
    image = registry.push()
    every = [f"from {number}".encode() for number in range(3)]
    with ThreadPoolExecutor(len(every)) as pool:
        list(pool.map(lambda data: pushed(image.reference, image.digest, options, data), every))
    assert sorted(fetched(image.reference, image.digest, options)) == every


def test_what_is_there_is_not_sent_again(oci_registry: Any, options: ImageOptions) -> None:
    reference, digest = oci_registry.image()
    pushed(reference, digest, options, b"one", b"one")
    sent = [asked for asked in oci_registry.asked if asked.startswith("PUT /v2/team/app/blobs")]
    assert len(sent) == 2  # the config and the layer, once each


@pytest.mark.parametrize("times", [2, 3])
def test_a_manifest_that_is_refused_while_others_push_is_pushed_again(
    oci_registry: Any, options: ImageOptions, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(artifacts, "PAUSES_S", (0.01, 0.01))
    reference, digest = oci_registry.image()
    oci_registry.refuses = times
    if times > 2:
        with pytest.raises(BadInput, match="MANIFEST_BLOB_UNKNOWN"):
            pushed(reference, digest, options, b"one")
    else:
        pushed(reference, digest, options, b"one")
        assert fetched(reference, digest, options) == [b"one"]


def test_a_list_that_names_what_is_gone_is_read_all_the_same(
    oci_registry: Any, options: ImageOptions
) -> None:
    reference, digest = oci_registry.image()
    pushed(reference, digest, options, b"one", b"two")
    listed = [name for name, data in oci_registry.manifests.items() if b'"subject"' in data]
    first = json.loads(oci_registry.manifests[listed[0]])
    page = {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}
    for name in (f"sha256:{'0' * 64}", listed[0]):
        size = len(oci_registry.manifests.get(name, b""))
        one = {"mediaType": "m", "digest": name, "size": size, "artifactType": KIND}
        page["manifests"].append(one)  # type: ignore[attr-defined]
    oci_registry.lists = page
    assert first["subject"]["digest"] == digest
    assert fetched(reference, digest, options) == [b"one"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", CompatgateError),
        (b"[]", CompatgateError),
        (b'{"schemaVersion": 2, "manifests": [{"digest": 7}]}', CompatgateError),
    ],
)
def test_a_list_that_is_none_is_an_error(
    fake: Any, options: ImageOptions, body: bytes, error: type[Exception]
) -> None:
    digest = f"sha256:{'0' * 64}"
    fake.serve(f"/v2/app/referrers/{digest}", body)
    with pytest.raises(error):
        fetched(f"{fake.host}/app:1", digest, options)


def test_more_than_anybody_reads_is_an_error(fake: Any, options: ImageOptions) -> None:
    digest = f"sha256:{'0' * 64}"
    one = {"mediaType": "x", "digest": digest, "size": 2, "artifactType": KIND}
    body = json.dumps({"schemaVersion": 2, "manifests": [one] * 300}).encode()
    fake.serve(f"/v2/app/referrers/{digest}", body)
    with pytest.raises(BadInput, match="300 artifacts"):
        fetched(f"{fake.host}/app:1", digest, options)


def test_pages_without_end_are_left(fake: Any, options: ImageOptions) -> None:
    digest = f"sha256:{'0' * 64}"
    path = f"/v2/app/referrers/{digest}"
    body = b'{"schemaVersion": 2, "manifests": []}'

    def answer(request: Any) -> None:
        request.send_response(200)
        request.send_header("Link", f'<{path}?again>; rel="next"')
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    fake.answers[path] = answer
    with pytest.raises(Unavailable, match="too many artifacts"):
        fetched(f"{fake.host}/app:1", digest, options)


def test_credentials_stay_with_the_registry_when_an_upload_is_led_elsewhere(
    start_registry: Any, fake: Any, tmp_path: Path
) -> None:
    """The place of an upload may be on another host, which is told nothing."""
    from compatgate.discovery.registry.artifacts import push_blob

    elsewhere = "http://127.0.0.1:9/upload"

    def challenge(request: Any) -> None:
        allowed = request.headers.get("Authorization")
        request.send_response(202 if allowed else 401)
        if allowed:
            request.send_header("Location", elsewhere)
        else:
            request.send_header("WWW-Authenticate", 'Basic realm="x"')
        request.send_header("Content-Length", "0")
        request.end_headers()

    fake.answers["/v2/app/blobs/uploads/"] = challenge
    auth = {"auths": {fake.host: {"auth": "cmVhZGVyOnNlY3JldA=="}}}
    (tmp_path / "config.json").write_text(json.dumps(auth))
    with open_location(f"{fake.host}/app:1", ImageOptions(docker_config=str(tmp_path))) as place:
        sent: list[dict[str, str]] = []
        transport = place.registry._transport
        original = transport.open

        def spy(url: str, headers: dict[str, str], **more: Any) -> Any:
            if url.startswith(elsewhere):
                sent.append(headers)
            return original(url, headers, **more)

        transport.open = spy  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            push_blob(place.registry, b"x", f"sha256:{'0' * 64}")
    assert sent
    assert all("Authorization" not in headers for headers in sent)


def test_an_upload_that_is_led_nowhere_fails(fake: Any, options: ImageOptions) -> None:
    from compatgate.discovery.registry.artifacts import push_blob

    def accepted(request: Any) -> None:
        request.send_response(202)
        request.send_header("Content-Length", "0")
        request.end_headers()

    fake.answers["/v2/app/blobs/uploads/"] = accepted
    with (
        open_location(f"{fake.host}/app:1", options) as place,
        pytest.raises(Unavailable, match="where to upload"),
    ):
        push_blob(place.registry, b"x", f"sha256:{'0' * 64}")
