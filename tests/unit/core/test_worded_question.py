"""Questions in words are read as people write them, and nothing is guessed in silence."""

from __future__ import annotations

import pytest

from compatgate.core.facts import Facts
from compatgate.core.worded_question import is_exact, names_component, read_question
from compatgate.errors import BadInput

ALL_THREE = {"torch": "2.4.1", "cuda": "12.4", "python": "3.11"}
BOTH_WITH_LABEL = {"torch": "2.4.1+cu124", "torchvision": "0.19.1+cu124"}
TARGETS = ("prod-a100", "inference-l4")


@pytest.mark.parametrize(
    ("text", "stack"),
    [
        ("torch 2.4.1 cu124", {"torch": "2.4.1+cu124"}),
        ("pytorch 2.4.1 + cu124", {"torch": "2.4.1+cu124"}),
        ("torch\n2.4.1\ncu124\n", {"torch": "2.4.1+cu124"}),
        ("cu124 torch2.4.1", {"torch": "2.4.1+cu124"}),
        ("PyTorch 2.4.1, CUDA 12.4, Python 3.11", ALL_THREE),
        ("torch v2.4.1 py311 sm_90", {"torch": "2.4.1", "python": "3.11", "arch": "sm_90"}),
        ("is torch 2.4.1 allowed?", {"torch": "2.4.1"}),
        ("torch==2.4.1 torchvision==0.19.1 cu124", BOTH_WITH_LABEL),
        ("cudnn 9.1.0 cu12", {"cudnn": "9.1.0+cu12"}),
        ("cuda-12.4 arch=sm_80+compute_90", {"cuda": "12.4", "arch": "sm_80+compute_90"}),
        ("cu124 tensorflow 2.17.0", {"tensorflow": "2.17.0", "cuda": "12.4"}),
    ],
)  # fmt: skip
def test_natural_spellings_give_the_exact_stack(text: str, stack: dict[str, str], facts: Facts):
    found = read_question(text, facts)
    assert found.stack == stack
    assert not found.assumptions


def test_a_series_takes_the_newest_release_with_that_build_and_says_so(facts: Facts):
    found = read_question("torch 2.4 cu124 @ prod-a100", facts, TARGETS)
    (assumed,) = found.assumptions
    assert found.target == "prod-a100"
    assert found.stack == {"torch": f"{assumed.taken}+cu124"}
    assert assumed.taken.startswith("2.4.")
    assert "torch 2.4 names no release" in assumed.message.replace("PyTorch", "torch")
    assert all(other in assumed.message for other in assumed.others)


def test_the_exact_form_is_taken_as_it_is_written(facts: Facts):
    found = read_question("torch=2.4,cuda=12.4", facts)
    assert found.stack == {"torch": "2.4", "cuda": "12.4"}
    assert not found.assumptions
    assert is_exact("torch=2.4, cuda=12.4")
    assert not is_exact("torch 2.4")


def test_a_release_that_the_facts_do_not_know_stays_as_it_is_written(facts: Facts):
    assert read_question("torch 2.99 cu124", facts).stack == {"torch": "2.99+cu124"}


def test_a_pool_is_named_by_gpu_and_driver(facts: Facts):
    found = read_question("torch 2.4.1 @ A100 SXM4 80GB driver 535.104.05", facts, TARGETS)
    assert (found.gpu, found.driver, found.target) == ("A100 SXM4 80GB", "535.104.05", "")


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("does torch 2.8 run on our H100s?", "H100"),
        ("where can I use torch 2.8 on the H100's of the cluster", "H100"),
        ("torch 2.8 on any L40S nodes", "L40S"),
    ],
)
def test_a_question_is_read_as_people_ask_it(text: str, gpu: str, facts: Facts):
    found = read_question(text, facts, TARGETS)
    assert (found.gpu, found.target, set(found.stack)) == (gpu, "", {"torch"})


def test_an_image_is_asked_about_on_a_target(facts: Facts):
    digest = f"registry.example/team/app@sha256:{'0' * 64}"
    found = read_question(f"{digest} @ prod-a100", facts, TARGETS)
    assert (found.image, found.target) == (digest, "prod-a100")


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ("troch 2.4.1", "troch", "did you mean torch?"),
        ("torch @ prod-a100", "question", "write torch and a release"),
        ("torch 2.4.1 @ prod-a10", "target", "did you mean prod-a100?"),
        ("torch 2.4.1 @", "target", "for example @ prod-a100"),
        ("torch>=2.4", "torch", "state one"),
        ("torch 2.4.1 torch 2.3.1", "torch", "state one"),
        ("torch 2.4.1 cu12", None, None),
        ("jax 0.4.30 cu12", "cuda", "name the minor"),
        ("2.4.1 cu124", "question", "like torch 2.4.1"),
        ("frobnicate torch 2.4.1", "question", "write names with versions"),
        ("torch 2.4.1 cu124 cu121", "label", "name one"),
        ("x" * 3000, "question", "paste longer text"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_the_way_out(
    text: str, field: str | None, hint: str | None, facts: Facts
):
    if field is None:
        assert read_question(text, facts, TARGETS).stack == {"torch": "2.4.1+cu12"}
        return
    with pytest.raises(BadInput) as caught:
        read_question(text, facts, TARGETS)
    assert hint is not None
    assert hint in (caught.value.hint or "")
    assert caught.value.field in (field, "question")


@pytest.mark.parametrize(
    ("text", "is_question"),
    [
        ("torch 2.4", True),
        ("cu124", True),
        ("torch=2.4", True),
        ("troch 2.4", True),
        ("prod-a100", False),
        ("vd_00ff", False),
        ("CG101", False),
    ],
)
def test_a_question_names_a_component(text: str, is_question: bool):
    assert names_component(text) is is_question
