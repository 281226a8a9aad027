"""Releases without facts: what the releases near them tell never denies, and may warn."""

import pytest
from msgspec.structs import replace

from compatgate.core.facts.frameworks import Container, Containers
from compatgate.core.facts.nvidia import Source
from compatgate.core.facts.records import Library, Record, TorchAbi
from compatgate.core.versions import parse_version

H100 = "driver=580.95.05,gpu=H100-SXM5-80GB"
B200 = "driver=580.95.05,gpu=B200"
CUDA = "cuda=12.8"


def wheel(version, *code, cuda="12.4", requires=(), torch=None, needs=(), cpu="x86_64"):
    library = Library(
        "fast/_C.so",
        needs=needs,
        sass={name: 4 for name in code if name.startswith("sm")},
        ptx={name: 4 for name in code if name.startswith("compute")},
        units=4,
        ptx_cuda=cuda,
        torch=torch,
    )
    file = f"fast-{version}-py3-none-manylinux_2_28_{cpu}.whl"
    return Record("fast", version, file, libraries=(library,), requires=requires)


def open_package(verdict):
    return next((f for f in verdict.findings if f.rule == "CG410"), None)


def test_a_release_between_two_measured_ones_that_run_is_a_warning(ask_with):
    records = wheel("1.0", "sm_80", "sm_90"), wheel("1.4", "sm_90")
    verdict = ask_with(H100, f"{CUDA},fast=1.2", *records)
    finding = open_package(verdict)
    assert (verdict.verdict, finding.outcome) == ("warn", "warn")
    assert (
        "it is assumed to be like 1.0 and 1.4, which were measured and run here" in finding.message
    )


def test_releases_that_pin_a_torch_bring_it_where_the_stack_states_none(ask_with):
    records = [replace(wheel(text, "sm_90"), built_for_torch="2.9") for text in ("1.0", "1.4")]
    assert open_package(ask_with(H100, f"{CUDA},fast=1.2", *records)).outcome == "warn"
    other = ask_with(H100, "torch=2.8.0+cu128,fast=1.2", *records)
    assert open_package(other).outcome == "unknown"


@pytest.mark.parametrize(
    ("pool", "version", "records"),
    [
        (H100, "1.2", [wheel("1.0", "sm_80"), wheel("1.4", "sm_90")]),
        (H100, "1.2", [wheel("1.0", "sm_90"), wheel("1.4", "sm_100")]),
        (B200, "1.2", [wheel("1.0", "sm_80"), wheel("1.4", "sm_90")]),
        (H100, "1.5", [wheel("1.0", "sm_90"), wheel("1.4", "sm_90")]),
        (H100, "0.9", [wheel("1.0", "sm_90"), wheel("1.4", "sm_90")]),
        (H100, "1.2+cu128", [wheel("1.0", "sm_90"), wheel("1.4", "sm_90")]),
        (H100, "1.2", [wheel("1.0", "sm_90", cpu="aarch64"), wheel("1.4", "sm_90")]),
        (H100, "1.2", [wheel("1.0", "sm_90"), wheel("1.4", "sm_90", torch=TorchAbi(symbols=9))]),
        (H100, "1.2", [wheel("1.0", "sm_90"), wheel("1.4", "sm_90", needs=("libcudart.so.13",))]),
        (H100, "1.2", [wheel("1.0", "sm_90"), wheel("1.4", "compute_90", cuda="13.4")]),
    ],
    ids=[
        "the older does not run",
        "the newer does not run",
        "neither runs",
        "newer than all",
        "older than all",
        "a label",
        "another processor",
        "code for one torch",
        "another CUDA runtime",
        "PTX of a newer toolkit",
    ],
)
def test_anything_else_leaves_it_open_and_denies_nothing(ask_with, pool, version, records):
    verdict = ask_with(pool, f"{CUDA},fast={version}", *records)
    assert open_package(verdict).outcome == "unknown"
    assert verdict.verdict == "unknown"


def test_requirements_of_both_must_hold(ask_with):
    records = wheel("1.0", "sm_90"), wheel("1.4", "sm_90", requires=("numba-cuda>=0.20",))
    assert ask_with(H100, f"{CUDA},fast=1.2,numba-cuda=0.21", *records).verdict != "fail"
    verdict = ask_with(H100, f"{CUDA},fast=1.2,numba-cuda=0.19", *records)
    assert next(f for f in verdict.findings if f.component == "fast").outcome == "unknown"


