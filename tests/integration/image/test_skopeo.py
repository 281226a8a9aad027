"""Images pushed by a client that others use, in both manifest formats."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

STATUS = b"Package: libcudnn9-cuda-12\nStatus: install ok installed\nVersion: 9.1.0.70-1\n"


@pytest.fixture
def skopeo() -> str:
    program = shutil.which("skopeo")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("no client: install Debian's skopeo")
        pytest.skip("no client: install Debian's skopeo")
    return program


def layout(folder: Path, blob, layer) -> Path:
    """An OCI image layout of one image."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    kind = "application/vnd.oci.image"

    def put(data: bytes, media_type: str) -> dict[str, object]:
        one = blob(data, media_type)
        (blobs / one.digest.partition(":")[2]).write_bytes(data)
        return one.descriptor

    plain = layer({"var/lib/dpkg/status": STATUS}, "none")
    packed = layer({"var/lib/dpkg/status": STATUS}, "gzip")
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Env": ["CUDA_VERSION=12.4.1"]},
        "rootfs": {"type": "layers", "diff_ids": [plain.digest]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": put(json.dumps(config).encode(), f"{kind}.config.v1+json"),
        "layers": [put(packed.data, f"{kind}.layer.v1.tar+gzip")],
    }
    descriptor = put(json.dumps(manifest).encode(), f"{kind}.manifest.v1+json")
    descriptor["annotations"] = {"org.opencontainers.image.ref.name": "1"}
    index = {"schemaVersion": 2, "manifests": [descriptor]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


@pytest.mark.parametrize(
    "options",
    [["--format", "oci"], ["--format", "v2s2"], ["--format", "oci", "--dest-compress-format=zstd"]],
    ids=["oci", "docker", "zstd"],
)
def test_what_skopeo_pushes_is_read(skopeo, registry, read, blob, layer, tmp_path, options) -> None:
    source = layout(tmp_path / "layout", blob, layer)
    target = f"{registry.host}/skopeo/{options[1]}{len(options)}:1"
    command = [skopeo, "copy", "--insecure-policy", "--dest-tls-verify=false", *options]
    result = subprocess.run(
        [*command, f"oci:{source}:1", f"docker://{target}"], capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr.decode()
    found = read(target)
    assert found.stack_body["cuda"] == "12.4.1"
    assert found.stack_body["cudnn"] == "9.1.0.70+cu12"
