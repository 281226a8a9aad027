"""CG410 to CG414 on records given as data."""

import pytest

from compatgate.core.facts.records import Library, Record, TorchAbi
from compatgate.core.request import Policy
from compatgate.core.rule import Fix

H100 = "driver=580.95.05,gpu=H100-SXM5-80GB"
A100 = "driver=580.95.05,gpu=A100-SXM4-80GB"
ARM = "driver=580.95.05,gpu=GH200-96GB"
RTX_5090 = "driver=580.95.05,gpu=RTX 5090"
BASE = "torch=2.9.1+cu128"


def library(path="fast/_C.so", **fields):
    counted = [*fields.get("sass", {}).values(), *fields.get("ptx", {}).values()]
    units = sum(fields.get("profiles", {}).values()) or max(counted, default=0)
    return Library(path, units=units, **fields)


def units(**profiles):
    """Units with different code: ``units(sm_80=27, sm_90=1)``."""
    return {"profiles": profiles, "sass": profiles}


def record(
    version="1.0", *libraries, name="fast", tag="cp312-cp312-manylinux_2_28_x86_64", **fields
):
    wheel = f"{name.replace('-', '_')}-{version}-{tag}.whl"
    return Record(name, version, wheel, libraries=libraries, **fields)


def found(verdict, rule):
    return [f for f in verdict.findings if f.rule == rule]


# --- CG410 ------------------------------------------------------------------------------------


def test_a_package_without_a_record_is_unknown_by_name(ask_with):
    verdict = ask_with(H100, f"{BASE},fast=1.0")
    (finding,) = found(verdict, "CG410")
    assert (verdict.verdict, verdict.allowed) == ("unknown", False)
    assert (finding.component, finding.outcome) == ("fast", "unknown")
    assert "no record describes the content of fast 1.0" in finding.message
    assert "check --read-wheels" in finding.need
    assert "compatgate facts measure fast==1.0 --overlay fast.yaml" in finding.need


def test_nobody_is_told_to_download_a_misspelt_package(ask_with):
    for name, meant in (("xfromers", "xformers"), ("torchvison", "torchvision")):
        (finding,) = found(ask_with(H100, f"{BASE},{name}=1.0"), "CG410")
        assert finding.outcome == "unknown"
        assert finding.message.endswith(f"; did you mean {meant}?")
        assert "measure" not in finding.need
        assert "wheel" not in finding.need


def test_the_newest_release_with_a_record_is_named(ask_with):
    verdict = ask_with(H100, f"{BASE},fast=1.2", record("1.1"), record("1.0"))
    assert "the newest release with a record is 1.1" in found(verdict, "CG410")[0].message


def test_a_policy_that_audits_packages_warns_and_allows(ask_with):
    verdict = ask_with(H100, f"{BASE},fast=1.0", policy=Policy(packages="audit"))
    assert (verdict.verdict, verdict.allowed) == ("warn", True)
    assert found(verdict, "CG410")[0].outcome == "warn"


def test_two_stacks_that_differ_in_one_package_have_different_verdicts(ask_with):
    ids = {ask_with(H100, f"{BASE},fast={v}", policy=Policy(packages="audit")).id for v in "12"}
    assert len(ids) == 2


def test_a_library_of_a_known_toolkit_needs_no_record(ask):
    verdict = ask(H100, f"{BASE},nvidia-cufft-cu12=11.3.3.83")
    assert "CG410" in verdict.checked.passed


def test_a_library_of_no_known_toolkit_is_open(ask):
    verdict = ask(H100, f"{BASE},nvidia-cufft-cu12=11.9.9.9")
    assert [f.component for f in found(verdict, "CG410")] == ["nvidia-cufft-cu12"]


def test_a_package_that_compiles_options_alone_is_named_and_never_open(ask):
    verdict = ask(H100, f"{BASE},transformers=9.9.9")
    assert verdict.stack["transformers"] == "9.9.9"
    assert "CG410" in verdict.checked.passed


