"""Spack environments: what is linked or run, with the code of its variants."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compatgate.errors import BadInput, InconclusiveInput


def node(name: str, version: str = "1.0", **more: Any) -> dict[str, Any]:
    arch = {"platform": "linux", "platform_os": "rocky9", "target": "x86_64_v3"}
    return {"name": name, "version": version, "arch": arch, "parameters": {}, **more}


def lock(*nodes: dict[str, Any], version: int = 6, prefix: str = "", **more: Any) -> str:
    meta = {"file-type": "spack-lockfile", "lockfile-version": version}
    specs = {f"h{prefix}{number}": one for number, one in enumerate(nodes)}
    roots = [{"hash": key, "spec": specs[key]["name"]} for key in specs]
    return json.dumps({"_meta": meta, "roots": roots, "concrete_specs": specs, **more})


def test_components_are_those_at_run_time_and_their_code_is_the_variants(read, stack):
    """Cython is built with another Python, and CMake with an older CUDA: neither runs."""
    assert stack("spack/spack.lock") == {
        "torch": "2.5.1+spack",
        "cuda": "12.4.1",
        "cudnn": "9.2.0.82+cu12",
        "nccl": "2.22.3",
        "python": "3.11.9",
    }
    reading = read("spack/spack.lock")
    assert reading.arch == ("sm_80",)  # xformers has no more
    assert reading.open == ()
    packages = {o.component: o.version for o in reading.observations}
    assert packages["xformers"] == "0.0.28.post3+spack"


_TABLE: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("py-torch", {"parameters": {"cuda": False}}, "torch 2.4.1+cpu"),
    ("py-torch", {"parameters": {"rocm": True}}, "torch 2.4.1+rocm"),
    ("py-torch", {"parameters": {"cuda": True}}, "torch 2.4.1+spack"),
    ("cudnn", {"version": "8.9.7.29-12"}, "cudnn 8.9.7.29+cu12"),
    ("nccl", {"version": "git.49839d=2.29.7-1-git.2"}, "nccl 2.29.7"),
    ("cuda", {"version": "12.9.1", "external": {"path": "/usr/local/cuda"}}, "cuda 12.9.1"),
)


def test_versions_are_read_as_spack_spells_them(read):
    for name, more, expected in _TABLE:
        reading = read("spack.lock", lock(node(name, **{"version": "2.4.1", **more})))
        seen = [f"{o.component} {o.version}" for o in reading.observations]
        assert seen == [expected], name
    bare = read("spack.lock", lock(node("py-torch", "2.4.1", parameters={"cuda": True})))
    assert "arch: spack.lock states no cuda_arch for py-torch" in bare.open


def test_code_that_packages_do_not_share_is_open(read):
    nodes = [
        node(name, parameters={"cuda": True, "cuda_arch": [arch]})
        for name, arch in (("py-torch", "80"), ("magma", "90"))
    ]
    reading = read("spack.lock", lock(*nodes))
    assert reading.arch == ()
    assert "arch: magma, py-torch have no cuda_arch in common (spack.lock)" in reading.open


def test_old_versions_of_the_file_spell_nodes_and_edges_otherwise(read):
    edges = {"cuda": {"hash": "h1", "type": ["build", "link"]}}
    torch = {**node("py-torch", "1.10.0"), "dependencies": edges}
    nested = [{one.pop("name"): one} for one in (torch, node("cuda", "11.4.2"))]
    document = json.loads(lock(*({"name": "x", **n} for n in nested), version=1))
    document["concrete_specs"] = {f"h{n}": one for n, one in enumerate(nested)}
    document["roots"] = document["roots"][:1]
    reading = read("spack.lock", json.dumps(document))
    assert {o.component for o in reading.observations} == {"torch", "cuda"}
    third = node("py-torch", dependencies=[{"name": "cuda", "build_hash": "h1", "type": ["link"]}])
    text = lock(third, node("cuda", "11.4.2"), version=3)
    assert "cuda" in {o.component for o in read("spack.lock", text).observations}


def test_included_environments_count(read, stack):
    inner = json.loads(lock(node("cudnn", "9.2.0.82-12"), prefix="inner"))
    text = lock(node("cuda", "12.4.1"), include_concrete={"/envs/base": inner})
    assert stack("spack.lock", text) == {"cuda": "12.4.1", "cudnn": "9.2.0.82+cu12"}


def test_a_lock_without_gpu_packages_is_unrelated(read):
    assert read("spack.lock", lock(node("zlib-ng"), node("fftw"))).unrelated


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (lock(node("cuda"), version=99), BadInput, "known version"),
        (
            lock(node("cuda"), roots=[{"hash": "gone"}]),
            BadInput,
            "'gone', which is missing in the file",
        ),
        (lock(node("cuda"), concrete_specs=[]), BadInput, "must be an object"),
        (lock(node("cuda", arch={"platform": "darwin"})), InconclusiveInput, "is for darwin"),
        (
            lock(node("cuda", arch={"platform": "linux", "target": {"name": "neoverse_v2"}})),
            InconclusiveInput,
            "is for aarch64, linux",
        ),
        (lock(), InconclusiveInput, "has no packages"),
    ],
)
def test_what_cannot_be_read_says_why(read, text, error, says):
    with pytest.raises(error, match=says):
        read("spack.lock", text)
