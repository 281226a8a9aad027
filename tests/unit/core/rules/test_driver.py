"""CG101 to CG105 where a case, not a record of the facts, is the point."""

import pytest

A100 = "gpu=A100-SXM4-80GB"


def said(verdict, rule):
    return [f.outcome for f in verdict.findings if f.rule == rule]


def message(verdict, rule):
    return " ".join(f.message for f in verdict.findings if f.rule == rule)


@pytest.mark.parametrize("cuda", ["12.4", "12.4.0", "12.4.1", "12.4.131", "12040"])
def test_every_spelling_of_a_toolkit_has_its_floor(cuda, ask):
    old = ask(f"driver=525.60.11,{A100}", {"cuda": cuda, "arch": ["sm_80"]})
    new = ask(f"driver=525.60.13,{A100}", {"cuda": cuda, "arch": ["sm_80"]})
    assert said(old, "CG101") == ["fail"]
    assert said(new, "CG101") == []


def test_an_update_has_its_own_driver_and_a_series_that_of_its_first_release(ask):
    pool = f"driver=550.54.14,{A100}"
    assert said(ask(pool, "cuda=12.4,arch=sm_80"), "CG102") == []
    assert said(ask(pool, "cuda=12.4.1,arch=sm_80"), "CG102") == ["warn"]


def test_an_update_without_a_row_of_its_own_takes_the_row_that_the_facts_name(ask):
    pool = f"driver=545.23.08,{A100}"
    assert said(ask(pool, "cuda=12.3.2,arch=sm_80"), "CG102") == []
    older = f"driver=545.23.06,{A100}"
    assert said(ask(older, "cuda=12.3.2,arch=sm_80"), "CG102") == ["warn"]


@pytest.mark.parametrize("cuda", ["12.7", "12.10", "7.5", "12.4.7", "19.0"])
def test_a_toolkit_that_the_facts_do_not_know_is_unknown_never_pass(cuda, ask):
    verdict = ask(f"driver=595.91.07,{A100}", {"cuda": cuda, "arch": ["sm_80"]})
    assert said(verdict, "CG101") == ["unknown"]
    assert verdict.verdict == "unknown"


def test_a_toolkit_that_was_never_released_says_so(ask):
    verdict = ask(f"driver=565.57.01,{A100}", "cuda=12.7,arch=sm_80")
    assert "never released" in message(verdict, "CG101")


def test_an_unknown_toolkit_names_the_newest_known_one(ask, facts):
    verdict = ask(f"driver=595.91.07,{A100}", "cuda=19.0,arch=sm_80")
    newest = facts.cuda_driver.toolkits[-1].version
    assert str(newest) in message(verdict, "CG101")


@pytest.mark.parametrize("rest", ["torch=2.4.1+cu124", "cuda=12.4", "tensorflow=2.17.0,cuda=12.3"])
@pytest.mark.parametrize("build", ["jax=0.7.2+cuda13", "cupy=13.6.0+cu13"])
def test_a_build_of_a_newer_major_needs_its_driver_beside_an_older_cuda(build, rest, ask):
    assert said(ask(f"driver=535.183.01,{A100}", f"{build},{rest}"), "CG101") == ["fail"]
    assert said(ask(f"driver=580.95.05,{A100}", f"{build},{rest}"), "CG101") == []


def test_aarch64_has_a_floor_of_its_own_for_cuda_11_0(ask):
    pool = f"driver=450.28.01,{A100}"
    assert said(ask(f"{pool},cpu=aarch64", "cuda=11.0.1,arch=sm_80"), "CG101") == []
    assert said(ask(pool, "cuda=11.0.1,arch=sm_80"), "CG101") == ["fail"]


@pytest.mark.parametrize("os", ["windows", "wsl"])
def test_windows_and_wsl_have_driver_numbers_of_their_own(os, ask):
    stack = "cuda=12.4,arch=sm_89"
    assert said(ask(f"driver=528.33,gpu=GeForce-RTX-4090,os={os}", stack), "CG101") == []
    assert said(ask(f"driver=528.24,gpu=GeForce-RTX-4090,os={os}", stack), "CG101") == ["fail"]


def test_the_windows_floor_of_cuda_12_0_is_the_one_of_its_time(ask):
    pool = "driver=527.41,gpu=GeForce-RTX-4090,os=windows"
    assert said(ask(pool, "cuda=12.0,arch=sm_89"), "CG101") == []
    assert said(ask(pool, "cuda=12.1,arch=sm_89"), "CG101") == ["fail"]


