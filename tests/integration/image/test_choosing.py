"""What containerd and skopeo choose of an index is among what is read, or the image is open."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from containerd import archive_of, image_of
from hypothesis import given, settings
from hypothesis import strategies as st
from image_blobs import OCI, Blob, blob_of
from layer_tricks import Entry, layer

from compatgate.discovery.registry.image_spec import (
    ChosenManifests,
    choose_manifests,
    parse_manifest,
    parse_platform,
)
from compatgate.errors import BadInput

_numbers = count(1)
Platforms = list[dict[str, str] | None]


def described(platforms: Platforms) -> tuple[list[dict[str, Any]], list[Blob]]:
    """Images of their own for these platforms: their descriptors, and all blobs."""
    descriptors, blobs = [], []
    for platform in platforms:
        content = str(next(_numbers)).encode()
        manifest, more = image_of([layer(Entry("x", data=content))], Labels={"n": content.decode()})
        stated = {} if platform is None else {"platform": platform}
        descriptors.append({**manifest.descriptor, **stated})
        blobs += more
    return descriptors, blobs


def chosen(descriptors: list[dict[str, Any]]) -> ChosenManifests | None:
    """What may run on linux/amd64; None where nothing may."""
    data = json.dumps({"schemaVersion": 2, "manifests": descriptors}).encode()
    listed = parse_manifest(data, "", "image")
    assert isinstance(listed, list)
    try:
        return choose_manifests(listed, parse_platform("linux/amd64"), "image")
    except BadInput:
        return None


def agrees(found: ChosenManifests | None, digest: str | None) -> bool:
    if digest is None or found is None or found.open:
        return digest is None or found is not None
    return digest in [one.digest for one in found.descriptors]


texts = {
    "os": st.sampled_from(["linux", "linux", "linux", "Linux", "", "windows"]),
    "architecture": st.sampled_from(
        ["amd64", "amd64", "amd64", "x86_64", "AMD64", "x86-64", "", "arm64", "unknown"]
    ),
}
variants = st.sampled_from(["", "", "v1", "v2", "V1", "1", "v3"])
platforms = st.one_of(
    st.none(),
    st.just({}),
    st.fixed_dictionaries(texts),
    st.fixed_dictionaries({**texts, "variant": variants}),
)
indexes = st.lists(platforms, min_size=1, max_size=4)


@settings(max_examples=40)
@given(indexes)
def test_containerd_runs_an_image_that_is_read(containerd, listed) -> None:
    descriptors, blobs = described(listed)
    containerd.import_image(
        archive_of(descriptors, blobs), "example.org/team/app:1", "--snapshotter", "native"
    )
    unpacked = containerd.ctr("snapshots", "--snapshotter", "native", "ls").stdout.decode()
    layers = {one.digest for one in blobs if one.media_type.endswith(".tar")}
    running = layers & set(unpacked.split())
    manifests = [one for one in blobs if one.media_type.endswith("manifest.v1+json")]
    (runs,) = [m.digest for m in manifests if any(r.encode() in m.data for r in running)] or [None]
    found = chosen(descriptors)
    assert agrees(found, runs)
    if found and runs and not found.open:
        assert found.descriptors[0].digest == runs


@settings(max_examples=40)
@given(indexes)
def test_skopeo_copies_an_image_that_is_read(skopeo, tmp_path_factory, listed) -> None:
    descriptors, blobs = described(listed)
    text = json.dumps(
        {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": descriptors}
    )
    index = blob_of(text.encode(), f"{OCI}.index.v1+json")
    name = {"annotations": {"org.opencontainers.image.ref.name": "1"}}
    folder = tmp_path_factory.mktemp("layout")
    archive = folder / "image.tar"
    archive.write_bytes(archive_of([{**index.descriptor, **name}], [*blobs, index]))
    command = [skopeo, "--override-arch=amd64", "inspect", "--config", f"oci-archive:{archive}:1"]
    result = subprocess.run(command, capture_output=True, check=False)
    runs = None
    if not result.returncode:
        number = json.loads(result.stdout)["config"]["Labels"]["n"]
        label = json.dumps({"Labels": {"n": number}}).encode()
        (config,) = [one.digest for one in blobs if label in one.data]
        (runs,) = [
            one.digest
            for one in blobs
            if one.media_type.endswith("manifest.v1+json") and config.encode() in one.data
        ]
    assert agrees(chosen(descriptors), runs)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def skopeo() -> str:
    program = shutil.which("skopeo")
    if program is None:
        reason = "no client: install Debian's skopeo"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return program


@pytest.mark.parametrize("listed", [["v3", ""], ["", "v3"], ["v1", ""]])
def test_every_image_that_may_run_is_judged(registry, read, tmp_path: Path, listed) -> None:
    images = [registry.push(env={"CUDA_VERSION": f"12.{n}.1"}) for n, _ in enumerate(listed, 1)]
    first = images[0].reference.partition("/")[2].partition(":")[0]
    for image in images[1:]:
        registry.copy(image, first)
    index = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [
            {
                "mediaType": image.media_type,
                "digest": image.digest,
                "size": image.size,
                "platform": {"os": "linux", "architecture": "amd64", "variant": variant},
            }
            for image, variant in zip(images, listed, strict=True)
        ],
    }
    pushed = registry.push_manifest(first, index, tag="index")
    for _ in range(2):  # from the registry, then from the cache
        found = read(pushed.by_digest(), cache=str(tmp_path / "cache"))
        (other,) = found.stack_body["alternatives"].values()
        assert {found.stack_body["cuda"], other["cuda"]} == {"12.1.1", "12.2.1"}
        assert found.index == pushed.digest
        assert found.pinned == f"{registry.host}/{first}@{found.digest}"
    alone = read(f"{registry.host}/{first}@{found.digest}", cache=str(tmp_path / "cache"))
    assert "alternatives" not in alone.stack_body