def test_a_package_that_never_has_gpu_code_needs_no_record(ask):
    verdict = ask(H100, f"{BASE},torchmetrics=9.9.9,numpy=1.26.4")
    assert verdict.stack["numpy"] == "1.26.4"
    assert "CG410" in verdict.checked.passed
    assert [f.component for f in found(ask(H100, f"{BASE},nompy=1.26.4"), "CG410")] == ["nompy"]


def test_a_component_has_the_records_of_its_package_for_a_cuda(facts, ask, monkeypatch):
    one = record("2.7.0", library(sass={"sm_80": 1}), name="transformer-engine-cu12")
    monkeypatch.setattr(facts, "recorded", {*facts.recorded, one.package})
    monkeypatch.setattr(facts, "records", lambda name: (one,) if name == one.package else ())
    monkeypatch.setattr(facts, "memory", {})
    assert found(ask(A100, f"{BASE},transformer-engine-cu12=2.7.0"), "CG411") == []
    (finding,) = found(ask(H100, f"{BASE},transformer-engine-cu12=2.7.0"), "CG411")
    assert (finding.component, finding.outcome) == ("transformer-engine", "fail")


# --- CG411 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ({"sass": {"sm_80": 9, "sm_90": 9}}, None),
        ({"sass": {"sm_80": 9}, "ptx": {"compute_80": 9}, "ptx_cuda": "12.8"}, None),
        ({"sass": {"sm_80": 9}}, "fail"),
        (units(sm_80=27, sm_90=1), "fail"),  # a stray unit is no support
        (units(sm_80=20, sm_90=8), None),  # another unit for each GPU
        (units(sm_80=8, sm_90=20), None),
        (units(sm_100a=60, sm_90=4), None),  # for one architecture alone: not used here
        ({"sass": {"sm_80": 9}, "ptx": {"compute_90": 9}}, "unknown"),  # by which toolkit?
        ({"sass": {"sm_80": 9}, "ptx": {"compute_90": 9}, "ptx_cuda": "13.5"}, "fail"),
    ],
)
def test_the_code_of_a_library_decides_where_it_runs(ask_with, code, outcome):
    verdict = ask_with(H100, f"{BASE},fast=1.0", record("1.0", library(**code)))
    assert [f.outcome for f in found(verdict, "CG411")] == ([outcome] if outcome else [])


MIXED = {
    "sass": {"sm_80": 46, "sm_100": 30},
    "ptx": {"compute_90": 16},
    "ptx_cuda": "12.8",
    "profiles": {"sm_80+sm_100": 30, "sm_80+compute_90": 16},
}
"""Like vLLM 0.9.1: most units have nothing for a GPU of 12.0, some have PTX that runs there."""


def test_ptx_of_a_few_units_is_no_support_where_most_have_no_code(ask_with):
    verdict = ask_with(RTX_5090, f"{BASE},fast=1.0", record("1.0", library(**MIXED)))
    assert [f.outcome for f in found(verdict, "CG411")] == ["fail"]
    verdict = ask_with(A100, f"{BASE},fast=1.0", record("1.0", library(**MIXED)))
    assert found(verdict, "CG411") == []


@pytest.mark.parametrize(
    ("other", "outcome"),
    [
        ({"sass": {"sm_120": 9}}, "warn"),  # made for this GPU: the part is for others
        ({"sass": {"sm_80": 9}, "ptx": {"compute_90": 9}, "ptx_cuda": "12.8"}, "unknown"),
    ],
)
def test_a_part_without_code_is_open_where_the_rest_is_ptx_alone(ask_with, other, outcome):
    libraries = (library(**MIXED), library("fast/_other.so", **other))
    (finding,) = found(ask_with(RTX_5090, f"{BASE},fast=1.0", record("1.0", *libraries)), "CG411")
    assert finding.outcome == outcome
    assert ("the rest is PTX" in finding.message) == (outcome == "unknown")