def test_the_cuda_of_the_newer_one_is_assumed_and_denies_nothing(ask_with):
    records = wheel("1.0", "sm_90", cuda="12.4"), wheel("1.4", "sm_90", cuda="12.8")
    assert ask_with(H100, "fast=1.2", *records).verdict == "warn"
    old = ask_with("driver=470.57.02,gpu=H100-SXM5-80GB", "fast=1.2", *records)
    by_rule = {f.rule: f.outcome for f in old.findings}
    assert by_rule["CG101"] == by_rule["CG410"] == "unknown"


OLD_DRIVER = "driver=470.57.02,gpu=A100-SXM4-80GB"


@pytest.mark.parametrize("stack", ["cudf-cu12=25.6.0", "nvidia-dali-cuda120=1.26.0"])
def test_the_cuda_major_in_the_name_of_a_package_denies_an_older_driver(ask, stack):
    verdict = ask(OLD_DRIVER, stack)  # no wheel of it was measured
    by_rule = {f.rule: f.outcome for f in verdict.findings}
    assert by_rule["CG101"] == "fail"


def test_a_release_near_others_says_nothing_of_the_cuda_of_frameworks(ask_with):
    records = wheel("1.0", "sm_90"), wheel("1.4", "sm_90")
    verdict = ask_with(OLD_DRIVER, "torch=2.4.1,fast=1.2", *records)
    by_rule = {f.rule: f.outcome for f in verdict.findings}
    assert by_rule["CG101"] == "fail"


def test_the_driver_must_do_for_the_newer_one(ask_with):
    records = wheel("1.0", "sm_90", cuda="12.4"), wheel("1.4", "sm_90", cuda="13.0")
    verdict = ask_with("driver=550.54.15,gpu=H100-SXM5-80GB", f"{CUDA},fast=1.2", *records)
    assert open_package(verdict).outcome == "unknown"


def test_two_numbers_name_the_newest_measured_release_of_a_series(ask_with):
    records = wheel("1.4.1", "sm_90"), wheel("1.4.3", "sm_80"), wheel("1.5.0", "sm_90")
    verdict = ask_with(H100, f"{CUDA},fast=1.4", *records)
    found = {f.rule: f for f in verdict.findings}
    assert found["CG411"].outcome == "fail"
    assert "the release is assumed to be 1.4.3" in found["CG411"].message
    assert open_package(ask_with(H100, f"{CUDA},fast=1.4.0", *records)).outcome == "unknown"


def test_a_candidate_that_is_built_as_its_release_is_judged_as_it(ask, facts, monkeypatch):
    table = facts.framework("tensorflow")
    release = table.releases[-1].version
    stack = f"tensorflow={release}rc1,cuda=10.0"
    outcome = {f.rule: f.outcome for f in ask(L4, stack).findings}
    assert outcome["CG405"] == "unknown"
    known = replace(table, candidates=frozenset({f"{release}rc1"}))
    monkeypatch.setitem(facts._frameworks, "tensorflow", known)
    monkeypatch.setattr(facts, "memory", {})
    found = {f.rule: f for f in ask(L4, stack).findings}
    assert "CG405" not in found
    assert found["CG401"].message.startswith(("no build of tensorflow", "whether there is a build"))


@pytest.fixture
def with_patches(facts, monkeypatch):
    """Let the table of TensorRT say that patch releases have the builds of their minor."""
    table = facts.framework("tensorrt")
    said = replace(table, unlisted_patches=Source("support matrix", None))
    monkeypatch.setitem(facts._frameworks, "tensorrt", said)
    monkeypatch.setattr(facts, "memory", {})


L4 = "driver=580.95.05,gpu=L4"


@pytest.mark.parametrize("version", ["8.6", "8.6.2", "8.6.2.3"])
def test_a_patch_without_a_row_is_like_its_minor_release(ask, with_patches, version):
    verdict = ask(L4, f"tensorrt={version},cuda=12.1")
    known = ask(L4, "tensorrt=8.6.1,cuda=12.1")
    assert verdict.verdict == known.verdict


def test_a_patch_without_a_row_is_unknown_where_no_source_says_so(ask):
    verdict = ask(L4, "tensorrt=8.6.2,cuda=12.1")
    assert "CG401" in {f.rule for f in verdict.findings if f.outcome == "unknown"}


def test_another_minor_release_is_unknown(ask, with_patches):
    verdict = ask(L4, "tensorrt=8.7.0,cuda=12.1")
    assert "CG401" in {f.rule for f in verdict.findings if f.outcome == "unknown"}


