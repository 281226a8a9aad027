"""The command that installs a stack names the distributions and the indexes of its builds."""

from __future__ import annotations

import pytest

from compatgate.catalog import load_facts
from compatgate.check.solve import install_line

FACTS = load_facts(overlays=[])


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ({"cuda": "13.2", "torch": "2.15.0"}, "pip install torch==2.15.0"),
        (
            {"cuda": "12.9", "python": "3.13", "jax": "0.7.2", "jax-cuda12-plugin": "0.7.2"},
            "python3.13 -m pip install 'jax[cuda12]==0.7.2' jax-cuda12-plugin==0.7.2",
        ),
        ({"cuda": "13.0", "tensorrt": "11.4.0"}, "pip install 'tensorrt-cu13==11.4.0.*'"),
        (
            {"cuda": "13.0", "torch": "2.14.1", "transformer-engine": "2.20.2+cu13"},
            "pip install torch==2.14.1 transformer-engine-cu13==2.20.2",
        ),
        (
            {"cuda": "12.6", "torch": "2.14.1+cu126", "flash-attn": "2.8.3[sm_80]"},
            "pip install torch==2.14.1+cu126"
            " --extra-index-url https://download.pytorch.org/whl/cu126",
        ),
        (
            {"cuda": "12.9", "torch": "2.14.0", "vllm": "0.33.0+cu129"},
            "not on the package index: vllm 0.33.0+cu129; its project has such builds",
        ),
        ({"cuda": "13.2", "cudnn": "9.26.0", "python": "3.12"}, ""),
    ],
)
def test_a_stack_is_installed_as_it_was_judged(stack: dict[str, str], line: str) -> None:
    assert install_line(stack, {}, FACTS) == line


def test_a_wanted_part_that_the_stack_leaves_open_is_installed_with_it() -> None:
    want = {"torch": "*", "numpy": "<2", "pandas": "*"}
    assert install_line({"torch": "2.15.0"}, want, FACTS).endswith(
        " torch==2.15.0 'numpy<2' pandas"
    )
