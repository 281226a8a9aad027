"""CG401 to CG406 where a case, not a record of the facts, is the point."""

import pytest
from msgspec.structs import replace

from compatgate.core.facts.frameworks import NewerGpus
from compatgate.core.facts.nvidia import Source
from compatgate.core.gpu_code import Arch

POOL = "driver=580.65.06,gpu=A100-SXM4-80GB"


def said(verdict, rule, component=None):
    return [
        f.outcome for f in verdict.findings if f.rule == rule and component in (None, f.component)
    ]


def message(verdict, rule):
    return " ".join(f.message for f in verdict.findings if f.rule == rule)


def test_the_label_of_a_version_names_the_build(ask):
    verdict = ask(POOL, "torch=2.4.1+cu118,cudnn=9.1.0")
    assert said(verdict, "CG401") == []
    assert verdict.stack["cuda"] == "11.8"


@pytest.mark.parametrize(
    ("stack", "rule", "outcome"),
    [
        ("jaxlib=0.3.15+cuda11.cudnn82,cuda=11.4,cudnn=8.1", "CG402", ["fail"]),
        ("jaxlib=0.3.15+cuda11.cudnn805,cuda=11.4,cudnn=8.1", "CG402", []),
        ("jaxlib=0.1.65+cuda112,cuda=11.2,cudnn=8.0.5", "CG402", ["fail"]),
        ("jaxlib=0.1.65+cuda111,cuda=11.2,cudnn=8.0.5", "CG401", ["fail"]),
        ("jaxlib=0.1.66+cuda111,cuda=11.2,cudnn=8.0.5", "CG401", []),
    ],
)
def test_a_label_tells_builds_for_one_major_of_cuda_apart(ask, stack, rule, outcome):
    assert said(ask(POOL, stack), rule) == outcome


def test_a_label_without_a_minor_is_taken_for_the_oldest_cuda_of_its_build(ask):
    verdict = ask(POOL, "jaxlib=0.4.20+cuda12.cudnn89")
    assert verdict.stack["cuda"] == "12.2"
    assert "jax 0.4.20+cuda12.cudnn89 is assumed to run with CUDA 12.2" in message(verdict, "CG901")


def test_a_framework_that_compiles_with_the_toolkit_needs_one_that_knows_the_gpu(ask):
    pool = "driver=580.65.06,gpu=GeForce-RTX-3090"
    assert said(ask(pool, "jaxlib=0.1.66+cuda110,cuda=11.0"), "CG203") == ["fail"]
    assert said(ask(pool, "jaxlib=0.1.66+cuda111,cuda=11.1"), "CG203") == []
    assert said(ask(pool, "cuda=11.0,arch=sm_80"), "CG203") == ["warn"]


def test_a_toolkit_that_is_only_assumed_does_not_deny_where_a_newer_one_is_accepted(ask):
    pool = "driver=580.65.06,gpu=B200"
    stack = "jax=0.4.38,jax-cuda12-plugin=0.4.38"
    assert said(ask(pool, stack), "CG203") == ["unknown"]
    assert said(ask(pool, f"{stack},cuda=12.3"), "CG203") == ["fail"]
    assert said(ask(pool, "jax=0.4.20+cuda11.cudnn86"), "CG203") == ["fail"]


@pytest.mark.parametrize("label", ["+cu121", "+CU121", "+cu121.with.pypi.cudnn"])
def test_a_label_is_read_whatever_its_case_and_tail(label, ask):
    verdict = ask(POOL, {"torch": f"2.4.1{label}"})
    assert said(verdict, "CG401") == []
    assert verdict.stack["cuda"] == "12.1"


def test_a_label_without_a_published_build_fails(ask):
    verdict = ask(POOL, "torch=2.4.1+cu126")
    assert said(verdict, "CG401") == ["fail"]
    assert "cu118, cu121, cu124" in message(verdict, "CG401")