def test_what_the_minor_release_excludes_does_not_deny_its_patch(ask, with_patches):
    known = ask(L4, "tensorrt=8.6.1,cuda=12.1,cudnn=9.1.0")
    assert {f.rule: f.outcome for f in known.findings}["CG402"] == "fail"
    patch = ask(L4, "tensorrt=8.6.2,cuda=12.1,cudnn=9.1.0")
    assert {f.rule: f.outcome for f in patch.findings}["CG402"] == "unknown"


def image(month, cuda, capability=None, driver=None):
    source = Source(f"notes of {month}", None)
    version = parse_version("cuda", cuda)
    return Container(month, "tritonserver", version, source, capability, driver)


def test_a_month_of_triton_without_notes_is_like_the_months_around_it(ask, facts, monkeypatch):
    noted = image("24.01", "12.3.2", (6, 0), "545"), image("24.03", "12.4.0", (6, 0), "550")
    images = Containers((noted[0], image("24.02", "12.3.2"), noted[1]))
    monkeypatch.setattr(facts, "containers", images)
    monkeypatch.setattr(facts, "memory", {})
    finding = open_package(ask(L4, "tritonserver=24.02"))
    assert finding.outcome == "warn"
    assert "assumed to be like 24.01 and 24.03, whose notes support this GPU" in finding.message
    older = ask("driver=545.23.08,gpu=GeForce-RTX-4090", "tritonserver=24.02")
    assert open_package(older).outcome == "unknown"


def test_a_torch_whose_label_is_the_commit_of_an_image_is_judged_by_its_notes(
    ask, facts, monkeypatch
):
    noted = replace(image("23.08", "12.2.1", (6, 0), "535"), pytorch="2.1.0a0+29c30b1")
    monkeypatch.setattr(facts, "containers", Containers((noted,)))
    monkeypatch.setattr(facts, "memory", {})
    found = {f.rule: f for f in ask(L4, "torch=2.1.0a0+29c30b1").findings}
    assert found["CG405"].outcome == "warn"
    assert "assumed to be that of NVIDIA's image 23.08" in found["CG405"].message
    longer = {f.rule: f.outcome for f in ask(L4, "torch=2.1.0a0+29c30b1ab2").findings}
    assert longer["CG405"] == "warn"
    other = {f.rule: f.outcome for f in ask(L4, "torch=2.1.0a0+29c30b2").findings}
    assert other["CG405"] == "unknown"


def test_an_image_of_the_month_may_say_the_cuda_of_torchs_image():
    of_torch = replace(image("24.06", "12.5.0"), cuda=None, pytorch="2.4.0a0+f70bd71a48")
    images = Containers((of_torch, image("24.06", "12.5.0")))
    assert images.month_of_commit("2.4.0a0+f70bd71") == "24.06"
    assert not Containers((of_torch,)).month_of_commit("2.4.0a0+f70bd71")


def test_a_label_that_names_the_cuda_of_the_index_wheel_means_that_wheel(ask_with):
    record = wheel("1.0", "sm_80", "sm_90", needs=("libcudart.so.12",))
    same = open_package(ask_with(H100, f"{CUDA},fast=1.0+cu128", record))
    assert same.outcome == "warn"
    assert "it is assumed to be like 1.0" in same.message
    of_torch = replace(record, requires=("torch>=2.4",))
    beside = ask_with(H100, f"{CUDA},fast=1.0+cu128", of_torch)
    assert open_package(beside).outcome == "unknown"
    for label in ("cu118", "cu128torch2.4", "acme"):
        other = open_package(ask_with(H100, f"{CUDA},fast=1.0+{label}", record))
        assert other.outcome == "unknown"
    newer = ask_with(B200, f"{CUDA},fast=1.0+cu128", record)
    assert open_package(newer).outcome == "unknown"


def test_the_cuda_of_a_label_is_exact_and_not_only_the_least(ask_with):
    record = wheel("1.0", "sm_80", needs=("libcudart.so.12",))
    found = {f.rule: f for f in ask_with(B200, "fast=1.0+cu124", record).findings}
    assert found["CG203"].outcome == "fail"
    assert "CUDA 12.4 does not support" in found["CG203"].message


def test_a_release_that_pins_a_torch_without_code_for_the_gpu_fails(ask):
    new = "driver=580.95.05,gpu=RTX-5090"
    finding = next(f for f in ask(new, "vllm=0.8.2").findings if f.rule == "CG405")
    assert finding.outcome == "fail"
    assert "requires torch 2.6.0, of which no wheel has code" in finding.message
    stated = ask(new, "vllm=0.8.2,torch=2.6.0+cu124")
    assert all("of which no wheel" not in f.message for f in stated.findings)


