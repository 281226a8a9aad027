"""The records that ship say of packages what is known of them from elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compatgate.core.facts.records import Record


@pytest.fixture
def record(facts) -> Callable[[str, str], Record]:
    def find(package: str, wheel: str) -> Record:
        found = [r for r in facts.records(package) if r.wheel.startswith(wheel)]
        assert found, f"{package}: no record of {wheel}"
        return next((r for r in found if r.wheel.endswith("x86_64.whl")), found[0])

    return find


def test_every_file_of_records_can_be_read_and_names_digests(facts):
    for name in facts.recorded:
        found = facts.records(name)
        assert found or facts.statements(name), name
        assert all(len(r.sha256 or "") == 64 for r in found), name


@pytest.mark.parametrize(
    ("version", "defines"),
    [
        ("12.1.105", ("12_0", "12_1")),
        ("12.4.127", ("12_0", "12_1", "12_2", "12_3", "12_4")),
    ],
)
def test_nvjitlink_defines_the_symbols_of_its_release_and_of_those_before(record, version, defines):
    (library,) = record("nvidia-nvjitlink-cu12", f"nvidia_nvjitlink_cu12-{version}-").libraries
    assert (library.soname, library.defines) == ("libnvJitLink.so.12", defines)


@pytest.mark.parametrize(
    ("package", "version", "symbols"),
    [
        ("nvidia-cusparse-cu12", "12.1.0.106", ("12_1",)),
        ("nvidia-cusparse-cu12", "12.3.1.170", ("12_4",)),
        ("nvidia-cusparse-cu12", "12.5.8.93", ("12_8",)),
        ("nvidia-cusparse-cu12", "12.5.10.65", ("12_9",)),
    ],
)
def test_cusparse_asks_for_the_symbols_of_its_toolkit(record, package, version, symbols):
    found = record(package, f"{package.replace('-', '_')}-{version}-")
    asked = [library.symbols for library in found.libraries if library.symbols]
    assert asked
    assert all(one == {"libnvJitLink.so.12": symbols} for one in asked)


def test_cusolver_needs_nvjitlink_but_none_of_its_symbols(record):
    found = record("nvidia-cusolver-cu12", "nvidia_cusolver_cu12-11.6.1.9-").libraries
    assert all("libnvJitLink.so.12" in library.needs for library in found)
    assert not any(library.symbols for library in found)


def test_faiss_1_14_1_has_nothing_for_hopper(record):
    found = record("faiss-gpu-cu12", "faiss_gpu_cu12-1.14.1-")
    codes = [library for library in found.libraries if library.carries_code]
    assert [library.sass for library in codes] == [{"sm_70": 182, "sm_80": 182}]
    assert not any(library.ptx for library in codes)


def test_of_the_libraries_of_bitsandbytes_one_is_loaded(record):
    found = record("bitsandbytes", "bitsandbytes-0.48.1-")
    (group,) = found.alternatives
    assert len(group) == 11
    by_path = {library.path: library for library in found.libraries}
    newest = by_path["bitsandbytes/libbitsandbytes_cuda130.so"]
    assert "libcudart.so.13" in newest.needs
    assert set(newest.sass) == {f"sm_{n}" for n in (75, 80, 86, 89, 90, 100, 120)}
    assert newest.ptx_cuda == "13.0"


def test_the_one_unit_of_vllm_for_maxwell_is_seen_as_one(record):
    found = record("vllm", "vllm-0.11.0-")
    (library,) = [one for one in found.libraries if one.path == "vllm/_C.abi3.so"]
    assert (library.sass["sm_52"], library.units, library.ptx_cuda) == (1, 80, "12.8")
    assert library.profiles["sm_80+sm_87+sm_90+compute_90"] == 14
    assert sum(library.profiles.values()) == 80


def test_thousands_of_cubins_are_a_few_lines(record):
    found = record("flashinfer-cubin", "flashinfer_cubin-0.6.9-")
    assert len(found.libraries) < 10
    assert sum(library.units for library in found.libraries) > 10_000
    assert {arch for library in found.libraries for arch in library.sass} == {
        "sm_100a",
        "sm_100f",
        "sm_103a",
    }


def test_xformers_and_torchvision_were_built_for_one_torch(record):
    assert record("xformers", "xformers-0.0.32.post2-").built_for_torch == "2.8"
    assert record("torchvision", "torchvision-0.24.0-").built_for_torch == "2.9"


def test_triton_and_xgrammar_carry_no_code(record):
    for package, wheel in (("triton", "triton-3.5.0-"), ("xgrammar", "xgrammar-")):
        assert not any(library.carries_code for library in record(package, wheel).libraries)


def test_a_release_after_all_that_the_facts_know_never_passes_silently(ask, facts):
    known = facts.packages
    names = {*known.by_name, *facts.recorded} - facts.framework_names
    asked = {name for name in names if known.carries(name) in ("code", "runtime", "dependencies")}
    silent = {
        name
        for name in asked
        for version in ("999.0", "2999.1")
        if not known.is_optional(name)
        and ask("driver=590.48.01,gpu=H100-PCIe-80GB", f"cuda=12.8,{name}={version}").verdict
        == "pass"
    }
    assert silent == set()


@pytest.mark.parametrize(
    "stack", ["liger-kernel=0.5.2", "flash-linear-attention=0.2.0", "sageattention=1.0.6"]
)
def test_kernels_in_triton_are_not_known_to_run_below_its_floor(ask, stack):
    pascal = ask("driver=580.95.05,gpu=GeForce-GTX-1080", f"torch=2.5.1+cu124,{stack}")
    assert pascal.verdict == "unknown"
    turing = ask("driver=580.95.05,gpu=T4", f"torch=2.5.1+cu124,{stack}")
    assert turing.verdict == "pass"
