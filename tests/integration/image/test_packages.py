"""GPU packages of an image: each with what its own files hold, from layers read once, in order."""

from __future__ import annotations

import pytest
from gpu_binaries import make_entry, make_fatbin
from installed import SITE, install, install_conda, unpack
from wheels import make_shared_object

from compatgate.catalog import load_facts
from compatgate.discovery.local import inspect_path


@pytest.fixture(scope="module")
def facts():
    return load_facts(overlays=[])


@pytest.fixture
def pull(registry, read, facts):
    """The stack of an image with these layers, the lowest first."""

    def call(*layers):
        image = registry.push(*layers)
        options = {"arch_facts": facts.arch, "packages": facts.packages}
        return read(image.reference, **options)

    return call


def code(*archs: int, **fields) -> bytes:
    unit = make_fatbin(*(make_entry("sass", arch) for arch in archs))
    return make_shared_object(code=unit, data=bytes(4000), **fields)


TORCH = {
    f"torch/lib/{name}": code(80, 90, defined=["_ZN3c105ErrorE"], needs=["libcudart.so.12"])
    for name in ("libc10.so", "libtorch_cpu.so", "libtorch_python.so", "libtorch_cuda.so")
}
EXTENSION = code(80, needs=["libc10.so"], undefined=[("_ZN3c105ErrorE", "")])
BROKEN = code(80, needs=["libc10.so"], undefined=[("_ZN3c107OldNameE", "")])
PARTS = {
    **install("torch", "2.9.1+cu128", TORCH, requires=["triton==3.5.1"]),
    **install("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": EXTENSION}, requires=["torch"]),
    **install("xformers", "0.0.33", {"xformers/_C.so": BROKEN}, requires=["torch==2.9.0"]),
    **install("numpy", "2.0.0", {"numpy/_core.so": make_shared_object(data=bytes(4000))}),
    **install_conda("libmine", "2.0", {"lib/libmine.so": code(75)}),
}


def test_every_gpu_package_of_an_image_has_a_record(pull, layer):
    found = pull(layer(PARTS)).stack_body
    assert set(found["measured"]) == {"torch", "flash-attn", "xformers", "libmine"}
    assert found["libmine"] == "2.0+conda"
    assert "numpy" not in found
    assert "arch" not in found
    flash = found["measured"]["flash-attn"]
    assert flash["wheel"] == "flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl"
    assert flash["libraries"][0]["sass"] == {"sm_80": 1}


def test_two_extensions_are_compared_with_the_torch_of_the_image(pull, layer):
    measured = pull(layer(PARTS)).stack_body["measured"]
    assert measured["flash-attn"]["torch_beside"] == "2.9.1"
    assert "torch_missing" not in measured["flash-attn"]
    assert measured["xformers"]["torch_missing"] == ["_ZN3c107OldNameE"]


def test_the_order_of_files_and_layers_does_not_matter(pull, layer):
    together = pull(layer(PARTS)).stack_body
    backwards = pull(layer(dict(reversed(PARTS.items())))).stack_body
    apart = pull(*(layer({path: data}) for path, data in PARTS.items())).stack_body
    assert together["measured"] == backwards["measured"] == apart["measured"]


def test_an_image_and_its_unpacked_root_say_the_same(pull, layer, facts, tmp_path):
    pulled = pull(layer(PARTS)).stack_body
    root = unpack(tmp_path / "root", PARTS)
    assert (
        inspect_path(str(root), facts.arch, facts.packages).stack["measured"]
        == (pulled["measured"])
    )


def test_a_package_that_a_layer_above_replaced_has_the_files_from_above(pull, layer):
    above = install("flash-attn", "2.8.4", {"flash_attn_2_cuda.so": code(90)})
    removed = f"{SITE}/.wh.flash_attn-2.8.3.dist-info"
    found = pull(layer(PARTS), layer({**above, removed: b""})).stack_body
    assert found["flash-attn"] == "2.8.4"
    assert found["measured"]["flash-attn"]["libraries"][0]["sass"] == {"sm_90": 1}


def test_a_damaged_library_leaves_its_package_open_by_name(pull, layer):
    cut = install("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": EXTENSION[:-100]})
    found = pull(layer({**PARTS, **cut}))
    assert found.stack_body["measured"]["flash-attn"]["unread"] == ["flash_attn_2_cuda.so"]
    assert not any("flash_attn" in sentence for sentence in found.open)


def test_loose_code_and_nvidia_s_own_libraries_are_kept_apart(pull, layer):
    nvidia = install(
        "nvidia-cusparse-cu12",
        "12.5.8.93",
        {"nvidia/cusparse/lib/libcusparse.so.12": code(50, soname="libcusparse.so.12")},
    )
    found = pull(layer({**PARTS, **nvidia, "opt/app/libmine.so": code(75)})).stack_body
    assert found["arch"] == ["sm_75"]
    assert found["nvidia-cusparse-cu12"] == "12.5.8.93"
    (library,) = found["measured"]["nvidia-cusparse-cu12"]["libraries"]
    assert library["soname"] == "libcusparse.so.12"


def test_a_kept_reading_holds_the_records(registry, read, layer, facts, tmp_path):
    image = registry.push(layer(PARTS))
    options = {"arch_facts": facts.arch, "packages": facts.packages, "cache": str(tmp_path)}
    first = read(image.by_digest(), **options)
    again = read(image.by_digest(), **options)
    assert (again.stack_body, again.bytes_read) == (first.stack_body, 0)
