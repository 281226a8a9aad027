"""CG410 to CG413 on what is stated of packages that are compiled elsewhere."""

import pytest

from compatgate.core.facts.nvidia import Source
from compatgate.core.facts.records import (
    BuildList,
    Library,
    ProjectWheels,
    Record,
    Statement,
    TorchAbi,
)
from compatgate.core.gpu_code import parse_arch
from compatgate.core.request import Policy

H100 = "driver=580.95.05,gpu=H100-SXM5-80GB"
T4 = "driver=580.95.05,gpu=T4"
B200 = "driver=580.95.05,gpu=B200"
BASE = "torch=2.9.1+cu128"


def statement(versions=">=1.0,<2", compiled="install", confidence="metadata", **fields):
    return Statement(versions, compiled, Source("setup.py", None, confidence), **fields)


def builds(*names, cuda=None):
    return BuildList(tuple(code for name in names for code in parse_arch(name)), cuda)


@pytest.fixture
def ask_with(facts, ask, monkeypatch):
    """Ask with statements, and records, of one's own in the place of the shipped ones."""

    def asked(pool, stack, *statements, records=(), **options):
        monkeypatch.setattr(facts, "statements", lambda name: statements if name == "fast" else ())
        monkeypatch.setattr(facts, "records", lambda name: records if name == "fast" else ())
        monkeypatch.setattr(facts, "memory", {})
        return ask(pool, stack, **options)

    return asked


def found(verdict, rule):
    return [f for f in verdict.findings if f.rule == rule]


def test_a_capability_below_the_least_is_denied_with_the_words_of_the_source(ask_with):
    said = statement(least_capability=(8, 0), says="only for Ampere")
    verdict = ask_with(T4, f"{BASE},fast=1.5", said)
    (finding,) = found(verdict, "CG411")
    assert (finding.outcome, finding.have) == ("fail", "1.5")
    assert "compute capability 8.0 and newer, not on T4 (7.5): only for Ampere" in finding.message
    assert found(verdict, "CG410") == []


def test_a_capability_above_the_last_is_denied(ask_with):
    said = statement(least_capability=(8, 0), last_capability=(9, 0))
    (finding,) = found(ask_with(B200, f"{BASE},fast=1.5", said), "CG411")
    assert finding.need == "compute capability 8.0 to 9.0"


def test_stated_code_does_not_help_against_a_refusal(ask_with):
    said = statement(least_capability=(8, 0))
    verdict = ask_with(T4, f"{BASE},fast=1.5[sm_75]", said)
    assert [f.outcome for f in found(verdict, "CG411")] == ["fail"]


def test_what_is_compiled_beside_the_stack_is_assumed_to_be_built_for_its_gpu(ask_with):
    verdict = ask_with(H100, f"{BASE},fast=1.5", statement(least_capability=(8, 0)))
    (finding,) = found(verdict, "CG410")
    assert (verdict.verdict, finding.outcome) == ("warn", "warn")
    assert "assumed to be built with CUDA 12.8 for H100-SXM5-80GB (9.0)" in finding.message
    assert "fast=1.5[sm_80+sm_90]" in finding.need
    listed = statement(builds=(builds("sm_90"),), torch_wheels=("2.8", "2.9"))
    assert ask_with(H100, f"{BASE},fast=1.5", listed).verdict == "warn"


@pytest.mark.parametrize(
    ("pool", "stack", "fields"),
    [
        (H100, "fast=1.5", {}),  # no CUDA is known
        (H100, f"{BASE},fast=1.5+local", {}),  # somebody's wheel
        (B200, "cuda=12.8,fast=1.5", {"builds": (builds("sm_80"),)}),
        (H100, f"{BASE},fast=1.5", {"builds": (builds("sm_90"),)}),  # which torch, is not known
        (H100, f"{BASE},fast=1.5", {"builds": (builds("sm_90"),), "torch_wheels": ("2.8",)}),
    ],
)
def test_where_another_build_may_be_there_it_stays_open(ask_with, pool, stack, fields):
    verdict = ask_with(pool, stack, statement(**fields))
    assert [f.outcome for f in found(verdict, "CG410")] == ["unknown"]