@pytest.mark.parametrize(
    "stack",
    ["vllm=0.12.0+cu130", "vllm=0.12.0,cuda=13.0", "onnxruntime-gpu=1.23.0,cuda=11.8"],
)
def test_a_cuda_without_a_known_build_is_unknown_where_the_list_may_be_incomplete(stack, ask):
    verdict = ask("driver=580.65.06,gpu=H100-SXM5-80GB", stack)
    assert said(verdict, "CG401") == ["unknown"]
    assert "known are builds for CUDA 12" in message(verdict, "CG401")


def test_without_a_label_the_stacks_cuda_chooses_the_build(ask):
    assert said(ask(POOL, "torch=2.4.1,cuda=12.4.1"), "CG401") == []
    assert said(ask(POOL, "torch=2.4.1,cuda=12.6"), "CG401") == ["fail"]


@pytest.mark.parametrize("label", ["cpu", "rocm6.2", "xpu"])
def test_a_build_without_cuda_fails(label, ask):
    verdict = ask(POOL, f"torch=2.4.1+{label},cuda=12.1")
    assert said(verdict, "CG401") == ["fail"]


@pytest.mark.parametrize("version", ["2.6.0a0+ecf3bae40a", "2.7.0.dev20250310+acme"])
def test_somebodys_own_build_is_not_judged_by_the_published_wheels(version, ask):
    verdict = ask(POOL, {"torch": version, "cuda": "12.8", "cudnn": "9.7.0", "python": "3.12"})
    assert said(verdict, "CG401") == ["not-checked"]
    for rule in ("CG402", "CG403", "CG404"):
        assert said(verdict, rule) == []
    assert said(verdict, "CG405") == ["unknown"]


def test_somebodys_own_build_passes_with_the_code_that_its_owner_states(ask):
    stack = {"torch": "2.6.0a0+ecf3bae40a.nv25.01", "cuda": "12.8", "arch": ["sm_80"]}
    verdict = ask(POOL, stack)
    assert said(verdict, "CG405") == []
    assert verdict.verdict == "pass"


@pytest.mark.parametrize(
    "stack",
    [
        "jax=0.4.31+conda.cu120,cudnn=8.9.7,python=3.12",
        "torch=2.5.1+conda.cu126,cudnn=9.8.0,nccl=2.25.1,python=3.13",
        "torch=2.5.1+conda,cuda=12.6,cudnn=9.8.0,python=3.13",
    ],
)
def test_a_build_by_a_channel_of_conda_is_not_judged_by_the_published_wheels(stack, ask):
    verdict = ask(POOL, stack)
    assert said(verdict, "CG401") == ["not-checked"]
    assert "built by a channel of conda" in message(verdict, "CG401")
    for rule in ("CG402", "CG403", "CG404", "CG406"):
        assert said(verdict, rule) == []
    assert said(verdict, "CG405") == ["unknown"]
    assert verdict.verdict == "unknown"


def test_the_gpu_code_of_a_build_by_conda_is_judged_where_it_is_stated(ask):
    stack = "torch=2.5.1+conda.cu126,arch={}"
    assert ask(POOL, stack.format("sm_80+sm_90")).verdict == "pass"
    assert ask(POOL, stack.format("sm_90")).verdict == "fail"


@pytest.mark.parametrize("label", ["conda.forge.cu126", "conda-forge.cu126", "conda_forge.cu126"])
def test_the_recipe_of_conda_forge_says_which_gpus_its_build_has_code_for(label, ask):
    verdict = ask(POOL, f"torch=2.5.1+{label},cudnn=9.8.0,python=3.13")
    assert said(verdict, "CG401") == ["not-checked"]
    assert said(verdict, "CG405") == []
    assert verdict.allowed
    denied = ask("driver=580.95.05,gpu=Jetson-AGX-Orin", f"torch=2.5.1+{label}")
    assert said(denied, "CG405") == ["fail"]
    assert "conda-forge's build for CUDA 12.6" in message(denied, "CG405")


@pytest.mark.parametrize(
    ("stack", "pool"),
    [
        ("torch=2.5.1+conda.forge.cu118", POOL),
        ("torch=2.5.1+conda.forge,cuda=12.6", POOL),
        ("torch=2.4.1+conda.forge.cu126", POOL),
        ("torch=2.5.1+conda.forge.cu126", f"{POOL},os=windows"),
    ],
)
def test_a_build_of_conda_forge_whose_list_is_not_known_stays_unknown(stack, pool, ask):
    assert said(ask(pool, stack), "CG405") == ["unknown"]


