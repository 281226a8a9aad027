"""The compiled form says what the files say, no more and no less."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from compatgate.catalog import build, compiled, load_facts
from compatgate.catalog.library import Library, compile_all, read_document, table_names
from compatgate.core import facts as tables
from compatgate.core.facts.compilers import Compilers, Glibc
from compatgate.core.facts.errors import ErrorTable
from compatgate.core.facts.jetson import Jetson
from compatgate.core.facts.node import KernelModules, KernelSupport, NodeParts
from compatgate.core.facts.nvidia import Peaks
from compatgate.core.facts.packages import CudaComponents, Packages
from compatgate.core.facts.platforms import PlatformMachines, Platforms
from compatgate.core.facts.precision import PrecisionTable
from compatgate.core.facts.records import WheelPlaces
from compatgate.core.facts.vgpu import Vgpu, VgpuTypes
from compatgate.core.facts.xid import XidTable
from compatgate.errors import CatalogError

KINDS = {
    "cuda_driver": tables.CudaDriver,
    "driver_branches": tables.DriverBranches,
    "forward_compat": tables.ForwardCompat,
    "gpus": tables.Gpus,
    "cuda_arch_support": tables.CudaArch,
    "cudnn": tables.Cudnn,
    "nccl": tables.Nccl,
    "known_issues": tables.KnownIssues,
    "ngc_containers": tables.Containers,
    "xid": XidTable,
    "components": Packages,
    "cuda_components": CudaComponents,
    "gpu_peaks": Peaks,
    "error_signatures": ErrorTable,
    "platforms": Platforms,
    "jetson": Jetson,
    "compilers": Compilers,
    "vgpu": Vgpu,
    "vgpu_types": VgpuTypes,
    "kernel_modules": KernelModules,
    "node_components": NodeParts,
    "kernel_support": KernelSupport,
    "glibc": Glibc,
    "platform_machines": PlatformMachines,
    "precision": PrecisionTable,
    "wheel_places": WheelPlaces,
}


@pytest.mark.parametrize("name", build.TABLES)
def test_a_compiled_table_equals_a_fresh_one(name: str) -> None:
    fresh = build.adapt(name, read_document(build.table(name).source))
    loaded = Library().load(name, KINDS.get(name, tables.Framework))
    assert loaded == fresh
    assert msgspec.msgpack.encode(loaded) == msgspec.msgpack.encode(fresh)


def test_the_same_facts_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    compile_all(str(first))
    compile_all(str(second))
    names = sorted(path.name for path in first.iterdir())
    assert len(names) == len(table_names()) + 1
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_a_version_keeps_its_spelling_and_its_build() -> None:
    torch = load_facts([]).framework("torch")
    assert torch is not None
    pin = next(r for r in torch.releases if r.version.text == "2.4.1").builds[0].pins["cudnn"]
    assert pin.floor is not None
    assert pin.floor.text == "9.1.0.70"


def test_a_file_without_what_its_adapter_reads_is_named() -> None:
    with pytest.raises(CatalogError) as caught:
        compiled.compile_table("nccl", {"schema": "facts/nccl/v1"}, {"nccl": "0"}, "code")
    assert caught.value.detail.startswith("nccl.releases: is missing")


def test_a_value_that_is_not_a_version_is_named() -> None:
    names = ("deb_rpm_cuda_suffixes_seen", "min_cc_derived", "default_gencode_by_build_cuda")
    row = {"version": "two", "cuda_majors_of_wheels": [13], **dict.fromkeys(names)}
    broken = {"releases": [{**row, "source": "here", "confidence": "derived"}]}
    with pytest.raises(CatalogError) as caught:
        compiled.compile_table("nccl", broken, {"nccl": "0"}, "code")
    assert caught.value.field == "nccl.releases[version=two].version"
    assert caught.value.problem == "'two' is not a version of nccl"
    assert "like 2.21.5" in caught.value.hint
    assert caught.value.value == "two"


def test_a_value_of_another_type_is_named() -> None:
    row = {"branch": 550, "eol": None, "type": 5, "source": "here", "confidence": "derived"}
    names = ("nvidia_smi_cuda", "first_linux_release", "last_linux_release_seen")
    broken = {"branches": [{**row, **dict.fromkeys(names)}]}
    with pytest.raises(CatalogError) as caught:
        compiled.compile_table("driver_branches", broken, {}, "code")
    assert caught.value.field == "driver_branches.branches[branch=550].type"
    assert caught.value.problem.startswith("has the wrong form: ")


def test_another_form_is_not_read(tmp_path: Path) -> None:
    made = compiled.CompiledTable(compiled.SCHEMA + 1, "nccl", "code", {"nccl": "0"}, b"")
    (tmp_path / "nccl.msgpack").write_bytes(msgspec.msgpack.encode(made))
    assert compiled.read(str(tmp_path / "nccl.msgpack")) is None


def test_half_a_file_is_not_read(tmp_path: Path) -> None:
    made = compiled.CompiledTable(compiled.SCHEMA, "nccl", "code", {"nccl": "0"}, b"payload")
    (tmp_path / "nccl.msgpack").write_bytes(msgspec.msgpack.encode(made))
    path = tmp_path / "nccl.msgpack"
    assert compiled.read(str(path)) == made
    path.write_bytes(path.read_bytes()[:-3])
    assert compiled.read(str(path)) is None
    assert [p.name for p in tmp_path.iterdir()] == ["nccl.msgpack"]