def test_a_toolkit_older_than_the_gpu_warns_where_the_script_makes_ptx(ask_with):
    ptx = statement(builds=(builds("compute_80"),))
    pool, stack = "driver=580.95.05,gpu=RTX 5090", "cuda=12.4,fast=1.5"
    assert [f.outcome for f in found(ask_with(pool, stack, ptx), "CG203")] == ["warn"]
    assert [f.outcome for f in found(ask_with(pool, stack, statement()), "CG203")] == ["fail"]


def by_place():
    rows = {"11.8": "sm_80", "12.6": "sm_90"}
    wheels = tuple(
        ProjectWheels(
            (f"cu{cuda.replace('.', '')}",),
            tuple(parse_arch(code)),
            cuda=tuple(map(int, cuda.split("."))),
            own_cuda=True,
        )
        for cuda, code in rows.items()
    )
    toolkits = ((11, 8), (12, 6))
    return statement(compiled=None, wheels=wheels, toolkits=toolkits, confidence="derived")


@pytest.mark.parametrize(
    ("pool", "stack", "verdict"),
    [
        (H100, "cuda=12.6,fast=1.5", "warn"),
        (H100, "cuda=11.8,fast=1.5", "unknown"),  # that build has no code for it
        (H100, "cuda=12.8,fast=1.5", "warn"),  # of the machine: the newest build before
        (H100, "fast=1.5", "warn"),  # the newest that the driver supports
        ("driver=520.61.05,gpu=A100-SXM4-80GB", "fast=1.5", "warn"),
    ],
)
def test_a_release_of_indexes_by_cuda_is_its_build_for_the_stacks(ask_with, pool, stack, verdict):
    assert ask_with(pool, stack, by_place()).verdict == verdict


WINDOWS = "driver=581.57,gpu=RTX 4090,os=windows"


def test_a_package_for_another_system_is_denied_and_wsl_is_linux(ask_with):
    said = statement(compiled=None, systems=("linux",), says="Windows via WSL")
    verdict = ask_with(WINDOWS, "cuda=12.8,fast=1.5[sm_89]", said)
    (finding,) = found(verdict, "CG411")
    assert (finding.outcome, finding.need) == ("fail", "Linux")
    assert finding.message == "fast 1.5 is published for Linux alone: Windows via WSL"
    wsl = ask_with(WINDOWS.replace("windows", "wsl"), "cuda=12.8,fast=1.5[sm_89]", said)
    assert found(wsl, "CG411") == []


def test_what_is_derived_of_systems_never_denies(ask_with):
    said = statement(compiled=None, systems=("linux",), confidence="derived")
    verdict = ask_with(WINDOWS, "cuda=12.8,fast=1.5", said)
    assert [f.outcome for f in found(verdict, "CG411")] == ["unknown"]


def test_an_unknown_release_of_an_optional_package_is_a_warning(ask_with, facts, monkeypatch):
    assert ask_with(H100, f"{BASE},fast=1.5").verdict == "unknown"
    monkeypatch.setattr(type(facts.packages), "is_optional", lambda _, name: name == "fast")
    verdict = ask_with(H100, f"{BASE},fast=1.5")
    (finding,) = found(verdict, "CG410")
    assert finding.outcome == "warn"
    assert finding.message.endswith("it works without its GPU code")


def test_what_is_only_derived_never_denies(ask_with):
    said = statement(least_capability=(8, 0), confidence="derived")
    verdict = ask_with(T4, f"{BASE},fast=1.5", said)
    assert [f.outcome for f in found(verdict, "CG411")] == ["unknown"]


def test_a_statement_is_about_its_releases_alone(ask_with):
    verdict = ask_with(T4, f"{BASE},fast=2.0", statement(least_capability=(8, 0)))
    assert found(verdict, "CG411") == []
    assert "no record describes" in found(verdict, "CG410")[0].message