def test_a_missing_architecture_names_library_code_gpu_and_proof(ask_with):
    one = record("1.0", library(sass={"sm_80": 9}), sha256="ab" * 32)
    (finding,) = found(ask_with(H100, f"{BASE},fast=1.0", one), "CG411")
    assert "fast/_C.so of fast 1.0 has no code for H100-SXM5-80GB (9.0)" in finding.message
    assert finding.have == "sm_80"
    assert one.wheel in finding.source.title
    assert "abababab" in finding.source.title


def test_libraries_for_one_architecture_alone_are_loaded_there_alone(ask_with):
    general, hopper = library(sass={"sm_80": 9}), library("fast/_C90.so", sass={"sm_90a": 40})
    assert found(ask_with(A100, f"{BASE},fast=1.0", record("1.0", general, hopper)), "CG411") == []


def test_a_bundled_library_does_not_speak_for_the_package(ask_with):
    own = library(sass={"sm_80": 9})
    bundled = library("fast.libs/libnvjpeg.so.12", sass={"sm_80": 40, "sm_90": 40})
    verdict = ask_with(H100, f"{BASE},fast=1.0", record("1.0", own, bundled))
    assert [f.outcome for f in found(verdict, "CG411")] == ["fail"]


@pytest.mark.parametrize(
    ("paths", "code", "fails"),
    [
        (("fast/lib_cuda121.so", "fast/lib_cuda128.so"), ("sm_80", "sm_90"), False),
        (("fast/lib_cuda121.so", "fast/lib_cuda128.so"), ("sm_90", "sm_80"), True),
        (("fast/sm80/lib.so", "fast/sm90/lib.so"), ("sm_80", "sm_90"), False),
        (("fast/sm80/lib.so", "fast/sm86/lib.so"), ("sm_80", "sm_86"), True),
    ],
)
def test_of_alternatives_the_one_for_the_stacks_cuda_is_loaded(ask_with, paths, code, fails):
    libraries = [library(path, sass={arch: 9}) for path, arch in zip(paths, code, strict=True)]
    one = record("1.0", *libraries, alternatives=(paths,))
    verdict = ask_with(H100, f"{BASE},fast=1.0", one)
    assert [f.outcome for f in found(verdict, "CG411")] == (["fail"] if fails else [])


@pytest.mark.parametrize(
    ("cuda", "exact", "fails"),
    [
        ("12.8", True, False),
        ("12.6", True, True),  # no library for it
        ("12.6", False, False),  # the nearest of its major
        ("13.0", False, True),  # none of its major
    ],
)
def test_a_library_that_is_named_after_a_cuda_is_wanted_for_the_stacks(
    ask_with, facts, monkeypatch, cuda, exact, fails
):
    monkeypatch.setattr(type(facts.packages), "wants_exact_cuda", lambda *_: exact)
    paths = ("fast/lib_cuda121.so", "fast/lib_cuda128.so")
    libraries = [library(path, sass={"sm_90": 9}) for path in paths]
    one = record("1.0", *libraries, alternatives=(paths,))
    verdict = ask_with(H100, f"cuda={cuda},fast=1.0", one)
    assert [f.outcome for f in found(verdict, "CG414")] == (["fail"] if fails else [])


@pytest.mark.parametrize(
    ("gpu", "fails"), [("P100-PCIE-16GB", False), ("sm_52", True), ("T4", False)]
)
def test_of_alternatives_the_one_for_the_gpu_is_loaded(ask_with, gpu, fails):
    with_lt, without = "bnb/libbitsandbytes_cuda128.so", "bnb/libbitsandbytes_cuda128_nocublaslt.so"
    one = record(
        "0.42.0",
        library(with_lt, sass={"sm_75": 9, "sm_90": 9}),
        library(without, sass={"sm_60": 9, "sm_75": 9}),
        name="bitsandbytes",
    )
    verdict = ask_with(f"driver=470.256.02,gpu={gpu}", "cuda=12.8,bitsandbytes=0.42.0", one)
    messages = [f.message for f in found(verdict, "CG411")]
    assert bool(messages) is fails
    assert all(without in message for message in messages)