def test_ptx_of_conda_forges_build_needs_a_driver_of_its_toolkit(ask):
    stack = "torch=2.5.1+conda.forge.cu126"
    assert said(ask("driver=550.54.15,gpu=B200", stack), "CG202") == ["fail"]
    assert said(ask("driver=580.95.05,gpu=B200", stack), "CG202") == []


def test_code_that_is_stated_stands_for_that_of_conda_forges_recipe(ask):
    assert ask(POOL, "torch=2.5.1+conda.forge.cu126,arch=sm_90").verdict == "fail"


def test_a_build_by_conda_needs_the_driver_of_its_cuda(ask):
    verdict = ask("driver=470.82.01,gpu=A100-SXM4-80GB", "torch=2.5.1+conda.cu126,arch=sm_80")
    assert said(verdict, "CG101") == ["fail"]


def test_a_release_that_the_facts_do_not_know_is_unknown_and_names_the_newest(ask, facts):
    verdict = ask(POOL, "torch=9.9.9,cuda=12.4")
    assert said(verdict, "CG401") == ["unknown"]
    assert str(facts.framework("torch").releases[-1].version) in message(verdict, "CG401")


@pytest.mark.parametrize("stack", ["torch=2.4.1+cu121,cuda=11.8", "torch=2.4.1+cu118,cuda=12.4"])
def test_two_cuda_majors_in_one_process_are_said(stack, ask):
    verdict = ask(POOL, stack)
    assert said(verdict, "CG401") == ["warn"]
    assert "two CUDA majors" in message(verdict, "CG401")


@pytest.mark.parametrize(
    "stack", ["cupy-cuda11x=13.3.0,cuda=12.4", "cupy-cuda12x=13.3.0,cuda=11.8"]
)
def test_a_wheel_that_brings_no_cuda_loads_that_of_the_stack(stack, ask):
    verdict = ask(POOL, stack)
    assert said(verdict, "CG401") == ["fail"]
    assert "is for CUDA" in message(verdict, "CG401")


def test_a_wheel_needs_the_driver_of_its_own_cuda_whatever_the_base_image_has(ask):
    verdict = ask("driver=535.104.05,gpu=A100-SXM4-80GB", "torch=2.9.1+cu130,cuda=12.1")
    assert said(verdict, "CG101") == ["fail"]


def test_tensorflow_2_10_is_the_last_with_native_windows(ask):
    pool = "driver=528.33,gpu=GeForce-RTX-3090,os=windows"
    assert said(ask(pool, "tensorflow=2.10.0,cuda=11.2"), "CG401") == []
    assert said(ask(pool, "tensorflow=2.11.0,cuda=11.2"), "CG401") == ["fail"]
    wsl = pool.replace("os=windows", "os=wsl")
    assert said(ask(wsl, "tensorflow=2.11.0,cuda=11.2"), "CG401") == []


@pytest.mark.parametrize("framework", ["vllm=0.10.2,cuda=12.8", "jax=0.6.0,cuda=12.8"])
def test_frameworks_for_linux_alone_fail_on_windows(framework, ask):
    pool = "driver=576.02,gpu=GeForce-RTX-4090,os=windows"
    assert said(ask(pool, framework), "CG401") == ["fail"]
    assert said(ask(pool.replace("os=windows", "os=wsl"), framework), "CG401") == []


@pytest.mark.parametrize(
    ("cudnn", "expected"),
    [
        ("9.1.0", []),
        ("9.1.0.70", []),
        ("90100", []),
        ("9.1.1", ["warn"]),
        ("9.5.1", ["warn"]),
        ("9.0.0", ["fail"]),
        ("8.9.7", ["fail"]),
        ("10.0.0", ["fail"]),
    ],
)
def test_another_major_or_an_older_cudnn_than_the_pin_fails_and_a_newer_warns(cudnn, expected, ask):
    verdict = ask(POOL, {"torch": "2.4.1+cu121", "cudnn": cudnn})
    assert said(verdict, "CG402") == expected