def test_what_needs_its_ptx_compiled_fails_where_minor_compatibility_alone_holds(ask):
    pool = f"driver=535.183.01,{A100}"
    sass, ptx = (ask(pool, f"cuda=12.4,arch={arch}") for arch in ("sm_80", "compute_80"))
    assert (said(sass, "CG102"), said(sass, "CG202")) == (["warn"], [])
    assert (said(ptx, "CG102"), said(ptx, "CG202")) == (["fail"], ["fail"])
    assert "minor-version compatibility" in message(sass, "CG102")


def test_ptx_of_an_older_toolkit_is_compiled_by_a_driver_below_the_newest_update(ask):
    """12.4.1's own driver is 550.54.15; 550.54.14 reports 12.4 all the same."""
    verdict = ask(f"driver=550.54.14,{A100}", "cuda=12.4.1,arch=compute_80")
    assert said(verdict, "CG102") == ["warn"]
    assert said(verdict, "CG202") == []


@pytest.mark.parametrize("os", ["windows", "wsl"])
def test_a_windows_driver_of_cuda_13_is_not_refused_for_want_of_a_published_number(os, ask):
    verdict = ask(
        f"driver=582.28,gpu=GeForce-RTX-4090,os={os}",
        {"cuda": "13.0", "arch": ["compute_89"], "require": ["cuda>=13.0"]},
    )
    assert "fail" not in said(verdict, "CG202")
    assert "fail" not in said(verdict, "CG102")
    assert "fail" not in said(verdict, "CG601")


# --- forward compatibility -------------------------------------------------------------------


def test_forward_compatibility_lifts_the_floor_and_compiles_ptx(ask):
    pool = f"driver=470.57.02,{A100}"
    verdict = ask(pool, "cuda=12.4,cuda-compat=12.4,arch=compute_80")
    for rule in ("CG101", "CG102", "CG103", "CG202"):
        assert said(verdict, rule) == [], rule


def test_a_package_older_than_the_cuda_of_the_stack_does_not_compile_its_ptx(ask):
    verdict = ask(f"driver=525.60.13,{A100}", "cuda=12.4,cuda-compat=12.2,arch=compute_80")
    assert said(verdict, "CG103") == []
    assert said(verdict, "CG202") == ["fail"]


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("A100-SXM4-80GB", []),
        ("GeForce-RTX-4090", ["fail"]),
        ("TITAN-V", ["fail"]),
        ("RTX-A6000", ["warn"]),
        ("8.0", ["unknown"]),
    ],
)
def test_forward_compatibility_depends_on_the_product(gpu, expected, ask):
    verdict = ask(f"driver=535.104.05,gpu={gpu}", "cuda=12.4,cuda-compat=12.4,arch=compute_70")
    assert said(verdict, "CG103") == expected


def test_an_ineligible_gpu_is_told_of_error_804(ask):
    verdict = ask("driver=535.104.05,gpu=GeForce-RTX-4090", "cuda=12.4,cuda-compat=12.4")
    assert "804" in message(verdict, "CG103")


def test_forward_compatibility_is_for_linux(ask):
    verdict = ask(f"driver=528.33,{A100},os=wsl", "cuda=12.4,cuda-compat=12.4,arch=sm_80")
    assert said(verdict, "CG103") == ["fail"]


def test_a_host_driver_newer_than_the_package_is_refused(ask):
    verdict = ask(f"driver=580.65.06,{A100}", "cuda=12.4,cuda-compat=12.4,arch=sm_80")
    assert said(verdict, "CG103") == ["fail"]
    assert {"cuda-compat": None} in [f.set for x in verdict.findings for f in x.fixes]


def test_what_depends_on_an_unknown_forward_compatibility_is_unknown_itself(ask):
    for gpu, compat in ((A100, "12.8"), ("gpu=8.0", "12.2")):
        stack = f"cuda={compat},cuda-compat={compat},arch=compute_80"
        verdict = ask(f"driver=470.57.02,{gpu}", stack)
        assert said(verdict, "CG103") == ["unknown"]
        assert said(verdict, "CG101") == ["unknown"]
        assert "fail" not in said(verdict, "CG202")
        assert "fail" not in said(verdict, "CG102")
        assert verdict.verdict == "unknown"