def test_the_fixed_list_of_a_build_script_denies_what_none_of_it_runs_on(ask_with):
    said = statement(builds=(builds("sm_80", "sm_90"),), fixed=True)
    (finding,) = found(ask_with(B200, f"{BASE},fast=1.5", said), "CG411")
    assert "makes code only for sm_80, sm_90" in finding.message
    assert found(ask_with(H100, f"{BASE},fast=1.5", said), "CG411") == []


def test_a_builder_who_states_code_has_changed_the_script(ask_with):
    said = statement(builds=(builds("sm_80", "sm_90"),), fixed=True)
    assert ask_with(B200, f"{BASE},fast=1.5[sm_100]", said).verdict == "pass"


def test_a_list_that_the_builder_can_change_denies_nothing_and_is_named(ask_with):
    said = statement(builds=(builds("sm_80"), builds("sm_90", cuda=">=11.8")))
    verdict = ask_with(B200, f"{BASE},fast=1.5", said)
    assert found(verdict, "CG411") == []
    assert "fast=1.5[sm_80+sm_90] where its build script" in found(verdict, "CG410")[0].need


def test_lists_of_other_cuda_majors_do_not_count(ask_with):
    said = statement(builds=(builds("sm_90"), builds("sm_75", cuda="<12")), fixed=True)
    assert [f.outcome for f in found(ask_with(T4, f"{BASE},fast=1.5", said), "CG411")] == ["fail"]
    older = ask_with(T4, "torch=2.3.1+cu118,fast=1.5", said)
    assert found(older, "CG411") == []


def test_what_compiles_for_the_gpu_that_it_finds_is_judged(ask_with):
    verdict = ask_with(H100, f"{BASE},fast=1.5", statement(compiled="run"))
    assert found(verdict, "CG410") == []
    assert verdict.verdict == "pass"


def test_code_that_a_program_brings_runs_on_the_gpus_that_its_maker_names(ask_with):
    said = statement(compiled="shipped", least_capability=(8, 0), last_capability=(9, 0))
    assert ask_with(H100, f"{BASE},fast=1.5", said).verdict == "pass"
    assert [f.outcome for f in found(ask_with(T4, f"{BASE},fast=1.5", said), "CG411")] == ["fail"]
    assert [f.outcome for f in found(ask_with(B200, f"{BASE},fast=1.5", said), "CG411")] == ["fail"]


@pytest.mark.parametrize("compiled", ["run", "shipped", "nothing"])
def test_a_program_whose_maker_states_its_driver_needs_no_cuda(compiled, ask_with):
    on_linux = 'driver>=550; sys_platform != "win32"'
    said = statement(compiled=compiled, requires=(on_linux, 'driver>=600; sys_platform == "win32"'))
    assert ask_with(H100, "fast=1.5", said).verdict == "pass"
    older = ask_with("driver=535.104.05,gpu=H100-SXM5-80GB", "fast=1.5", said)
    assert [f.need for f in found(older, "CG412")] == [">=550"]
    assert found(older, "CG901") == []


def test_a_program_without_a_stated_driver_needs_its_cuda(ask_with):
    said = statement(compiled="shipped", least_capability=(8, 0))
    assert [f.component for f in found(ask_with(H100, "fast=1.5", said), "CG901")] == ["cuda"]


def test_what_has_no_gpu_code_of_its_own_is_judged(ask_with):
    verdict = ask_with(H100, f"{BASE},fast=1.5", statement(compiled="nothing"))
    assert verdict.verdict == "pass"


def test_without_a_word_on_how_it_is_compiled_it_stays_open(ask_with):
    said = statement(compiled=None, least_capability=(7, 5))
    assert [f.outcome for f in found(ask_with(H100, f"{BASE},fast=1.5", said), "CG410")] == [
        "unknown"
    ]


def test_requirements_that_are_stated_have_to_hold(ask_with):
    said = statement(requires=("torch>=2.10", "cuda>=12.0"))
    (finding,) = found(ask_with(H100, f"{BASE},cuda=12.8,fast=1.5", said), "CG412")
    assert (finding.component, finding.need) == ("torch", ">=2.10")
    assert finding.source.title == "setup.py"