@pytest.mark.parametrize(
    ("cudnn", "expected"), [("8", []), ("8.9", []), ("8.9.1", ["fail"]), ("8.8", ["fail"])]
)
def test_a_series_of_cudnn_may_be_the_release_that_is_expected(cudnn, expected, ask):
    verdict = ask(POOL, {"torch": "2.3.1+cu121", "cudnn": cudnn})  # 8.9.2.26
    assert said(verdict, "CG402") == expected


@pytest.mark.parametrize(
    ("nccl", "expected"),
    [("2.20.5", []), ("2.21.5", ["warn"]), ("2.19.3", ["fail"]), ("22005", [])],
)
def test_nccl_is_held_against_the_builds_pin(nccl, expected, ask):
    verdict = ask(POOL, {"torch": "2.4.1+cu121", "nccl": nccl})
    assert said(verdict, "CG403") == expected


@pytest.mark.parametrize(
    ("cudnn", "expected"),
    [("9.3.0", []), ("9.3.9", []), ("9.10.2", []), ("9.2.1", ["fail"]), ("8.9.7", ["fail"])],
)
def test_tensorflow_asks_for_the_same_major_and_an_equal_or_higher_minor(cudnn, expected, ask):
    verdict = ask(POOL, {"tensorflow": "2.18.0", "cuda": "12.5", "cudnn": cudnn})
    assert said(verdict, "CG402") == expected


def test_a_stack_that_states_no_cudnn_is_not_asked_for_it(ask):
    assert said(ask(POOL, "torch=2.4.1+cu121"), "CG402") == []


def test_every_framework_of_a_stack_is_judged(ask):
    verdict = ask(POOL, "torch=2.4.1,jax=0.4.30,cuda=12.1,cudnn=8.9.7")
    expects = [f.message for f in verdict.findings if f.rule == "CG402"]
    assert len(expects) == 2
    assert any("torch" in text for text in expects)
    assert any("jax" in text for text in expects)


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("3.8", ["fail"]),
        ("3.9", []),
        ("3.9.18", []),
        ("3.12", []),
        ("3.13", []),
        ("3.14", ["fail"]),
    ],
)
def test_wheel_tags_decide_about_python(python, expected, ask):
    """torch 2.5 says >=3.8 and has no wheel for 3.8."""
    verdict = ask(POOL, {"torch": "2.5.1+cu124", "python": python})
    assert said(verdict, "CG404") == expected


@pytest.mark.parametrize(
    ("torch", "expected"), [("2.7.1+cu126", []), ("2.9.1+cu126", []), ("2.5.1+cu124", ["fail"])]
)
def test_a_free_threaded_python_needs_a_wheel_of_its_own(torch, expected, ask):
    assert said(ask(POOL, {"torch": torch, "python": "3.13t"}), "CG404") == expected


@pytest.mark.parametrize("release", ["2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.13.0"])
def test_cu129_wheels_off_the_install_page_never_fail(release, ask):
    assert said(ask(POOL, f"torch={release}+cu129"), "CG401") == ["warn"]


@pytest.mark.parametrize(
    ("cublas", "outcome"),
    [("13.1.0.9", []), ("13.4.0.1", ["warn"]), ("13.0.2.14", ["fail"]), ("14.0.0.1", ["fail"])],
)
def test_a_library_above_a_range_of_its_major_is_a_warning(cublas, outcome, ask):
    """NVIDIA's libraries keep their interface within a major, whatever upper bound is pinned."""
    verdict = ask(POOL, f"torch=2.12.0,cublas={cublas}")
    assert said(verdict, "CG406") == outcome


def test_vllm_is_compiled_against_exactly_one_torch(ask):
    right = ask(POOL, "vllm=0.10.2,torch=2.8.0+cu128")
    wrong = ask(POOL, "vllm=0.10.2,torch=2.7.1+cu128")
    assert said(right, "CG406") == []
    assert said(wrong, "CG406") == ["fail"]


