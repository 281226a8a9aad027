"""`check --image` and `inspect` through the real command, on a real registry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from catalogue import own_cache
from gpu_binaries import make_entry, make_fatbin
from installed import install
from wheels import make_shared_object

SITE = "usr/local/lib/python3.11/site-packages"


@pytest.fixture
def compatgate(tmp_path):
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": own_cache(tmp_path),
        "DOCKER_CONFIG": str(tmp_path),
    }

    def run(*arguments: str):
        return subprocess.run(
            [sys.executable, "-m", "compatgate", *arguments],
            capture_output=True,
            text=True,
            timeout=90,
            env=environment,
            check=False,
        )

    return run


def metadata(name: str, version: str) -> bytes:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n".encode()


def rebuilt(layer, cudnn: str):
    return layer(
        {
            f"{SITE}/torch-2.2.2+cu121.dist-info/METADATA": metadata("torch", "2.2.2+cu121"),
            f"{SITE}/nvidia_cudnn_cu12-{cudnn}.dist-info/METADATA": metadata(
                "nvidia-cudnn-cu12", cudnn
            ),
        }
    )


POOL = ["--pool", "driver=535.183.01,gpu=A100-SXM4-80GB"]


def test_a_rebuild_that_pulls_a_new_cudnn_major_is_denied_by_its_reference_alone(
    registry, layer, compatgate
):
    before = registry.push(rebuilt(layer, "8.9.2.26"))
    after = registry.push(rebuilt(layer, "9.1.0.70"))

    good = compatgate("check", *POOL, "--image", before.reference, "--format", "json")
    bad = compatgate("check", *POOL, "--image", after.reference, "--format", "json")

    assert good.returncode == 0, good.stderr + good.stdout
    assert bad.returncode == 1, bad.stderr + bad.stdout
    verdict = json.loads(bad.stdout)
    assert verdict["image"].endswith(after.digest)
    denied = next(f for f in verdict["findings"] if f["rule"] == "CG402")
    assert denied["outcome"] == "fail"
    assert denied["fixes"][0]["set"]["cudnn"].startswith("8.9.2")


def test_a_history_that_names_a_variable_of_nvidia_allows_nothing(registry, layer, compatgate):
    torch = {f"{SITE}/torch-2.9.0+cu130.dist-info/METADATA": metadata("torch", "2.9.0+cu130")}
    history = [
        {"created_by": "COPY torch /"},
        {"created_by": "RUN : NV_CUDNN_VERSION", "empty_layer": True},
    ]
    env = {"CUDA_VERSION": "12.1.1", "NV_CUDNN_VERSION": "8.9.2.26-1"}
    image = registry.push(layer(torch), env=env, history=history)

    answer = compatgate("check", *POOL, "--image", image.reference, "--format", "json")

    assert answer.returncode == 1, answer.stderr + answer.stdout
    verdict = json.loads(answer.stdout)
    assert verdict["stack"]["cuda"] == "13.0"
    assert "fail" in {f["outcome"] for f in verdict["findings"]}


DPKG = b"Package: cuda-compat-13-0\nStatus: install ok installed\nVersion: 580.65.06-1\n\n"
COMPAT = "usr/local/cuda-13.0/compat/libcuda.so.580.65.06"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"var/lib/dpkg/status": DPKG}, 1),
        ({COMPAT: b""}, 1),
        ({"usr/local/cuda/compat/libcuda.so.580.65.06": bytes(2**20)}, 1),
        ({COMPAT: bytes(2**20)}, 0),
    ],
    ids=["a record of the package", "an empty library", "of no CUDA", "the library"],
)
def test_only_its_library_shows_that_an_image_has_forward_compatibility(
    registry, layer, compatgate, files, code
):
    torch = {f"{SITE}/torch-2.9.0+cu130.dist-info/METADATA": metadata("torch", "2.9.0+cu130")}
    step = {"created_by": "RUN apt-get install -y cuda-compat-13-0"}
    env = {
        "NV_CUDA_COMPAT_PACKAGE": "cuda-compat-13-0",
        "_CUDA_COMPAT_PATH": "/usr/local/cuda/compat",
        "CUDA_DRIVER_VERSION": "580.65.06",
        "LD_LIBRARY_PATH": "/usr/local/cuda/compat",
    }
    image = registry.push(layer({**torch, **files}), env=env, history=[step])

    answer = compatgate("check", *POOL, "--image", image.reference, "--format", "json")

    verdict = json.loads(answer.stdout)
    assert answer.returncode == code, answer.stdout
    assert ("cuda-compat" in verdict["stack"]) == (code == 0)


def program(**code: Any) -> bytes:
    """A program with GPU code, large enough to be read."""
    return make_shared_object(code=make_fatbin(make_entry(**code)), behind=bytes(4096))


NEW_CODE = program(kind="ptx", isa=(9, 0))


@pytest.mark.parametrize(
    ("files", "denied"),
    [
        ({"app/main.so": NEW_CODE}, "fail"),
        ({"app/main.so": NEW_CODE, "usr/local/cuda-12.1/lib64/libcudart.so.12.1.105": b""}, "fail"),
        ({"app/main.so": program()}, "unknown"),
        ({"app/main.py": b"import requests"}, "unknown"),
        ({"usr/lib/libcudart.so.13": b""}, "unknown"),
    ],
    ids=["PTX of 13.0", "beside a library of 12.1", "code of any", "no code", "a soname of 13"],
)
def test_a_variable_alone_does_not_say_the_cuda_of_an_image(
    registry, layer, compatgate, files, denied
):
    image = registry.push(layer(files), env={"CUDA_VERSION": "12.1.1"})
    verdict = json.loads(
        compatgate("check", *POOL, "--image", image.reference, "--format", "json").stdout
    )
    assert verdict["verdict"] == denied, verdict["findings"]


@pytest.mark.parametrize(
    ("path", "denied"),
    [
        ("root/.cache/pypoetry/virtualenvs/app/lib/python3.11/site-packages", "fail"),
        ("root/.cache/uv/environments-v2/app/lib/python3.11/site-packages", "fail"),
        ("opt/conda/pkgs/pytorch-2.9.1/lib/python3.11/site-packages", "unknown"),
        ("root/.cache/uv/archive-v0/x", "unknown"),
    ],
)
def test_packages_in_a_cache_are_no_hiding_place(registry, layer, compatgate, path, denied):
    old, new = ({f"torch-{v}.dist-info/METADATA": metadata("torch", v)} for v in TORCH)
    shown = layer({f"{SITE}/{name}": data for name, data in old.items()})
    image, same = (
        registry.push(layer({f"{path}/{name}": data for name, data in files.items()}), shown)
        for files in (new, old)
    )

    verdict = json.loads(
        compatgate("check", *POOL, "--image", image.reference, "--format", "json").stdout
    )
    assert verdict["verdict"] == denied, verdict["findings"]
    assert compatgate("check", *POOL, "--image", same.reference).returncode == 0


TORCH = ("2.4.1+cu121", "2.9.1+cu130")


def test_a_program_of_a_newer_cuda_beside_an_installation_is_judged(registry, layer, compatgate):
    torch = {f"{SITE}/torch-2.4.1+cu121.dist-info/METADATA": metadata("torch", TORCH[0])}
    image = registry.push(layer({"app/main.so": NEW_CODE}), layer(torch))
    answer = compatgate("check", *POOL, "--image", image.reference)
    assert answer.returncode == 1
    assert "outside of installations: driver 535.183.01 is too old for CUDA 13.0" in answer.stdout


@pytest.mark.parametrize(
    ("stated", "wheel", "verdict"),
    [
        ("__version__ = '2.4.1+cu121'\ncuda = '12.1'\n", "2.9.1+cu130", "unknown"),
        ("__version__ = '2.4.1+cu121'\ncuda = '12.1'\n", "2.4.1+cu130", "unknown"),
        ("__version__ = '2.9.1+cu130'\ncuda = '13.0'\n", "2.4.1+cu121", "fail"),
        ("__version__ = '2.4.1+cu130'\ncuda = '12.1'\n", "2.4.1", "fail"),
        ("__version__ = '2.4.1+cu121'\ncuda = '12.1'\n", "2.4.1", "warn"),
        ("__version__ = '2.4.1+cu121'\ncuda = '12.1'\n", "2.4.1+cu121", "warn"),
    ],
)
def test_a_version_file_that_contradicts_its_wheel_leaves_open_what_runs(
    registry, layer, compatgate, stated, wheel, verdict
):
    files = {
        f"{SITE}/torch-{wheel}.dist-info/METADATA": metadata("torch", wheel),
        f"{SITE}/torch/version.py": stated.encode(),
    }
    image = registry.push(layer(files))
    answer = compatgate("check", *POOL, "--image", image.reference, "--format", "json")
    assert json.loads(answer.stdout)["verdict"] == verdict, answer.stdout
    assert ("which runs is not known" in answer.stdout) == (verdict != "warn")


def test_what_the_image_shows_wins_over_what_is_stated_and_is_a_finding(
    registry, layer, compatgate
):
    image = registry.push(rebuilt(layer, "9.1.0.70"))
    answer = compatgate(
        "check", *POOL, "--image", image.reference, "--stack", "cudnn=8.9.2", "--format", "json"
    )
    verdict = json.loads(answer.stdout)
    assert verdict["stack"]["cudnn"].startswith("9.1.0")
    assert any(f["rule"] == "CG902" for f in verdict["findings"])


def test_a_registry_that_does_not_answer_is_no_decision(compatgate):
    answer = compatgate("check", *POOL, "--image", "127.0.0.1:9/team/app:1")
    assert answer.returncode == 3
    assert len(answer.stderr.strip().splitlines()) == 1


def test_inspect_shows_an_image_with_where_each_part_was_seen(registry, layer, compatgate):
    image = registry.push(rebuilt(layer, "9.1.0.70"))
    shown = json.loads(compatgate("inspect", image.reference, "--format", "json").stdout)
    assert shown["stack"]["torch"] == "2.2.2+cu121"
    assert all(SITE in o["origin"] for o in shown["observations"])


def test_an_extension_built_in_the_image_is_judged_from_its_own_files(registry, layer, compatgate):
    def image(arch: int):
        code = make_fatbin(make_entry("sass", arch))
        library = make_shared_object(code=code, data=bytes(4000))
        runtime = {"usr/local/cuda/lib64/libcudart.so.12.2.140": b"\x7fELF"}
        built = install("mine", "0.1.dev3", {"mine/_C.so": library})
        return registry.push(layer({**runtime, **built}))

    runs, lacks = (
        compatgate("check", *POOL, "--image", image(arch).reference, "--format", "json")
        for arch in (80, 90)
    )
    assert (runs.returncode, lacks.returncode) == (0, 1), runs.stderr + lacks.stderr
    good, bad = json.loads(runs.stdout), json.loads(lacks.stdout)
    assert good["id"] != bad["id"]
    (denied,) = (f for f in bad["findings"] if f["outcome"] == "fail")
    assert (denied["rule"], denied["component"]) == ("CG411", "mine")


def test_the_worst_image_that_a_runtime_may_choose_of_an_index_decides(registry, layer, compatgate):
    def torch(version: str):
        return layer({f"{SITE}/torch-{version}.dist-info/METADATA": metadata("torch", version)})

    images = [registry.push(torch(version)) for version in ("2.4.1+cu121", "2.9.1+cu130")]
    repository = images[0].reference.partition("/")[2].partition(":")[0]
    registry.copy(images[1], repository)
    manifests = [
        {
            "mediaType": image.media_type,
            "digest": image.digest,
            "size": image.size,
            "platform": {"os": "linux", "architecture": "amd64", "variant": variant},
        }
        for image, variant in zip(images, ("v3", ""), strict=True)
    ]
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    }
    pushed = registry.push_manifest(repository, index, tag="index")
    assert compatgate("check", *POOL, "--image", images[0].reference).returncode == 0
    result = compatgate("check", *POOL, "--image", pushed.by_digest(), "--format", "json")
    assert result.returncode == 1, result.stderr + result.stdout
    assert json.loads(result.stdout)["image"].endswith(images[1].digest)


def test_an_inspection_keeps_every_installation(registry, layer, compatgate, tmp_path):
    def torch(prefix: str, version: str):
        site = f"{prefix}/lib/python3.11/site-packages/torch-{version}.dist-info/METADATA"
        return layer({site: metadata("torch", version)})

    image = registry.push(torch("opt/new", "2.9.1+cu130"), torch("opt/aged", "2.4.1+cu121"))
    written = compatgate("inspect", image.reference, "--format", "json")
    assert written.returncode == 0, written.stderr
    (tmp_path / "app.json").write_text(written.stdout)
    found = compatgate("check", *POOL, "--probe", str(tmp_path / "app.json"), "--format", "json")
    assert found.returncode == 1, found.stderr
    (other,) = json.loads(found.stdout)["stack"]["alternatives"].values()
    assert other["torch"] in ("2.9.1+cu130", "2.4.1+cu121")