def test_the_nearest_alternative_of_the_stacks_cuda_decides(ask_with):
    paths = ("fast/lib_cuda121.so", "fast/lib_cuda126.so", "fast/lib_cuda130.so")
    code = ({"sm_90": 9}, {"sm_80": 9}, {"sm_90": 9})
    libraries = [library(path, sass=sass) for path, sass in zip(paths, code, strict=True)]
    verdict = ask_with(H100, f"{BASE},fast=1.0", record("1.0", *libraries, alternatives=(paths,)))
    assert [f.outcome for f in found(verdict, "CG411")] == ["fail"]


def test_a_part_without_code_is_a_warning(ask_with):
    parts = library(sass={"sm_90": 9}), library("fast/_old.so", sass={"sm_80": 9})
    (finding,) = found(ask_with(H100, f"{BASE},fast=1.0", record("1.0", *parts)), "CG411")
    assert finding.outcome == "warn"
    assert "fast/_old.so of fast 1.0 has no code" in finding.message


def test_a_package_whose_own_code_is_an_option_does_not_fail_for_it(ask_with, facts, monkeypatch):
    monkeypatch.setattr(type(facts.packages), "is_optional", lambda _, name: name == "fast")
    one = record("1.0", library(sass={"sm_80": 9}))
    assert found(ask_with(H100, f"{BASE},fast=1.0", one), "CG411") == []


def test_a_release_with_code_for_the_gpu_is_offered(ask_with):
    older, newer = (
        record("1.0", library(sass={"sm_80": 9})),
        record("1.1", library(sass={"sm_90": 9})),
    )
    (finding,) = found(ask_with(H100, f"{BASE},fast=1.0", newer, older), "CG411")
    assert finding.fixes == (Fix({"fast": "1.1"}, "use fast 1.1"),)


def test_the_wheel_of_the_pools_processor_is_judged(ask_with):
    x86 = record("1.0", library(sass={"sm_90": 9}))
    arm = record("1.0", library(sass={"sm_80": 9}), tag="cp312-cp312-manylinux_2_28_aarch64")
    assert found(ask_with(H100, f"{BASE},fast=1.0", x86, arm), "CG411") == []
    assert [f.outcome for f in found(ask_with(ARM, f"{BASE},fast=1.0", x86, arm), "CG411")] == [
        "fail"
    ]
    assert found(ask_with(ARM, f"{BASE},fast=1.0", x86), "CG410")


@pytest.mark.parametrize(("pinned", "outcome"), [(True, "fail"), (False, "unknown")])
def test_a_wheel_without_code_is_for_cpus_where_other_platforms_have_code(
    ask_with, pinned, outcome
):
    name, tag = "torchvision", "cp312-cp312-manylinux_2_28_aarch64"
    x86 = record("0.24.1", library(sass={"sm_90": 9}), name=name)
    arm = record("0.24.1", name=name, tag=tag, sha256="a" * 64)
    stack = {"torch": "2.9.1+cu128", name: "0.24.1"}
    if pinned:
        stack["wheels"] = {name: {"file": arm.wheel, "sha256": "a" * 64}}
    (finding,) = found(ask_with(ARM, stack, x86, arm), "CG411")
    assert (finding.outcome, finding.have) == (outcome, arm.wheel)
    assert "for Linux aarch64 has no code for GPUs" in finding.message