@pytest.mark.parametrize(
    ("stack", "outcome"),
    [
        ("nvidia-cusparse-cu12=12.1.0.106", []),
        ("nvidia-cusparse-cu12=12.0.2.55", ["fail"]),
        ("nvidia-cusparse-cu12=12.3.1.170", ["warn"]),
        ("triton=3.0.0,python=3.11", []),
        ("triton=2.3.1,python=3.11", ["fail"]),
        ("triton=3.1.0,python=3.11", ["fail"]),
        ("triton=3.0.1,python=3.11", ["warn"]),
        ("triton=2.3.1,python=3.13", ["fail"]),  # no wheel of torch 2.4.1 is for a later Python
        ("triton=2.3.1", ["fail"]),
    ],
)
@pytest.mark.parametrize("torch", ["torch=2.4.1", "torch=2.4.1+cu121"])
def test_torch_pins_the_packages_that_its_metadata_names(torch, stack, outcome, ask):
    verdict = ask(POOL, f"{torch},{stack}")
    assert said(verdict, "CG406") == outcome


@pytest.mark.parametrize(
    ("pool", "stack"),
    [
        ("driver=580.65.06,gpu=GH200,cpu=aarch64", "torch=2.4.1"),
        ("driver=581.29,gpu=GeForce-RTX-4090,os=windows", "torch=2.4.1+cu121"),
        (POOL, "torch=2.4.1+cu118"),
    ],
)
def test_the_metadata_of_one_wheel_says_nothing_of_another(pool, stack, ask):
    verdict = ask(pool, f"{stack},nvidia-cusparse-cu12=12.0.2.55")
    assert said(verdict, "CG406") == []


def test_the_pinned_version_is_offered_and_holds(ask):
    verdict = ask(POOL, "torch=2.4.1+cu121,nvidia-cusparse-cu12=12.0.2.55")
    [finding] = [f for f in verdict.findings if f.rule == "CG406"]
    assert [fix.set for fix in finding.fixes] == [{"nvidia-cusparse-cu12": "12.1.0.106"}]
    assert "package metadata of torch==2.4.1" in finding.source.title


@pytest.mark.parametrize(
    ("pool", "rule"),
    [
        ("driver=580.65.06,gpu=GH200,cpu=aarch64", "CG405"),
        ("driver=581.29,gpu=GeForce-RTX-4090,os=windows", "CG405"),
    ],
)
def test_the_list_of_the_linux_x86_wheel_does_not_speak_of_other_wheels(pool, rule, ask):
    verdict = ask(pool, "torch=2.9.1+cu126,arch=sm_50+sm_90")
    assert rule not in verdict.checked.passed
    assert "fail" not in said(verdict, rule)


@pytest.mark.parametrize(
    ("gpu", "said_of_it"),
    [("GeForce-RTX-3090", []), ("GeForce-RTX-5090", []), ("V100-SXM2-32GB", ["fail"])],
)
def test_the_list_of_the_windows_wheel_decides_on_windows(gpu, said_of_it, ask):
    """The list for Linux has 7.0; that of the fixture for Windows has not."""
    pool = f"driver=581.29,gpu={gpu}"
    assert said(ask(f"{pool},os=windows", "torch=2.9.1+cu128"), "CG405") == said_of_it
    assert said(ask(pool.replace("581.29", "580.95.05"), "torch=2.9.1+cu128"), "CG405") == []


def test_a_wheel_that_nobody_read_is_like_those_around_it_for_the_nearest_cuda(
    ask, facts, monkeypatch
):
    """Of 2.8.0, the wheel for CUDA 12.8 has code for Blackwell, and that for 12.6 has none."""
    table = facts.framework("torch")
    code = {(12, 6): (Arch("sass", (9, 0)),), (12, 8): (Arch("sass", (12, 0)),)}
    releases = tuple(
        replace(one, builds=tuple(replace(b, windows=code.get(b.cuda)) for b in one.builds))
        if one.version.text == "2.8.0"
        else one
        for one in table.releases
    )
    changed, others = replace(table, releases=releases), facts.framework
    monkeypatch.setattr(facts, "framework", lambda n: changed if n == "torch" else others(n))
    monkeypatch.setattr(facts, "memory", {})
    pool = "driver=581.29,gpu={},os=windows"
    blackwell = ask(pool.format("GeForce-RTX-5090"), "torch=2.9.0+cu128")
    hopper = ask(pool.format("H100-PCIe-80GB"), "torch=2.9.0+cu128")
    assert said(blackwell, "CG405") == ["warn"]
    assert said(hopper, "CG405") == ["unknown"]


