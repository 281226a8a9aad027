"""Packages of which the installed files were read: their record stands in the stack."""

import pytest

from compatgate.core.request import Policy
from compatgate.core.stack import parse_stack, update_stack
from compatgate.errors import BadInput

H100 = "driver=580.95.05,gpu=H100-SXM5-80GB"
A100 = "driver=580.95.05,gpu=A100-SXM4-80GB"
OLD_H100 = "driver=550.54.15,gpu=H100-SXM5-80GB"


def library(path="ext/_C.so", sass=(), ptx=(), units=1, **fields):
    return {
        "path": path,
        "sass": dict.fromkeys(sass, units),
        "ptx": dict.fromkeys(ptx, units),
        "units": units,
        **fields,
    }


def stack(*libraries, torch="2.9.1+cu128", torch_libraries=(), **record):
    body = {"ext": "1.0", "measured": {"ext": {"libraries": list(libraries), **record}}}
    if torch:
        body["torch"] = torch
    if torch_libraries:
        body["measured"]["torch"] = {"libraries": list(torch_libraries)}
    return body


def found(verdict, rule):
    return [(f.outcome, f.component) for f in verdict.findings if f.rule == rule]


def test_a_package_is_judged_by_its_own_files_without_a_shipped_record(ask):
    assert ask(A100, stack(library(sass=["sm_80"]))).verdict == "pass"
    verdict = ask(H100, stack(library(sass=["sm_100"])))
    assert found(verdict, "CG411") == [("fail", "ext")]
    assert found(verdict, "CG410") == []


def test_a_framework_is_judged_by_its_files_and_not_by_its_published_build_too(ask):
    code = library("torch/lib/libtorch_cuda.so", sass=["sm_80"])
    verdict = ask("driver=580.95.05,gpu=RTX-5090", stack(torch_libraries=[code]))
    assert found(verdict, "CG411") == [("fail", "torch")]
    assert found(verdict, "CG405") == found(verdict, "CG201") == []


@pytest.mark.parametrize(
    "other", ["libtorch_cuda_linalg.so", "libcudnn_ops.so.9", "libnccl-1234abcd.so.2"]
)
def test_libraries_of_others_within_a_framework_do_not_speak_for_it(ask, other):
    own = library("torch/lib/libtorch_cuda.so", sass=["sm_80", "sm_90"])
    bundled = library(f"torch/lib/{other}", sass=["sm_50"])
    assert found(ask(H100, stack(torch_libraries=[own, bundled])), "CG411") == []


def test_ptx_of_a_newer_toolkit_than_the_driver_s_fails_once(ask):
    verdict = ask(OLD_H100, stack(library(ptx=["compute_80"], ptx_cuda="12.8"), torch=""))
    assert [f.rule for f in verdict.findings if f.outcome == "fail"] == ["CG411"]


def test_code_of_no_package_is_judged_as_before(ask):
    body = {**stack(library(sass=["sm_90"])), "arch": ["sm_100"]}
    verdict = ask(H100, body)
    assert (found(verdict, "CG201"), found(verdict, "CG411")) == ([("fail", "arch")], [])


def test_files_that_could_not_be_read_leave_the_package_open(ask):
    body = stack(library(sass=["sm_90"]), unread=["ext/_D.so"])
    verdict = ask(H100, body)
    assert found(verdict, "CG410") == [("unknown", "ext")]
    (finding,) = (f for f in verdict.findings if f.rule == "CG410")
    assert "ext/_D.so of ext 1.0 could not be read" in finding.message
    assert found(ask(H100, body, policy=Policy(packages="audit")), "CG410") == [("warn", "ext")]
    assert found(ask(H100, {**body, "ext": "1.0[sm_90]"}), "CG410") == []


def test_a_symbol_that_torch_does_not_define_fails(ask):
    asks = library(sass=["sm_90"], torch={"symbols": 2, "digest": "0" * 16})
    missing = {"torch_beside": "2.9.1", "torch_missing": ["_ZN3c105ErrorE"]}
    verdict = ask(H100, stack(asks, **missing))
    (finding,) = (f for f in verdict.findings if f.rule == "CG413")
    assert finding.outcome == "fail"
    assert (
        "needs _ZN3c105ErrorE of torch, which torch 2.9.1+cu128 does not define" in finding.message
    )
    assert found(ask(H100, stack(asks, torch_beside="2.9.1")), "CG413") == []


def test_symbols_that_another_torch_defined_say_nothing_of_this_one(ask):
    asks = library(sass=["sm_90"], torch={"symbols": 2, "digest": "0" * 16})
    verdict = ask(H100, stack(asks, torch="2.8.0+cu128", torch_beside="2.9.1"))
    assert found(verdict, "CG413") == [("unknown", "ext")]


def test_the_torch_of_an_ngc_image_is_one_of_a_kind(ask):
    asks = library(sass=["sm_90"], torch={"symbols": 2, "digest": "0" * 16})
    torch = "2.9.0a0+50eac811a6.nv25.09"
    assert found(ask(H100, stack(asks, torch=torch, torch_beside="2.9.0a0")), "CG413") == []


def test_requirements_of_installed_metadata_hold_or_not(ask):
    body = stack(library(sass=["sm_90"]), requires=["torch==2.8.0", "numpy>=1; extra == 'x'"])
    assert found(ask(H100, body), "CG412") == [("fail", "torch")]


def test_pins_of_a_framework_on_components_are_judged_by_its_table_alone(ask):
    body = stack(torch_libraries=[library(sass=["sm_90"])])
    body["measured"]["torch"]["requires"] = ["nvidia-cudnn-cu12==9.10.2.21"]
    body["cudnn"] = "9.11.0.98+cu12"
    assert found(ask(H100, body), "CG412") == []


def test_two_stacks_that_differ_in_what_a_package_holds_have_different_verdicts(ask):
    bodies = (stack(library(sass=["sm_90"])), stack(library(sass=["sm_90"], needs=["liba.so"])))
    assert len({ask(H100, body).id for body in bodies}) == 2


def test_what_was_measured_is_of_its_release_alone():
    before = parse_stack(stack(library(sass=["sm_90"])))
    assert update_stack(before, {"ext": "1.1"}).measured == {}
    assert update_stack(before, {"torch": "2.8.0"}).measured == before.measured
    assert parse_stack(before.to_json()) == before


@pytest.mark.parametrize(
    ("measured", "field", "problem"),
    [
        ([], "measured", "must be an object"),
        ({"ext": 1}, "measured.ext", "must be an object"),
        ({"ext": {"libraries": 1}}, "measured.ext.libraries", "is not a record"),
        ({"ext": {"libraries": [library(sass=["x"])]}}, "measured.ext.libraries", "architecture"),
        ({"ext": {"libraries": [library()] * 2001}}, "measured.ext.libraries", "too many"),
        (
            {"ext": {"libraries": [library(sass=["sm_90"], ptx_cuda="new")]}},
            "measured.ext.libraries.ptx_cuda",
            "not a release",
        ),
    ],
)
def test_what_is_no_record_is_refused_by_field(measured, field, problem):
    with pytest.raises(BadInput) as error:
        parse_stack({"ext": "1.0", "measured": measured})
    assert error.value.field == field
    assert problem in error.value.problem
