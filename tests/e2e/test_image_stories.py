"""The stories that begin with an image reference and nothing else, through REST and the command."""

from __future__ import annotations

import json

import pytest
from gpu_binaries import make_elf, make_entry, make_fatbin
from image_blobs import SITE, distribution, layer_of

PROD = {
    "metadata": {"name": "prod", "labels": {"tier": "prod"}},
    "spec": {
        "pools": [
            {"name": "a100", "gpu": "NVIDIA A100-SXM4-80GB", "driver": "535.183.01", "count": 512}
        ],
        "policy": {"mode": "enforce", "requireEntry": True},
    },
}
BLESSED_89 = {
    "metadata": {"name": "torch22-cudnn89"},
    "spec": {
        "targets": ["prod"],
        "components": {"cuda": "12.1.*", "cudnn": "8.9.*", "torch": "~=2.2.0"},
        "status": "blessed",
        "reason": "suite dl-core passed on staging",
    },
}
STAGING = {"driver": "550.54.15", "gpu": "A100-SXM4-80GB"}
PRODUCTION = {"driver": "535.183.01", "gpu": "L4"}


@pytest.fixture
def server(start_server, registry):
    server = start_server("--registry", registry.host)
    server.admin("POST", "targets", PROD)
    server.admin("POST", "entries", BLESSED_89)
    return server


def serving(cudnn: str):
    """A layer as a rebuild makes it: the same PyTorch, whatever cuDNN the index had that day."""
    return layer_of({**distribution("torch", "2.2.2+cu121"),
                     **distribution("nvidia-cudnn-cu12", cudnn)})  # fmt: skip


def extension():
    """An extension with machine code for Hopper, and PTX of CUDA 12.4 for what is older."""
    code = make_fatbin(make_entry("sass", 90), make_entry("ptx", 80, isa=(8, 4)))
    library = make_elf(DOTnv_fatbin=code) + bytes(2048)
    return layer_of(
        {f"{SITE}/fast_ops/_C.so": library, "usr/lib/libcudart.so.12.4.127": b"\x7fELF"}
    )


def rest(server, **question):
    status, answer = server.call("POST", "gate", question)
    assert status == 200, answer
    return answer


def command(server, *arguments: str):
    answer = server.check(*arguments, "--format", "json")
    assert answer.stdout, answer.stderr
    return answer.returncode, json.loads(answer.stdout)


def failed(answer):
    return {f["rule"]: f for f in answer["findings"] if f["outcome"] == "fail"}


def test_a_rebuild_that_pulled_cudnn_9_is_denied_by_its_reference_alone(server, registry):
    before = registry.push(serving("8.9.2.26"))
    after = registry.push(serving("9.1.0.70"))

    blessed = rest(server, target="prod", image=before.reference)
    assert blessed["allowed"]
    assert blessed["image"] == f"{before.reference}@{before.digest}"
    assert blessed["stack"]["cudnn"] == "8.9.2.26+cu12"

    rebuilt = rest(server, target="prod", image=after.reference)
    assert not rebuilt["allowed"]
    assert rebuilt["image"] == f"{after.reference}@{after.digest}"
    denied = failed(rebuilt)
    assert {"CG402", "CG801"} <= denied.keys()
    assert denied["CG801"]["fixes"][0]["set"]["cudnn"].startswith("8.9")

    # The command reads the image itself; the server, which may, reads it too and agrees.
    status, by_hand = command(server, "--target", "prod", "--image", after.reference)
    assert status == 1
    assert by_hand["image"] == rebuilt["image"]
    assert {"CG402", "CG801"} <= failed(by_hand).keys()


def test_code_that_runs_on_the_a100_of_staging_and_not_on_the_l4_of_production_is_denied(
    server, registry
):
    image = registry.push(extension())

    staging = rest(server, pool=STAGING, image=image.reference)
    production = rest(server, pool=PRODUCTION, image=image.reference)

    assert staging["stack"]["arch"] == ["sm_90", "compute_80"]
    assert staging["allowed"]
    assert not failed(staging)
    assert not production["allowed"]
    assert "NVIDIA L4 (8.9)" in failed(production)["CG202"]["message"] or "CG202" in failed(
        production
    )

    pool = ",".join(f"{key}={value}" for key, value in PRODUCTION.items())
    status, by_hand = command(server, "--pool", pool, "--image", image.reference)
    assert status == 1
    assert "CG202" in failed(by_hand)


def test_code_for_other_gpus_alone_is_denied_as_no_kernel_image(server, registry):
    library = make_elf(DOTnv_fatbin=make_fatbin(make_entry("sass", 90))) + bytes(2048)
    image = registry.push(
        layer_of({f"{SITE}/x/_C.so": library, "usr/lib/libcudart.so.12.1.105": b"\x7fELF"})
    )
    denied = failed(rest(server, pool=PRODUCTION, image=image.reference))
    assert "CG201" in denied


def test_a_second_check_of_the_same_digest_reads_nothing_from_the_registry(server, registry):
    image = registry.push(serving("8.9.2.26"))
    first = rest(server, target="prod", image=image.by_digest())
    asked = len(registry.asked())

    assert rest(server, target="prod", image=image.by_digest())["id"] == first["id"]
    assert len(registry.asked()) == asked

    rest(server, target="prod", image=image.reference)
    (only,) = registry.asked()[asked:]
    assert only.startswith("HEAD /v2/")


def test_an_ordinary_nvidia_cuda_image_passes_on_a_host_that_needs_no_forward_compatibility(
    server, registry
):
    env = {
        "CUDA_VERSION": "12.4.1",
        "NV_CUDA_COMPAT_PACKAGE": "cuda-compat-12-4",
        "NVIDIA_REQUIRE_CUDA": "cuda>=12.4 brand=tesla,driver>=470,driver<471",
    }
    package = layer_of({"usr/local/cuda-12.4/compat/libcuda.so.550.54.15": bytes(2**20)})
    ordinary = registry.push(package, env=env)
    forced = registry.push(package, env={**env, "LD_LIBRARY_PATH": "/usr/local/cuda/compat"})
    for gpu in ("A100-SXM4-80GB", "GeForce-RTX-4090"):
        pool = {"driver": "580.65.06", "gpu": gpu}
        assert not failed(rest(server, pool=pool, image=ordinary.reference))
        assert "CG103" in failed(rest(server, pool=pool, image=forced.reference))