def test_wheels_of_the_project_for_other_releases_of_torch_are_named(ask_with):
    said = statement(torch_wheels=("2.7", "2.8"))
    (finding,) = found(ask_with(H100, f"{BASE},fast=1.5", said), "CG410")
    assert "publishes wheels for torch 2.7 to 2.8 only" in finding.message
    (finding,) = found(ask_with(H100, "torch=2.8.0+cu128,fast=1.5", said), "CG410")
    assert "publishes" not in finding.message


def test_under_audit_the_question_for_code_is_a_warning(ask_with):
    policy = Policy(packages="audit")
    verdict = ask_with(H100, f"{BASE},fast=1.5", statement(), policy=policy)
    assert [f.outcome for f in found(verdict, "CG410")] == ["warn"]


def test_the_label_of_a_build_says_for_which_torch_it_is(ask_with):
    verdict = ask_with(H100, f"{BASE},fast=1.5+cu12torch2.8cxx11abiTRUE[sm_90]", statement())
    assert [f.outcome for f in found(verdict, "CG413")] == ["fail"]
    same = ask_with(H100, f"{BASE},fast=1.5+cu12torch2.9cxx11abiTRUE[sm_90]", statement())
    assert found(same, "CG413") == []
    assert same.verdict == "pass"


def test_the_file_of_a_build_says_for_which_torch_it_is(ask_with):
    file = "fast-1.5+pt28cu128-cp312-cp312-linux_x86_64.whl"
    stack = {"torch": "2.9.1+cu128", "fast": "1.5[sm_90]", "wheels": {"fast": {"file": file}}}
    verdict = ask_with(H100, stack, statement())
    assert [f.outcome for f in found(verdict, "CG413")] == ["fail"]


def test_a_record_decides_where_there_is_one(ask_with):
    measured = Record(
        "fast",
        "1.5",
        "fast-1.5-py3-none-any.whl",
        libraries=(Library("fast/_C.so", sass={"sm_90": 1}, units=1),),
    )
    said = statement(builds=(builds("sm_80"),), fixed=True)
    assert ask_with(H100, f"{BASE},fast=1.5", said, records=(measured,)).verdict == "pass"


def test_ptx_beside_libraries_is_for_a_linker_and_not_for_the_driver(ask_with):
    code = Library("fast/_C.so", sass={"sm_90": 1}, units=1)
    ptx = {"ptx": {"compute_70": 1}, "ptx_cuda": "12.9", "units": 1}
    wheel = "fast-1.5-py3-none-any.whl"
    beside = Record("fast", "1.5", wheel, libraries=(code, Library("fast/shim.fatbin", **ptx)))
    older = "driver=550.54.15,gpu=H100-SXM5-80GB"
    stack = "torch=2.4.1+cu124,fast=1.5"
    assert found(ask_with(older, stack, records=(beside,)), "CG411") == []
    alone = Record("fast", "1.5", wheel, libraries=(Library("fast/shim.fatbin", **ptx),))
    verdict = ask_with(older, stack, records=(alone,))
    assert [f.outcome for f in found(verdict, "CG411")] == ["fail"]


# --- builds for GPUs that are not NVIDIA's ------------------------------------------------------


@pytest.mark.parametrize(("label", "whose"), [("rocm6.4", "AMD"), ("xpu", "Intel")])
def test_a_build_for_other_gpus_fails(label, whose, ask_with):
    (finding,) = found(ask_with(H100, f"{BASE},fast=1.5+{label}"), "CG411")
    assert finding.outcome == "fail"
    assert f"is a build for GPUs of {whose}: it has no code for H100" in finding.message


def rocm(*needs, **fields):
    library = Library("fast/_C.so", needs=needs, **fields)
    return (Record("fast", "1.5", "fast-1.5-py3-none-any.whl", libraries=(library,)),)