def test_a_cudnn_without_a_row_is_like_its_minor_and_denies_nothing(ask):
    known = ask(L4, "cuda=11.8,cudnn=9.11.0")
    assert {f.rule: f.outcome for f in known.findings}["CG301"] == "fail"
    patch = ask(L4, "cuda=11.8,cudnn=9.11.7")
    assert {f.rule: f.outcome for f in patch.findings}["CG301"] == "unknown"
    assert "CG301" in {f.rule for f in ask(L4, "cuda=12.4,cudnn=9.99.0").findings}


def test_the_build_of_a_component_is_no_update_of_the_toolkit(ask_with):
    record = wheel("1.0", "sm_90", requires=("nvidia-cuda-runtime-cu12>=12.1.105",))
    assert ask_with(H100, "cuda=12.1,fast=1.0", record).verdict == "pass"
    verdict = ask_with(H100, "cuda=12.0,fast=1.0", record)
    assert "CG412" in {f.rule for f in verdict.findings}


def test_a_version_without_a_wheel_of_its_own_has_the_label_of_torchs(ask_with):
    labelled = wheel("1.0+cu128", "sm_80")
    denied = ask_with(H100, "torch=2.9.1+cu128,fast=1.0", labelled)
    finding = next(f for f in denied.findings if f.rule == "CG411")
    assert "assumed to have the label of torch's, cu128" in finding.message
    assert (
        ask_with(H100, "torch=2.9.1+cu128,fast=1.0", wheel("1.0+cu128", "sm_90")).verdict == "pass"
    )
    assert open_package(ask_with(H100, "torch=2.9.1+cu126,fast=1.0", labelled)).outcome == "unknown"


def test_a_candidate_is_like_the_release_that_it_leads_to(ask_with):
    finding = open_package(ask_with(H100, f"{CUDA},fast=1.4rc2", wheel("1.4", "sm_90")))
    assert finding.outcome == "warn"
    assert "it is assumed to be like 1.4, which was measured and runs here" in finding.message
    denied = ask_with(H100, f"{CUDA},fast=1.4rc2", wheel("1.4", "sm_80"))
    assert (denied.verdict, open_package(denied).outcome) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("records", "outcome"),
    [
        ([wheel("1.4.0", "sm_90"), wheel("1.5.0", "sm_80")], "warn"),
        ([wheel("1.4.0", "sm_80"), wheel("1.5.0", "sm_90")], "warn"),
        ([wheel("1.4.0", "sm_80"), wheel("1.5.0", "sm_80")], "unknown"),
        ([wheel("1.6.0", "sm_90")], "unknown"),
    ],
    ids=["its own", "the next", "neither", "a later one"],
)
def test_the_number_of_a_nightly_build_may_lag_by_one_minor(ask_with, records, outcome):
    verdict = ask_with(H100, f"{CUDA},fast=1.4.0.dev20250601", *records)
    assert open_package(verdict).outcome == outcome


def for_windows(record):
    return replace(record, wheel=record.wheel.replace("manylinux_2_28_x86_64", "win_amd64"))


def test_a_wheel_read_for_linux_alone_tells_of_windows_where_the_project_had_one_before(ask_with):
    windows = "driver=581.29,gpu=GeForce-RTX-4090,os=windows"
    linux, before = wheel("1.4", "sm_89"), for_windows(wheel("1.0", "sm_89"))
    verdict = ask_with(windows, f"{CUDA},fast=1.4", linux, before)
    assert verdict.verdict == "warn"
    assert "it is assumed to be like its wheel for Linux" in open_package(verdict).message
    assert open_package(ask_with(windows, f"{CUDA},fast=1.4", linux)).outcome == "unknown"
    older = ask_with(windows, f"{CUDA},fast=1.4", wheel("1.4", "sm_90"), before)
    assert open_package(older).outcome == "unknown"


def test_a_month_of_triton_without_an_image_has_the_cuda_of_the_next_of_the_same_major():
    images = Containers(
        (image("24.01", "12.3.2", (6, 0), "545"), image("24.03", "12.4.0", (6, 0), "550"))
    )
    assert images.cuda_of("24.02") == (parse_version("cuda", "12.4.0"), ("24.01", "24.03"))
    assert images.cuda_of("24.04") is None
    other_major = Containers((*images.containers, image("24.05", "13.0.0", (7, 5), "580")))
    assert other_major.cuda_of("24.04") is None