def test_the_digest_says_which_wheel_it_is(ask_with):
    plain = record("1.0", library(sass={"sm_90": 9}), sha256="a" * 64)
    rebuilt = record(
        "1.0", library(sass={"sm_80": 9}), sha256="b" * 64, tag="1-cp312-cp312-linux_x86_64"
    )
    stack = {"torch": "2.9.1+cu128", "fast": "1.0", "wheels": {"fast": {"sha256": "b" * 64}}}
    assert found(ask_with(H100, stack, plain, rebuilt), "CG411")[0].outcome == "fail"


@pytest.mark.parametrize(("digest", "is_open"), [("", False), ("a" * 64, False), ("b" * 64, True)])
def test_a_wheel_of_the_same_name_with_another_digest_is_another_build(ask_with, digest, is_open):
    records = [
        record("1.0", library(sass={"sm_90": 9}), sha256="a" * 64),
        record("1.0", library(sass={"sm_90": 9}), sha256="c" * 64, tag="cp311-cp311-linux_x86_64"),
    ]
    wheel = {"file": records[0].wheel, **({"sha256": digest} if digest else {})}
    stack = {"torch": "2.9.1+cu128", "fast": "1.0", "wheels": {"fast": wheel}}
    messages = [f.message for f in found(ask_with(H100, stack, *records), "CG410")]
    assert bool(messages) is is_open
    assert all("its records are of other wheels" in message for message in messages)


def test_code_that_is_stated_for_a_package_is_judged_in_the_place_of_a_record(ask_with):
    assert found(ask_with(H100, f"{BASE},fast=1.0[sm_90]"), "CG410") == []
    assert found(ask_with(H100, f"{BASE},fast=1.0[sm_80+sm_90]"), "CG411") == []
    (finding,) = found(ask_with(H100, f"{BASE},fast=1.0[sm_80]"), "CG411")
    assert "fast 1.0 has no code for H100-SXM5-80GB (9.0): it has sm_80" in finding.message


# --- CG412 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requires", "fails"),
    [
        ("torch==2.9.1", False),  # the build's label is not part of the pin
        ("torch==2.8.0", True),
        ("torch>=2.10", True),
        ("torch>=2.8,<3", False),
        ("torch==2.8.0; sys_platform == 'win32'", False),
        ("torch==2.8.0; platform_machine == 'x86_64'", True),
        ("torch==2.8.0; extra == 'old'", False),
        ("numpy<1", False),  # the stack does not state it
        ("nvidia-cudnn-cu12==9.10.2.21", False),
        ("nvidia-cudnn-cu12==9.1.0.70", True),
        ("nvidia-cudnn-cu13==9.1.0.70", False),  # another package, beside this one
        ("torch==2.8.0; python_version < '3.99'", False),  # the stack states no Python
        ("not a requirement ==", False),
        ("pythn>=3", False),  # no component, and no package that the stack has
    ],
)
def test_what_a_package_requires_of_the_stack_holds_or_fails(ask_with, requires, fails):
    stack = f"{BASE},cudnn=9.10.2+cu12,fast=1.0"
    verdict = ask_with(H100, stack, record("1.0", requires=(requires,)))
    assert [f.outcome for f in found(verdict, "CG412")] == (["fail"] if fails else [])


def test_a_marker_is_asked_about_the_stacks_python(ask_with):
    one = record("1.0", requires=("torch==2.8.0; python_version < '3.12'",))
    for python, fails in (("3.11", True), ("3.12", False)):
        verdict = ask_with(H100, f"{BASE},python={python},fast=1.0", one)
        assert bool(found(verdict, "CG412")) is fails


@pytest.mark.parametrize(("extra", "fails"), [("srt", True), ("dev", False)])
def test_the_extra_that_a_package_needs_on_gpus_counts(ask_with, extra, fails):
    one = record("0.4.6", name="sglang", requires=(f"torch==2.6.0; extra == '{extra}'",))
    verdict = ask_with(H100, f"{BASE},sglang=0.4.6", one)
    assert [f.component for f in found(verdict, "CG412")] == (["torch"] if fails else [])