def test_a_wheel_that_links_against_rocm_alone_fails(ask_with):
    verdict = ask_with(H100, f"{BASE},fast=1.5", records=rocm("libamdhip64.so.7"))
    assert [f.outcome for f in found(verdict, "CG411")] == ["fail"]


@pytest.mark.parametrize(
    "records",
    [
        rocm("libamdhip64.so.7", "libcudart.so.12"),
        rocm("libamdhip64.so.7", sass={"sm_90": 1}, units=1),
        rocm("libtorch.so"),
    ],
)
def test_a_wheel_that_has_something_of_cuda_is_no_build_for_rocm(records, ask_with):
    verdict = ask_with(H100, f"{BASE},fast=1.5", records=records)
    assert found(verdict, "CG411") == []


@pytest.mark.parametrize(
    ("said", "built_for", "outcome"),
    [
        (("2.8",), None, "fail"),
        (("2.9",), None, None),
        (("2.8", "2.9"), None, "unknown"),
        (("2.8",), "2.9", None),
    ],
)
def test_a_statement_says_the_torch_of_a_wheel_whose_metadata_do_not(
    ask_with, said, built_for, outcome
):
    abi = TorchAbi(cxx11=True, symbols=9)
    extension = Library("fast/_C.so", sass={"sm_90": 1}, units=1, torch=abi)
    file = "fast-1.5-cp312-cp312-linux_x86_64.whl"
    measured = Record("fast", "1.5", file, libraries=(extension,), built_for_torch=built_for)
    stated = statement(torch_wheels=said)
    verdict = ask_with(H100, f"{BASE},fast=1.5", stated, records=(measured,))
    problems = found(verdict, "CG413")
    assert [f.outcome for f in problems] == ([outcome] if outcome else [])
    if outcome == "fail":
        assert problems[0].have == "1.5"
        assert problems[0].source.title == "setup.py"


def test_a_requirement_that_a_statement_adds_to_a_wheel_has_its_source(ask_with):
    file = "fast-1.5-cp312-cp312-linux_x86_64.whl"
    extension = Library("fast/_C.so", sass={"sm_90": 1}, units=1)
    measured = Record("fast", "1.5", file, libraries=(extension,), requires=("torch>=2.10",))
    stated = statement(requires=("cuda <12",))
    verdict = ask_with(H100, f"{BASE},cuda=12.8,fast=1.5", stated, records=(measured,))
    sources = {f.component: f.source.title for f in found(verdict, "CG412")}
    assert sources == {"cuda": "setup.py", "torch": f"measured: {file}"}


# --- CG102 and CG202: code that is compiled when it runs ------------------------------------------

OLDER = "driver=525.85.12,gpu=A100-SXM4-80GB"
"""A driver of CUDA 12.0."""


@pytest.mark.parametrize(
    ("makes", "confidence", "outcome"),
    [("ptx", "metadata", ["fail"]), ("ptx", "derived", ["unknown"]), ("cubin", "metadata", [])],
)
def test_ptx_that_is_made_when_it_runs_needs_a_driver_of_the_toolkit(
    ask_with, makes, confidence, outcome
):
    one = statement(compiled="run", makes=makes, confidence=confidence)
    verdict = ask_with(OLDER, "cuda=12.4,fast=1.5", one)
    assert [f.outcome for f in found(verdict, "CG202")] == outcome
    assert [f.outcome for f in found(verdict, "CG102")] == [
        "fail" if outcome == ["fail"] else "warn"
    ]
    assert found(ask_with(H100, "cuda=12.4,fast=1.5", one), "CG202") == []


def test_a_package_by_which_machine_code_is_made_lifts_the_need(ask_with):
    one = statement(compiled="run", makes="ptx", unless=("linker",))
    verdict = ask_with(OLDER, "cuda=12.4,fast=1.5,linker=0.2[sm_80]", one)
    assert found(verdict, "CG202") == []


def test_an_assumed_cuda_denies_no_code_that_is_made_when_it_runs(ask_with):
    one = statement(compiled="run", makes="ptx")
    verdict = ask_with(OLDER, "torch=2.5.1,fast=1.5", one)
    assert [f.outcome for f in found(verdict, "CG202")] == ["unknown"]