def test_a_package_that_is_not_known_is_unknown(ask):
    verdict = ask(f"driver=535.104.05,{A100}", "cuda=12.4,cuda-compat=12.7,arch=sm_80")
    assert said(verdict, "CG103") == ["unknown"]


@pytest.mark.parametrize(
    ("use", "driver", "gpu", "expected"),
    [
        # The container runtime leaves a package aside that is of no newer branch than the host.
        ("newer", "580.65.06", "A100-SXM4-80GB", []),
        ("newer", "550.54.14", "A100-SXM4-80GB", []),
        ("newer", "580.65.06", "GeForce-RTX-4090", []),
        ("newer", "535.104.05", "GeForce-RTX-4090", ["fail"]),
        ("newer", "535.104.05", "A100-SXM4-80GB", []),
        # A start script falls back to the host's driver where the package does not work.
        ("tried", "535.104.05", "GeForce-RTX-4090", []),
        ("tried", "580.65.06", "A100-SXM4-80GB", []),
        # The library path leads to it whatever the host has.
        ("always", "580.65.06", "A100-SXM4-80GB", ["fail"]),
    ],
)
def test_a_package_counts_where_it_is_loaded(use, driver, gpu, expected, ask):
    stack = {"cuda": "12.4", "cuda-compat": "12.4", "cuda-compat-use": use, "arch": "sm_80"}
    verdict = ask(f"driver={driver},gpu={gpu}", stack)
    assert said(verdict, "CG103") == expected


def test_a_package_that_is_left_aside_compiles_no_ptx(ask):
    """CUDA 12.6's package is of branch 560; a host of that branch has a driver of its own."""
    stack = {"cuda": "12.6", "cuda-compat": "12.4", "cuda-compat-use": "newer", "arch": "sm_80"}
    assert said(ask(f"driver=550.54.14,{A100}", stack), "CG102") == ["warn"]


def test_raising_the_driver_is_a_fix_where_the_package_is_then_left_aside(ask):
    stack = {"cuda": "12.4", "cuda-compat": "12.4", "cuda-compat-use": "newer", "arch": "sm_89"}
    verdict = ask("driver=535.104.05,gpu=GeForce-RTX-4090", stack)
    fixes = [f.set for x in verdict.findings if x.rule == "CG103" for f in x.fixes]
    assert {"driver": ">=550.40.07"} in fixes


# --- branches and GPUs -----------------------------------------------------------------------


def test_forward_compatibility_does_not_help_a_gpu_that_the_kernel_driver_does_not_know(ask):
    verdict = ask("driver=535.104.05,gpu=B200", "cuda=12.8,cuda-compat=12.8,arch=sm_100")
    assert said(verdict, "CG105") == ["fail"]


@pytest.mark.parametrize("driver", ["999.10.01", "616.10.01", "576.02", "100.14"])
def test_a_branch_that_the_facts_do_not_know_is_unknown(driver, ask):
    verdict = ask(f"driver={driver},{A100}", "cuda=12.4,arch=sm_80")
    assert said(verdict, "CG105") in (["unknown"], ["fail"])
    assert verdict.verdict in ("unknown", "fail")


def test_a_number_between_linux_branches_is_asked_whether_it_is_windows(ask):
    verdict = ask(f"driver=576.02,{A100}", "cuda=12.4,arch=sm_80")
    assert said(verdict, "CG105") == ["unknown"]
    assert "os=windows" in message(verdict, "CG105")


def test_of_two_published_ends_of_life_the_earlier_counts(ask):
    from datetime import UTC, datetime

    verdict = ask(f"driver=580.65.06,{A100}", "cuda=12.4", now=datetime(2028, 7, 1, tzinfo=UTC))
    assert said(verdict, "CG104") == ["warn"]
    assert "2028-06-30" in message(verdict, "CG104")


def test_a_branch_that_ended_without_a_date_warns(ask):
    assert said(ask(f"driver=565.57.01,{A100}", "cuda=12.4,arch=sm_80"), "CG104") == ["warn"]


def test_a_branch_of_which_nothing_is_published_is_not_checked(ask):
    verdict = ask(f"driver=615.78.08,{A100}", "cuda=13.0,arch=sm_80")
    assert said(verdict, "CG104") == ["not-checked"]
    assert verdict.verdict == "pass"


def test_the_end_of_life_of_a_branch_never_fails(ask):
    verdict = ask(f"driver=450.248.02,{A100}", "cuda=11.0,arch=sm_80")
    assert said(verdict, "CG104") == ["warn"]
    assert verdict.verdict == "warn"