def test_an_unmet_pin_is_offered_in_the_stacks_own_build(ask_with):
    one = record("1.0", requires=("torch==2.8.0",))
    (finding,) = found(ask_with(H100, f"{BASE},fast=1.0", one), "CG412")
    assert "fast 1.0 requires torch ==2.8.0, the stack has 2.9.1+cu128" in finding.message
    assert finding.fixes[0].set == {"torch": "2.8.0+cu128"}


def test_packages_are_compared_with_each_other_in_both_directions(ask_with):
    one, two = record("1.0", requires=("slow>=2",)), record("1.5", name="slow")
    (finding,) = found(ask_with(H100, f"{BASE},fast=1.0,slow=1.5", one, two), "CG412")
    assert (finding.component, finding.need) == ("slow", ">=2")


# --- CG413 ------------------------------------------------------------------------------------

CXX = TorchAbi(cxx11=True, symbols=90)


@pytest.mark.parametrize(
    ("abi", "built_for", "outcome"),
    [
        (CXX, "2.9", None),
        (CXX, "2.8", "fail"),
        (CXX, None, "unknown"),
        (TorchAbi(stable=True), "2.8", None),
    ],
)
def test_an_extension_runs_with_the_torch_that_it_was_built_for(ask_with, abi, built_for, outcome):
    one = record("1.0", library(sass={"sm_90": 1}, torch=abi), built_for_torch=built_for)
    verdict = ask_with(H100, f"{BASE},fast=1.0", one)
    assert [f.outcome for f in found(verdict, "CG413")] == ([outcome] if outcome else [])


@pytest.mark.parametrize(
    ("version", "pool", "torch", "fails"),
    [
        ("1.0+cu118", H100, "2.9.1+cu128", True),
        ("1.0+cu118", H100, "2.8.0+cu128", False),
        ("1.0+mine", H100, "2.9.1+cu128", False),
        ("1.1", H100, "2.9.1+cu128", False),
        ("1.0", f"{H100},os=windows", "2.9.1+cu128", True),
    ],
)
def test_the_other_wheels_of_a_release_say_its_torch(ask_with, version, pool, torch, fails):
    abi = TorchAbi(cxx11=True, symbols=3, digest="ab")
    one = record("1.0", library(torch=abi), built_for_torch="2.8")
    verdict = ask_with(pool, f"torch={torch},fast={version}", one)
    assert [f.outcome for f in found(verdict, "CG413")] == (["fail"] if fails else [])
    assert found(verdict, "CG410")


@pytest.mark.parametrize(
    ("name", "torch", "outcome"),
    [
        ("torchvision", "2.9.1+cu118", "fail"),
        ("torchvision", "2.9.1+cu128", None),
        ("torchvision", "2.9.1+cu126", "unknown"),
        ("fast", "2.9.1+cu118", "unknown"),
    ],
)
def test_a_label_of_another_cuda_than_torch_s_is_said(ask_with, name, torch, outcome):
    brought = library("fast.libs/libcudart.7ec1eba6.so.12", soname="libcudart.so.12")
    own = library(sass={"sm_90": 1}, torch=CXX, needs=("libcudart.so.12",))
    pinned = ("torch==2.9.1",)
    one = record("1.0", own, brought, name=name, built_for_torch="2.9", requires=pinned)
    verdict = ask_with(H100, f"torch={torch},{name}=1.0+cu128", one)
    assert [f.outcome for f in found(verdict, "CG413")] == ([outcome] if outcome else [])


def test_a_wheel_that_is_named_is_not_taken_for_its_release(ask_with):
    abi = TorchAbi(cxx11=True, symbols=3, digest="ab")
    one = record("1.0", library(torch=abi), built_for_torch="2.8")
    wheel = {"file": "fast-1.0+cu118-cp312-cp312-linux_x86_64.whl"}
    stack = {"torch": "2.9.1+cu128", "fast": "1.0+cu118", "wheels": {"fast": wheel}}
    assert found(ask_with(H100, stack, one), "CG413") == []