@pytest.mark.parametrize(("version", "outcome"), [("9.6.0", ["fail"]), ("12.0.0", [])])
def test_cupy_makes_machine_code_from_10_on(ask, version, outcome):
    verdict = ask("driver=450.80.02,gpu=A100-SXM4-80GB", f"cupy={version},cuda=11.2")
    assert [f.outcome for f in found(verdict, "CG202")] == outcome


@pytest.mark.parametrize(
    ("stack", "outcome"),
    [
        ("cuda=12.4,fast=1.5", []),
        ("cuda=11.8,fast=1.5", ["fail"]),
        ("cuda=11.8,nvidia-cublas-cu12=12.4.5.8,fast=1.5", []),
    ],
)
@pytest.mark.parametrize("opens", [("cublas",), ()])
def test_a_library_that_is_opened_by_name_counts_where_nothing_works_without(
    ask_with, stack, outcome, opens
):
    library = Library("fast/_C.so", opens=("libcublas.so.12",), sass={"sm_90": 1}, units=1)
    record = Record("fast", "1.5", "fast-1.5-cp312-cp312-linux_x86_64.whl", libraries=(library,))
    one = statement(compiled=None, opens=opens)
    verdict = ask_with(H100, stack, one, records=(record,))
    assert [f.outcome for f in found(verdict, "CG414")] == (outcome if opens else [])


def program(own_cuda=True, confidence="metadata"):
    code = tuple(parse_arch("sm_80") + parse_arch("sm_90"))
    wheels = (ProjectWheels(("none",), code, cuda=(11, 3), own_cuda=own_cuda),)
    return statement(compiled=None, wheels=wheels, confidence=confidence)


@pytest.mark.parametrize(("own_cuda", "outcome"), [(True, []), (False, ["fail"])])
def test_a_program_that_brings_its_cuda_needs_none_of_the_stack(ask_with, own_cuda, outcome):
    verdict = ask_with(H100, "cuda=12.4,fast=1.5", program(own_cuda))
    assert [f.outcome for f in found(verdict, "CG414")] == outcome


@pytest.mark.parametrize(
    ("pool", "verdict"), [(H100, "pass"), (T4, "fail"), ("driver=418.87.01,gpu=V100", "fail")]
)
def test_a_program_is_judged_by_the_code_and_the_cuda_that_it_is_built_with(
    ask_with, pool, verdict
):
    assert ask_with(pool, "fast=1.5", program()).verdict == verdict


def test_a_program_whose_code_is_only_derived_is_never_denied(ask_with):
    a100 = "driver=580.95.05,gpu=A100-SXM4-80GB"
    assert ask_with(a100, "fast=1.5", program(confidence="derived")).verdict == "warn"
    assert ask_with(T4, "fast=1.5", program(confidence="derived")).verdict == "unknown"


@pytest.mark.parametrize(
    ("driver", "outcome"), [("550.54.14", []), ("545.23.08", ["fail"]), ("550.120", [])]
)
def test_a_driver_older_than_a_program_states_is_denied(ask_with, driver, outcome):
    least = statement(compiled=None, requires=("driver>=550",), confidence="published")
    verdict = ask_with(f"driver={driver},gpu=H100-SXM5-80GB", "fast=1.5", program(), least)
    unmet = found(verdict, "CG412")
    assert [f.outcome for f in unmet] == outcome
    assert all("requires driver >=550, the pool has 545.23.08" in f.message for f in unmet)


def test_a_driver_that_is_only_derived_is_never_denied(ask_with):
    texts = ('driver>=550; sys_platform != "win32"', 'driver>=551; sys_platform == "win32"')
    least = statement(compiled=None, requires=texts, confidence="derived")
    verdict = ask_with("driver=545.23.08,gpu=H100-SXM5-80GB", "fast=1.5", program(), least)
    assert [f.outcome for f in found(verdict, "CG412")] == ["unknown"]