def test_an_aarch64_pool_asks_for_an_aarch64_wheel(ask):
    """torch 1.13.1 has wheels for 3.11 on x86_64 alone."""
    stack = "torch=1.13.1+cu117,python=3.11"
    assert said(ask("driver=580.65.06,gpu=A100-SXM4-80GB", stack), "CG404") == []
    arm = ask("driver=580.65.06,gpu=A100-SXM4-80GB,cpu=aarch64", stack)
    assert said(arm, "CG404") == ["fail"]


def test_stated_gpu_code_does_not_excuse_a_wheel_without_code(ask):
    """The program's own kernels may run; those of the framework do not."""
    verdict = ask("driver=580.65.06,gpu=GeForce-RTX-5090", "torch=2.5.1+cu121,arch=sm_120")
    assert said(verdict, "CG405") == ["fail"]


def test_a_version_alone_is_the_package_indexs_wheel_and_the_answer_says_so(ask):
    verdict = ask(POOL, "torch=2.4.1")
    assert verdict.stack["cuda"] == "12.1"
    assert "torch 2.4.1 is assumed to be the package index's wheel" in message(verdict, "CG901")


@pytest.mark.parametrize(
    ("platform", "says"), [("os=windows", "Windows"), ("cpu=aarch64", "aarch64")]
)
def test_a_version_alone_fails_where_the_indexs_wheel_has_no_cuda(platform, says, ask):
    verdict = ask(f"{POOL},{platform}", "torch=2.4.1")
    assert "cuda" not in verdict.stack
    assert said(verdict, "CG401") == ["fail"]
    assert f"has no CUDA on {says}" in message(verdict, "CG401")


@pytest.mark.parametrize(
    "stack",
    [
        "torch=2.4.1,nvidia-cuda-nvrtc-cu12=12.1.105",
        {"torch": "2.4.1", "open": ["cuda: the lock does not say which"]},
    ],
)
def test_another_build_may_be_meant_where_the_stack_names_a_cuda(stack, ask):
    verdict = ask(f"{POOL},os=windows", stack)
    assert said(verdict, "CG401") == ["unknown"]
    assert "whether another build is meant" in message(verdict, "CG401")


@pytest.mark.parametrize("stack", ["torch=2.4.1,cuda=12.1", "torch=2.4.1,torchvision=0.19.1+cu121"])
def test_on_windows_the_build_for_the_stated_cuda_is_assumed(stack, ask):
    verdict = ask(f"{POOL},os=windows", stack)
    assert said(verdict, "CG401") == ["warn"]
    assert "assumed to be the cu121 wheel of another index" in message(verdict, "CG401")
    assert said(ask(f"{POOL},cpu=aarch64", stack), "CG401") == ["unknown"]


def test_another_index_may_be_meant_on_a_jetson(ask):
    verdict = ask("driver=540.4.0,gpu=8.7,os=linux", "torch=2.4.1")
    assert said(verdict, "CG401") == ["unknown"]


def test_nothing_is_assumed_of_a_cuda_that_is_left_open(ask):
    verdict = ask(POOL, {"torch": "2.4.1", "open": ["cuda: the lock does not say which"]})
    assert "cuda" not in verdict.stack
    assert verdict.verdict == "unknown"


@pytest.mark.parametrize(
    ("gpu", "stack", "outcome"),
    [
        ("3.7", "torch=2.6.0+cu118", ["unknown"]),
        ("V100-SXM2-32GB", "torch=2.6.0+cu118", []),
        ("GeForce-RTX-5090", "tensorflow=2.10.0,cuda=11.2", ["unknown"]),
        ("A100-SXM4-80GB", "tensorflow=2.10.0,cuda=11.2", []),
    ],
)
def test_the_cudnn_that_a_framework_asks_for_counts_where_none_is_stated(ask, gpu, stack, outcome):
    assert said(ask(f"driver=580.65.06,gpu={gpu}", stack), "CG302") == outcome