@pytest.mark.parametrize(
    ("pins", "outcome"),
    [
        (("fast==1.0", "torch==2.9.1"), []),
        (("fast==1.0; extra == 'srt'", "torch==2.9.1; extra == 'srt'"), []),
        (("fast==1.0; extra == 'srt'", "torch==2.9.1; extra == 'all'"), ["unknown"]),
        (("fast==1.0",), ["unknown"]),
        (("fast>=1.0", "torch==2.9.1"), ["unknown"]),
        (("fast==1.0", "torch==2.8.0"), ["unknown"]),
    ],
)
def test_who_pins_an_extension_and_torch_says_that_they_belong_together(ask_with, pins, outcome):
    one = record("1.0", library(sass={"sm_90": 1}, torch=CXX))
    engine = record("5.0", name="engine", requires=pins)
    verdict = ask_with(H100, f"{BASE},fast=1.0,engine=5.0", one, engine)
    assert [f.outcome for f in found(verdict, "CG413")] == outcome


@pytest.mark.parametrize("built_for", ["2.8", None])
def test_a_package_that_works_without_its_extension_warns(ask_with, built_for):
    one = record(
        "1.0", library(sass={"sm_90": 1}, torch=CXX), name="torchao", built_for_torch=built_for
    )
    (finding,) = found(ask_with(H100, f"{BASE},torchao=1.0", one), "CG413")
    assert finding.outcome == "warn"


def test_without_torch_in_the_stack_nothing_is_said_of_it(ask_with):
    one = record("1.0", library(sass={"sm_90": 1}, torch=CXX), built_for_torch="2.8")
    assert "CG413" in ask_with(H100, "cuda=12.8,fast=1.0", one).checked.not_applicable


# --- CG414 ------------------------------------------------------------------------------------


def test_a_library_linked_against_another_cuda_runtime_fails(ask_with):
    one = record("1.0", library(sass={"sm_90": 1}, needs=("libcudart.so.13",)))
    (finding,) = found(ask_with(H100, f"{BASE},fast=1.0", one), "CG414")
    assert "linked against libcudart.so.13, the stack brings CUDA 12.8" in finding.message


def test_another_runtime_is_a_warning_for_a_package_that_works_without(ask_with):
    one = record("1.0", library(needs=("libcudart.so.13",)), name="torchao")
    (finding,) = found(ask_with(H100, f"{BASE},torchao=1.0", one), "CG414")
    assert finding.outcome == "warn"


@pytest.mark.parametrize("needs", ["libcudart.so.12", "libcublas.so.13"])
def test_a_library_linked_against_the_stacks_runtime_passes(ask_with, needs):
    one = record("1.0", library(sass={"sm_90": 1}, needs=(needs,)))
    assert found(ask_with(H100, f"{BASE},fast=1.0", one), "CG414") == []


def test_an_older_nvjitlink_than_its_users_toolkit_fails(ask):
    stack = f"{BASE},nvidia-cusparse-cu12=12.3.1.170,nvidia-nvjitlink-cu12=12.1.105"
    (finding,) = found(ask(H100, stack), "CG414")
    assert (finding.component, finding.outcome) == ("nvidia-nvjitlink-cu12", "fail")
    assert all(set(fix.set) == {"nvidia-nvjitlink-cu12"} for fix in finding.fixes)
    assert finding.fixes


@pytest.mark.parametrize("version", ["12.4.127", "12.8.93"])
def test_the_same_or_a_newer_nvjitlink_passes(ask, version):
    stack = f"{BASE},nvidia-cusparse-cu12=12.3.1.170,nvidia-nvjitlink-cu12={version}"
    assert "CG414" in ask(H100, stack).checked.passed
