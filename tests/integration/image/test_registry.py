"""Images in a real registry: indexes, passwords, mirrors, and what need not be read."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from compatgate.errors import BadInput, NotFound, Unavailable

PACKAGE = b"""\
Package: libcudnn9-cuda-12
Status: install ok installed
Version: 9.1.0.70-1
"""


def test_an_index_gives_the_image_for_the_platform(registry, read) -> None:
    images = {
        cpu: registry.push(env={"CUDA_VERSION": version}, platform=f"linux/{cpu}")
        for cpu, version in (("amd64", "12.4.1"), ("arm64", "12.6.3"))
    }
    repository = images["amd64"].reference.partition("/")[2].partition(":")[0]
    for image in images.values():
        _copy(registry, image, repository)
    index = registry.push_manifest(repository, _index(images), tag="both")
    for cpu, version in (("amd64", "12.4.1"), ("arm64", "12.6.3")):
        found = read(index.reference, platform=f"linux/{cpu}")
        assert found.stack_body["cuda"] == version
        assert (found.digest, found.index) == (images[cpu].digest, index.digest)
    with pytest.raises(BadInput, match=r"no image for linux/s390x.*linux/amd64, linux/arm64"):
        read(index.reference, platform="linux/s390x")


def _index(images: dict[str, Any]) -> dict[str, Any]:
    manifests = [
        {
            "mediaType": image.media_type,
            "digest": image.digest,
            "size": image.size,
            "platform": {"os": "linux", "architecture": cpu},
        }
        for cpu, image in images.items()
    ]
    return {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    }


def _copy(registry, image, repository: str) -> None:
    """Put an image's manifest and config into another repository."""
    path = image.reference.partition("/")[2].partition(":")[0]
    if path == repository:
        return
    import urllib.request

    base = f"http://{registry.host}/v2"
    with urllib.request.urlopen(
        urllib.request.Request(f"{base}/{path}/manifests/1", headers={"Accept": image.media_type})
    ) as answer:
        document = json.loads(answer.read())
    digest = document["config"]["digest"]
    mount = f"/v2/{repository}/blobs/uploads/?mount={digest}&from={path}"
    registry._request("POST", mount, b"", {}, 201)
    registry.push_manifest(repository, document, tag="copy")


def test_an_image_for_another_platform_is_refused(registry, read) -> None:
    image = registry.push(env={"CUDA_VERSION": "12.4.1"}, platform="linux/arm64")
    with pytest.raises(BadInput, match="is for linux/arm64"):
        read(image.reference)


def test_a_registry_with_a_password_is_read_with_docker_s_credentials(
    start_registry, read, tmp_path: Path
) -> None:
    registry = start_registry(password=True)
    image = registry.push(env={"CUDA_VERSION": "12.4.1"})
    with pytest.raises(Unavailable, match="requires a name and a password"):
        read(image.reference)
    entry = {"auth": base64.b64encode(b"reader:secret").decode()}
    config = {"auths": {registry.host: entry}}
    (tmp_path / "docker" / "config.json").write_text(json.dumps(config))
    assert read(image.reference).stack_body["cuda"] == "12.4.1"
    config["auths"][registry.host]["auth"] = base64.b64encode(b"reader:wrong").decode()
    (tmp_path / "docker" / "config.json").write_text(json.dumps(config))
    with pytest.raises(Unavailable, match="does not allow team/app1 to be read"):
        read(image.reference)


def test_an_image_that_is_not_there_is_named(registry, read) -> None:
    with pytest.raises(NotFound, match="has no image 9"):
        read(f"{registry.host}/team/missing:9")


def test_a_second_reading_of_the_same_digest_reads_nothing(
    registry, read, layer, tmp_path: Path
) -> None:
    image = registry.push(layer({"var/lib/dpkg/status": PACKAGE}))
    first = read(image.reference, cache=str(tmp_path / "cache"))
    again = read(image.reference, cache=str(tmp_path / "cache"))
    by_digest = read(image.by_digest(), cache=str(tmp_path / "cache"))
    assert first.bytes_read > 0
    assert (again.bytes_read, by_digest.bytes_read) == (0, 0)
    assert first.stack_body == again.stack_body == by_digest.stack_body
    assert first.observations == again.observations


def test_the_config_alone_is_read_where_that_is_asked(registry, read, layer) -> None:
    image = registry.push(layer({"app/main.py": b""}), env={"CUDA_VERSION": "12.4.1"})
    assert read(image.reference).layers_read == read(image.reference, layers="all").layers_read == 1
    assert read(image.reference, layers="none").layers_read == 0


def test_a_mirror_is_asked_first_and_the_registry_after_it(registry, read, fake) -> None:
    image = registry.push(env={"CUDA_VERSION": "12.4.1"})
    mirrors = {registry.host: (f"http://{fake.host}",)}
    assert read(image.reference, mirrors=mirrors).stack_body["cuda"] == "12.4.1"
    assert fake.asked
    mirrors = {"docker.io": (f"http://{registry.host}",)}
    repository = image.reference.partition("/")[2]
    assert read(repository, mirrors=mirrors).stack_body["cuda"] == "12.4.1"


def test_registries_that_are_not_allowed_are_not_asked(registry, read) -> None:
    with pytest.raises(BadInput, match="are not allowed here"):
        read(f"{registry.host}/app:1", registries=frozenset({"registry.example"}))