@pytest.mark.parametrize(("last", "outcome"), [("12.0", ["warn"]), ("9.0", ["unknown"])])
def test_a_release_seen_on_newer_gpus_than_its_cudnn_warns(ask, facts, monkeypatch, last, outcome):
    major, minor = map(int, last.split("."))
    seen = NewerGpus(">=2.10,<2.11", Source("a thread", None), (major, minor))
    table = replace(facts.framework("tensorflow"), on_newer_gpus=(seen,))
    monkeypatch.setitem(facts._frameworks, "tensorflow", table)
    monkeypatch.setattr(facts, "memory", {})
    verdict = ask("driver=580.65.06,gpu=GeForce-RTX-5090", "tensorflow=2.10.0,cuda=11.2")
    assert said(verdict, "CG302") == outcome


@pytest.mark.parametrize(
    ("place", "file", "outcome"),
    [
        ("cpu=aarch64", "torch-2.4.1-cp312-cp312-manylinux2014_aarch64.whl", "fail"),
        ("os=windows", "torch-2.4.1-cp312-cp312-win_amd64.whl", "fail"),
        ("cpu=aarch64", "torch-2.4.1-cp312-cp312-linux_aarch64.whl", "unknown"),
        ("cpu=aarch64", "", "unknown"),
    ],
)
def test_a_digest_can_pin_the_index_s_wheel_without_cuda(ask, place, file, outcome):
    stack = {"torch": "2.4.1", "cuda": "12.4"}
    if file:
        stack["wheels"] = {"torch": {"file": file, "sha256": "a" * 64}}
    verdict = ask(f"driver=580.65.06,gpu=H100-SXM5-80GB,{place}", stack)
    assert said(verdict, "CG401") == [outcome]


@pytest.mark.parametrize(
    ("version", "gpu", "outcome"),
    [
        ("2.4.0rc1+cu124", "H100-SXM5-80GB", []),
        ("2.8.0.dev20250407+cu128", "RTX 5090", []),
        ("2.7.0.dev20250407+cu128", "V100-SXM2-16GB", ["unknown"]),
        ("2.99.0.dev20270101+cu128", "H100-SXM5-80GB", ["unknown"]),
        ("2.6.0a0+ecf3bae40a", "H100-SXM5-80GB", ["unknown"]),
        ("2.4.0a0", "H100-SXM5-80GB", ["unknown"]),
    ],
)
def test_what_comes_before_a_release_is_assumed_to_be_like_it_and_never_denied(
    ask, version, gpu, outcome
):
    verdict = ask(f"driver=580.65.06,gpu={gpu}", f"cuda=12.8,torch={version}")
    assert said(verdict, "CG405") == outcome


def test_a_nightly_of_a_project_with_several_builds_has_no_cuda(ask):
    verdict = ask(POOL, "torch=2.5.0.dev20240801")
    assert "cuda" not in verdict.stack
    assert verdict.verdict == "unknown"


def test_the_assumption_about_a_release_candidate_is_said(ask):
    verdict = ask("driver=580.65.06,gpu=H100-SXM5-80GB", "torch=2.4.0rc1+cu124")
    assert "it is assumed to be like torch 2.4.0+cu124" in message(verdict, "CG401")
    assert verdict.verdict == "warn"


def test_a_release_candidate_comes_after_all_that_is_older_than_its_release():
    from compatgate.core.constraints import parse_constraint
    from compatgate.core.versions import parse_version

    for text in ("2.4.0rc1", "2.4.0.dev20240401+cu121"):
        version = parse_version("torch", text)
        assert not parse_constraint("torch", "<2.4").allows(version)
        assert not parse_constraint("torch", ">=2.4").allows(version)
        assert parse_constraint("torch", ">=2.3").allows(version)
