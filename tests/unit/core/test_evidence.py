"""What waivers and canary evidence speak of."""

import pytest
from msgspec.structs import replace

from compatgate.core.binding import Binding
from compatgate.core.constraints import parse_constraint
from compatgate.core.matrix import Evidence, Matrix, Waiver
from compatgate.core.pooled_runs import find_coverage
from compatgate.core.stack import parse_stack
from compatgate.core.versions import parse_version

STACK = {"cuda": "12.4.1", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": ["sm_80"]}


def waiver(**fields):
    fields = {
        "name": "w",
        "rules": ("CG803",),
        "targets": ("t",),
        "owner": "team-ocr",
        "reason": "legacy",
        "expires": "2027-01-31",
    } | fields
    fields["components"] = {
        c: parse_constraint(c, text) for c, text in fields.get("components", {}).items()
    }
    return Waiver(**fields)


def run(**fields):
    measured = fields.pop(
        "components", {"cuda": "12.4.1", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
    )
    fields = {
        "id": "run_1",
        "suite": "smoke",
        "sku": "A100-SXM4-80GB",
        "driver": parse_version("driver", "550.54.15"),
        "components": {c: parse_version(c, text) for c, text in measured.items()},
        "outcome": "passed",
        "finished": 1_790_000_000,
    } | fields
    return Evidence(**fields)


@pytest.fixture
def pool(pool_of):
    return pool_of("driver=535.183.01,gpu=A100-SXM4-80GB")


@pytest.fixture
def slice_of_a100(pool_of):
    return pool_of("driver=535.183.01,gpu=A100-SXM4-80GB-MIG-1g.10gb")


@pytest.mark.parametrize(
    ("today", "covers"),
    [("2026-11-21", True), ("2027-01-31", True), ("2027-02-01", False), ("2027-12-01", False)],
)
def test_a_waiver_holds_to_the_end_of_its_last_day(today, covers):
    assert waiver().covers("t", parse_stack(STACK), today) is covers


@pytest.mark.parametrize(
    ("targets", "covers"), [(("t",), True), (("u",), False), (("u", "t"), True), (("*",), True)]
)
def test_a_waiver_covers_its_targets_alone(targets, covers):
    assert waiver(targets=targets).covers("t", parse_stack(STACK), "2026-11-21") is covers


@pytest.mark.parametrize(
    ("image", "covers"),
    [
        ("registry.example/ocr/reader:1", True),
        ("registry.example/ocr/reader@sha256:abc", True),
        ("registry.example/asr/reader:1", False),
        (None, False),
    ],
)
def test_a_waiver_for_an_image_covers_what_the_pattern_matches(image, covers):
    stack = parse_stack(STACK, image=image)
    assert waiver(image="registry.example/ocr/*").covers("t", stack, "2026-11-21") is covers


def test_the_case_of_an_image_pattern_counts():
    stack = parse_stack(STACK, image="registry.example/OCR/reader:1")
    assert not waiver(image="registry.example/ocr/*").covers("t", stack, "2026-11-21")


@pytest.mark.parametrize(
    ("components", "covers"),
    [
        ({"cuda": "12.4.*"}, True),
        ({"cuda": "12.4.*", "cudnn": "9.*"}, True),
        ({"cuda": "12.6.*"}, False),
        ({"nccl": "2.*"}, False),
    ],
)
def test_a_waiver_may_be_for_certain_stacks(components, covers):
    covered = waiver(components=components).covers("t", parse_stack(STACK), "2026-11-21")
    assert covered is covers


# --- evidence --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "about"),
    [
        ({"cuda": "12.4.1", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}, True),
        ({"cuda": "12.4.1"}, False),
        ({"cuda": "12.4.1", "torch": "2.4.1", "cudnn": "9.1.0.70"}, True),
        ({"cuda": "12.4.1", "torch": "2.4.1", "cudnn": "90100"}, True),
        ({"cuda": "12.4.1", "torch": "2.4.1"}, True),
        ({"cuda": "12.4.1", "torch": "2.4.1", "cudnn": "9.1.1"}, False),
        ({"cuda": "12.6.1"}, False),
        ({"cuda": "12.4.1", "torch": "2.4.1+cu121"}, False),
        ({"cuda": "12.4.1", "nccl": "2.21.5"}, False),
    ],
)
def test_evidence_is_about_the_stack_that_was_measured(stated, about):
    assert run().is_about(parse_stack(stated)) is about


def test_what_was_measured_beside_the_stated_components_does_not_matter():
    measured = {"cuda": "12.4.1", "nccl": "2.21.5", "python": "3.11.7"}
    assert run(components=measured).is_about(parse_stack({"cuda": "12.4.1"}))


def test_the_cuda_that_the_driver_api_measures_is_evidence_for_any_update_of_its_series():
    assert run(components={"cuda": "12040"}).is_about(parse_stack({"cuda": "12.4.1"}))
    assert not run(components={"cuda": "12040"}).is_about(parse_stack({"cuda": "12.5.0"}))


def covering(matrix, pool):
    found = find_coverage(matrix.runs("smoke", pool), parse_stack(STACK), "content")
    return [run.id for run in found.runs]


def test_runs_are_found_by_suite_and_sku(pool):
    matrix = Matrix(
        evidence=[
            run(id="mine"),
            run(id="other-suite", suite="dl-core"),
            run(id="other-sku", sku="L4"),
            run(id="other-stack", components={"cuda": "12.6.1"}),
        ]
    )
    assert covering(matrix, pool) == ["mine"]


def test_a_run_on_another_driver_is_found_too(pool):
    found = Matrix(evidence=[run()]).runs("smoke", pool)
    assert found[0].driver != pool.driver


def test_a_slice_is_a_sku_of_its_own(pool, slice_of_a100):
    matrix = Matrix(evidence=[run(sku="A100-SXM4-80GB-MIG-1g.10gb")])
    assert covering(matrix, slice_of_a100)
    assert not covering(matrix, pool)


def test_an_inconclusive_run_is_no_evidence(pool):
    matrix = Matrix(evidence=[run(outcome="inconclusive")])
    assert covering(matrix, pool) == []


def test_a_failed_run_of_the_same_image_covers_it_though_its_content_was_not_read():
    content, image, other = (f"sha256:{letter * 64}" for letter in "abc")
    stack = replace(parse_stack(STACK), content=content)
    passed = run(bound=Binding(image=image, content=content))

    def covered(**fields):
        found = find_coverage([passed, run(id="run_2", **fields)], stack, "content")
        return [one.id for one in found.runs]

    assert covered(outcome="failed", bound=Binding(image=image)) == ["run_1", "run_2"]
    assert covered(outcome="failed", bound=Binding(image=other)) == ["run_1"]
    assert covered(outcome="passed", bound=Binding(image=image)) == ["run_1"]


def test_without_a_gpu_there_is_no_evidence(pool_of):
    matrix = Matrix(evidence=[run()])
    assert covering(matrix, pool_of("driver=550.54.15")) == []
