"""The digest of an image's GPU content: what changes it, and what does not."""

from __future__ import annotations

from gpu_binaries import make_elf, make_entry, make_fatbin

from compatgate.canary.worker import make_content_reader
from compatgate.core.gpu_code import parse_arch
from compatgate.discovery.registry.limits import ImageOptions

SITE = "usr/local/lib/python3.11/site-packages"
TORCH = f"{SITE}/torch-2.5.1+cu124.dist-info"
ENV = {"PATH": "/usr/bin", "GIT_COMMIT": "1", "NCCL_P2P_DISABLE": "0"}


def library(name: str, filler: int = 0) -> bytes:
    (code,) = parse_arch(name)
    entry = make_entry(code.kind, 10 * code.capability[0] + code.capability[1], code.suffix)
    return make_elf(DOTnv_fatbin=make_fatbin(entry), DOTrodata=bytes([filler]) * 70_000)


BASE = {
    "usr/bin/python3.11": b"\x7fELF the interpreter" + bytes(2000),
    f"{TORCH}/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.5.1+cu124\n\n",
    f"{TORCH}/RECORD": b"torch/nn.py,sha256=aaa,10\ntorch/__pycache__/nn.pyc,,\n",
    f"{SITE}/torch/version.py": b"__version__ = '2.5.1+cu124'\ncuda = '12.4'\n",
    f"{SITE}/torch/lib/libtorch_cuda.so": library("sm_80"),
    f"{SITE}/requests-2.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: requests\n"
    b"Version: 2.0\n\n",
    f"{SITE}/requests-2.0.dist-info/RECORD": b"requests/a.py,sha256=aaa,10\n",
    "usr/local/cuda/lib64/libcufft.so.11": b"\x7fELF cufft" + bytes(2000),
    "app/main.py": b"print(1)\n",
}


def test_only_what_a_gpu_run_tests_changes_the_content(registry, read, layer) -> None:
    def content(change: dict[str, bytes], env: dict[str, str] = ENV, links=None) -> str | None:
        app = layer({**BASE, **change}, links=links or {"usr/bin/python3": "python3.11"})
        return read(registry.push(app, env=env).reference).content

    first = content({})
    assert first is not None
    same = {
        "the application": content({"app/main.py": b"print(2)\n", "app/more.py": b""}),
        "a package without GPU code": content(
            {f"{SITE}/requests-2.0.dist-info/RECORD": b"requests/a.py,sha256=bbb,10\n"}
        ),
        "compiled files in a file list": content(
            {f"{TORCH}/RECORD": b"torch/__pycache__/nn.py310.pyc,,\ntorch/nn.py,sha256=aaa,10\n"}
        ),
        "a variable of the application": content({}, {**ENV, "GIT_COMMIT": "2"}),
    }
    assert {name for name, digest in same.items() if digest != first} == set()
    other = {
        "GPU code": content({f"{SITE}/torch/lib/libtorch_cuda.so": library("sm_80", 1)}),
        "a version": content(
            {f"{SITE}/torch/version.py": b"__version__ = '2.5.0+cu124'\ncuda = '12.4'\n"}
        ),
        "a file of a GPU package": content({f"{TORCH}/RECORD": b"torch/nn.py,sha256=bbb,10\n"}),
        "the interpreter": content({"usr/bin/python3.11": b"#!/bin/sh\necho env\n"}),
        "a link in place of the interpreter": content({}, links={"usr/bin/python3": "/app/sh"}),
        "a library of NVIDIA": content(
            {"usr/local/cuda/lib64/libcufft.so.11": b"\x7fELF other" + bytes(2000)}
        ),
        "a variable that NCCL reads": content({}, {**ENV, "NCCL_P2P_DISABLE": "1"}),
    }
    assert {name for name, digest in other.items() if digest == first} == set()
    assert len(set(other.values())) == len(other)


def test_the_content_is_unknown_where_not_every_layer_was_read(registry, read, layer) -> None:
    image = registry.push(layer(BASE), layer({"app/main.py": b"1"}))
    assert read(image.reference).content == read(image.reference, layers="all").content
    assert read(image.reference, layers="none").content is None
    assert read(image.reference, needs=("torch",)).content is None
    assert "content" in read(image.reference).to_request()


def test_a_worker_reads_the_content_that_the_gate_reads(
    registry, read, layer, signals, facts, tmp_path
) -> None:
    (tmp_path / "credentials").mkdir()
    options = ImageOptions(docker_config=str(tmp_path / "credentials"))
    content_of = make_content_reader(facts, signals, options)
    image = registry.push(layer(BASE), env=ENV)
    found = content_of(image.by_digest())
    asked = read(image.reference, arch_facts=facts.arch, packages=facts.packages)
    assert (found.digest, found.why) == (asked.content, "")
    assert image.digest in found.images
    gone = f"{image.reference.rpartition(':')[0]}@sha256:{'0' * 64}"
    assert content_of(gone).digest is None
    assert "the image was not read" in content_of(gone).why
    assert "by its id sha256:000000000000" in content_of(f"sha256:{'0' * 64}").why
