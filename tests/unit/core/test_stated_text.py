"""What a pasted text states is read, and what it states in two ways is not."""

from __future__ import annotations

import pytest

from compatgate.core.facts import Facts
from compatgate.core.stated_text import complete_question, read_stated

REPORT = """\
PyTorch version: 2.4.1+cu121
CUDA used to build PyTorch: 12.1
Python version: 3.11.9 (main, Apr  6 2024, 17:59:24) [GCC 11.4.0]
CUDA runtime version: 12.6.20
GPU models and configuration: GPU 0: NVIDIA H100 80GB HBM3
Nvidia driver version: 535.104.05
[pip3] numpy==1.26.4
[pip3] torch==2.4.1
"""
SMI = "| NVIDIA-SMI 570.86.10     Driver Version: 570.86.10     CUDA Version: 12.8    |\n"


def test_the_report_of_torch_is_read(facts: Facts) -> None:
    stated = read_stated(REPORT, facts)
    assert stated.stack == {"torch": "2.4.1+cu121", "python": "3.11.9", "cuda": "12.1"}
    assert stated.pool == {"driver": "535.104.05", "gpu": "H100-SXM5-80GB"}


def test_the_cuda_of_a_driver_is_not_that_of_the_stack(facts: Facts) -> None:
    stated = read_stated(SMI, facts)
    assert (stated.stack, stated.pool) == ({}, {"driver": "570.86.10"})


@pytest.mark.parametrize(
    "text",
    [
        "torch==2.4.0\ntorch==2.5.1\n",
        "xformers 0.0.28 requires torch==2.4.1, but you have torch 2.5.0\n",
        "PyTorch version: unknown\n",
        "ERROR: No matching distribution found for torch==1.7.0\n",
    ],
)
def test_what_is_not_sure_is_not_stated(facts: Facts, text: str) -> None:
    assert read_stated(text, facts).stack == {}


def test_a_gpu_is_read_from_a_warning_and_two_gpus_are_left_out(facts: Facts) -> None:
    one = "NVIDIA A100-SXM4-80GB with CUDA capability sm_80 is not compatible\n"
    assert read_stated(one, facts).pool == {"gpu": "A100-SXM4-80GB"}
    assert read_stated(one + "GPU 1: NVIDIA H100 80GB HBM3\n", facts).pool == {}


TEXT = """PyTorch version: 2.4.1+cu121
NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible
Driver Version: 535.183.01
"""


@pytest.mark.parametrize(
    ("question", "used"),
    [
        ({}, {"torch", "driver", "gpu"}),
        ({"stack": {"cuda": "12.4"}}, {"driver", "gpu"}),
        ({"target": "prod"}, {"torch"}),
        ({"target": "prod", "image": "app:1"}, set()),
        ({"pool": {"gpu": "L4"}, "stack": {"cuda": "12.4"}}, set()),
    ],
)
def test_a_text_completes_what_a_question_leaves_out(question, used, facts):
    whole, stated = complete_question(question, TEXT, facts)
    assert set(stated) == used
    assert whole.items() >= question.items()


def test_a_question_that_stays_incomplete_stays_as_it_is(facts):
    assert complete_question({}, "PyTorch version: 2.4.1+cu121", facts) == ({}, {})
