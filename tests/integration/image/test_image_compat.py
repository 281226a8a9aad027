"""``compatgate image-compat`` and ``inspect --format nfd`` with a real registry."""

from __future__ import annotations

import json

import pytest
import yaml
from catalogue import own_cache
from gpu_binaries import make_elf, make_entry, make_fatbin

from compatgate.cli.main import main
from compatgate.discovery.integrations.nfd_spec import ARTIFACT_TYPE, LAYER_TYPE
from compatgate.discovery.registry.artifacts import (
    ArtifactLayer,
    Attachment,
    attach_artifact,
    fetch_attachments,
    open_location,
)

POOL = ["--pool", "driver=580.82.07,gpu=L4"]
ENV = {"CUDA_VERSION": "12.4.1"}


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials and no cache of whoever runs the tests."""
    for name in ("DOCKER_CONFIG", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path))


def specs(image) -> list[Attachment]:
    """What is attached to an image, as NFD looks for it."""
    with open_location(image.reference) as place:
        return list(fetch_attachments(place, image.digest, ARTIFACT_TYPE, LAYER_TYPE))


def test_a_spec_is_pushed_found_as_nfd_finds_it_and_pulled(registry, capsys) -> None:
    image = registry.push(env=ENV)
    assert main(["image-compat", "push", image.reference]) == 0
    result = capsys.readouterr()
    assert f"is attached to {image.digest}" in result.out
    assert "warning: not in the spec: driver: at least 525.60.13 for CUDA 12.4.1" in result.err

    [found] = specs(image)
    spec = yaml.load(found.data, yaml.CSafeLoader)
    assert spec["version"] == "v1alpha1"
    assert "org.opencontainers.image.created" in found.annotations

    assert main(["image-compat", "pull", image.reference]) == 0
    assert yaml.load(capsys.readouterr().out, yaml.CSafeLoader) == spec


def test_inspect_prints_the_same_spec(registry, capsys) -> None:
    image = registry.push(env=ENV)
    main(["image-compat", "push", image.reference, "--dry-run"])
    pushed = capsys.readouterr().out
    assert main(["inspect", image.reference, "--format", "nfd"]) == 0
    assert capsys.readouterr().out == pushed
    assert specs(image) == []


def test_the_same_spec_is_attached_once(registry, capsys) -> None:
    image = registry.push(env=ENV)
    main(["image-compat", "push", image.reference])
    assert main(["image-compat", "push", image.reference]) == 0
    assert "is already attached with the same content" in capsys.readouterr().out
    assert len(specs(image)) == 1


def test_an_attached_spec_is_checked_against_pools(registry, layer, capsys) -> None:
    library = make_elf(DOTnv_fatbin=make_fatbin(make_entry(payload=bytes(70_000))))
    image = registry.push(layer({"app/libkernels.so": library}))
    assert main(["image-compat", "push", image.reference]) == 0
    capsys.readouterr()
    check = ["image-compat", "check", image.reference, "--pool"]
    assert main([*check, "driver=580.82.07,gpu=A100-SXM4-80GB"]) == 0
    assert "every rule holds" in capsys.readouterr().out
    assert main([*check, "driver=580.82.07,gpu=H100-SXM5-80GB", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["outcome"] == "fail"
    assert document["sets"][0]["rules"][0]["outcome"] == "fail"


def test_the_newest_of_several_specs_counts(registry, capsys) -> None:
    image = registry.push(env=ENV)
    with open_location(image.reference) as place:
        for year in (2024, 2026, 2025):
            text = f"version: v1alpha1\ncompatibilities: [{{rules: [{{name: of-{year}}}]}}]\n"
            made = {"org.opencontainers.image.created": f"{year}-01-01T00:00:00Z"}
            layer = ArtifactLayer(text.encode(), LAYER_TYPE)
            attach_artifact(place, image.digest, ARTIFACT_TYPE, [layer], made)
    assert main(["image-compat", "pull", image.reference]) == 0
    assert "of-2026" in capsys.readouterr().out


def test_a_spec_of_a_file_is_pushed_as_it_is(registry, capsys, tmp_path) -> None:
    image = registry.push(env={"PATH": "/bin"})
    path = tmp_path / "spec.yaml"
    path.write_text("version: v1alpha1\ncompatibilities: [{rules: [{name: mine}]}]\n")
    assert main(["image-compat", "push", image.reference, "--file", str(path)]) == 0
    capsys.readouterr()
    assert main(["image-compat", "pull", image.reference]) == 0
    assert capsys.readouterr().out == path.read_text()
    path.write_text("version: v9\ncompatibilities: []\n")
    assert main(["image-compat", "push", image.reference, "--file", str(path)]) == 2


def test_an_image_that_needs_no_gpu_gets_no_spec(registry, capsys) -> None:
    image = registry.push(env={"PATH": "/bin"})
    assert main(["image-compat", "push", image.reference]) == 3
    assert "no part of the stack needs a GPU" in capsys.readouterr().err
    assert main(["image-compat", "pull", image.reference]) == 2
    assert "no image-compatibility spec is attached" in capsys.readouterr().err


def test_of_an_index_the_platforms_image_gets_it_and_the_index_where_asked(
    registry, capsys
) -> None:
    image = registry.push(env=ENV)
    name = image.reference.partition("/")[2].partition(":")[0]
    child = {"mediaType": image.media_type, "digest": image.digest, "size": image.size}
    platform = {"os": "linux", "architecture": "amd64"}
    kind = "application/vnd.oci.image.index.v1+json"
    body = {"schemaVersion": 2, "mediaType": kind, "manifests": [{**child, "platform": platform}]}
    index = registry.push_manifest(name, body, tag="index")
    assert main(["image-compat", "push", index.reference]) == 0
    result = capsys.readouterr()
    assert f"is attached to {image.digest}" in result.out
    assert "needs --platform linux/amd64" in result.err
    assert main(["image-compat", "pull", index.reference]) == 2
    assert main(["image-compat", "pull", index.reference, "--platform", "linux/amd64"]) == 0
    assert main(["image-compat", "push", index.reference, "--index"]) == 0
    assert main(["image-compat", "pull", index.reference]) == 0


def test_an_artifact_that_is_no_spec_is_an_error_of_one_line(registry, capsys) -> None:
    image = registry.push(env=ENV)
    with open_location(image.reference) as place:
        attach_artifact(
            place, image.digest, ARTIFACT_TYPE, [ArtifactLayer(b"\xff\xfe{", LAYER_TYPE)], {}
        )
    assert main(["image-compat", "check", image.reference, *POOL]) == 2
    assert capsys.readouterr().err.count("\n") == 1
