"""Layers are read whatever the history says of them, and those that images share once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from gpu_binaries import make_elf, make_entry, make_fatbin

from compatgate.core.gpu_code import parse_arch

SITE = "usr/local/lib/python3.11/site-packages"
NOISE = random.Random(1).randbytes(200_000)
TORCH = b"__version__ = '2.9.0+cu130'\ncuda = '13.0'\n"


def metadata(name: str, version: str) -> bytes:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n".encode()


def library() -> bytes:
    (code,) = parse_arch("sm_80")
    entry = make_entry(code.kind, 10 * code.capability[0] + code.capability[1], code.suffix)
    return make_elf(DOTnv_fatbin=make_fatbin(entry), DOTrodata=NOISE)


@pytest.fixture
def base(layer):
    """A layer with an interpreter, torch of CUDA 13.0 and a package database."""
    return layer(
        {
            "usr/local/bin/python3.11": b"\x7fELF" + bytes(2000),
            "var/lib/dpkg/status": b"Package: libnccl2\nVersion: 2.25.1-1+cuda12.8\n\n",
            f"{SITE}/torch/version.py": TORCH,
            f"{SITE}/torch/lib/libtorch_cuda.so": library(),
            f"{SITE}/torch-2.9.0+cu130.dist-info/METADATA": metadata("torch", "2.9.0+cu130"),
        }
    )


def test_a_history_that_names_a_variable_of_nvidia_hides_no_layer(
    registry, read, layer, base
) -> None:
    history = [
        {"created_by": "COPY torch /"},
        {"created_by": "RUN : NV_CUDNN_VERSION", "empty_layer": True},
        {"created_by": "COPY . /app"},
    ]
    env = {"CUDA_VERSION": "12.1.1", "NV_CUDNN_VERSION": "8.9.2.26-1"}
    image = registry.push(base, layer({"app/main.py": b""}), env=env, history=history)
    for mode in ("auto", "all"):
        found = read(image.reference, layers=mode)
        assert (found.layers, found.layers_read) == (2, 2)
        assert (found.stack_body["torch"], found.stack_body["cuda"]) == ("2.9.0+cu130", "13.0")


def test_a_base_that_two_images_share_is_read_once(
    registry, read, layer, base, tmp_path: Path
) -> None:
    cache = str(tmp_path / "cache")
    env = {"PATH": "/usr/local/bin"}
    hiding = {f"{SITE}/torch/version.py": TORCH.replace(b"2.9.0", b"2.9.1"), "app/.wh.x": b""}
    first = registry.push(base, layer(hiding), env=env)
    second = registry.push(base, layer({"app/main.py": b"2"}), env=env)
    assert read(first.reference, cache=cache).bytes_read > len(NOISE)

    found = read(second.reference, cache=cache)

    alone = read(second.reference)
    assert found.bytes_read < 10_000 < base.size
    assert alone.bytes_read > base.size
    assert found.to_whole_request() == alone.to_whole_request()
    assert (found.observations, found.content) == (alone.observations, alone.content)
    assert (found.open, found.layers_read) == (alone.open, 2)
    assert found.interpreters == alone.interpreters
    assert found.interpreters.find(["python3.11"]) == "usr/local/lib/python3.11"


@pytest.mark.parametrize("damage", [b"", b"{}", b"0" * 65 + b"{}", None])
def test_a_damaged_record_is_read_again(
    registry, read, layer, base, tmp_path: Path, damage: bytes | None
) -> None:
    cache = tmp_path / "cache"
    one = registry.push(base, layer({"app/main.py": b"1"}))
    two = registry.push(base, layer({"app/main.py": b"2"}))
    before = read(one.reference, cache=str(cache))
    for path in cache.rglob("*.json"):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + b" " if damage is None else damage)
    after = read(two.reference, cache=str(cache))
    assert after.bytes_read > base.size
    assert after.stack_body == before.stack_body


def test_a_record_is_of_one_digest_and_size(registry, read, layer, base, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    read(registry.push(base, env={"A": "1"}).reference, cache=cache)
    other = layer({f"{SITE}/torch/version.py": TORCH.replace(b"2.9.0", b"2.9.1")})
    assert read(registry.push(other).reference, cache=cache).stack_body["torch"] == "2.9.1+cu130"


def test_what_was_not_verified_is_not_recorded(registry, read, layer, base, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    image = registry.push(base)
    read(image.reference, cache=str(cache), needs=("torch",))
    assert not list(cache.rglob("*.json"))
