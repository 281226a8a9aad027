"""What requirements say of CUDA, of pins and of Pythons."""

import pytest
from packaging.specifiers import SpecifierSet
from refresh.requirements import (
    applicable_requirements,
    cuda_of,
    gpu_requirements,
    pins_of,
    range_of,
    spec_of,
)

from compatgate.errors import DamagedContent

TORCH = [
    "filelock",
    'nvidia-cudnn-cu13==9.24.0.43; platform_system == "Linux"',
    'nvidia-nccl-cu13==2.30.7; platform_system == "Linux"',
    'cuda-toolkit[cudart,cublas]==13.0.3; platform_system == "Linux"',
    'triton~=3.8.0; platform_system == "Linux" and python_version < "3.15"',
    'setuptools; python_version >= "3.12"',
    'opt-einsum>=3.3; extra == "opt-einsum"',
    'colorama; sys_platform == "win32"',
]


def texts(found):
    return [one.text for one in found]


def test_requirements_of_other_platforms_extras_and_pythons_do_not_apply():
    found = applicable_requirements(TORCH, (), ["3.10", "3.11"])
    assert texts(found) == [
        "filelock",
        "nvidia-cudnn-cu13==9.24.0.43",
        "nvidia-nccl-cu13==2.30.7",
        "cuda-toolkit[cublas,cudart]==13.0.3",
        'triton~=3.8.0; python_version < "3.15"',
    ]
    assert "setuptools" in "".join(texts(applicable_requirements(TORCH, (), ["3.11", "3.12"])))


def test_of_an_extra_only_what_the_extra_adds_is_given():
    lines = ["numpy", 'nvidia-cudnn-cu13~=9.0; extra == "cudnn"', 'x; extra == "other"']
    (found,) = applicable_requirements(lines, ("cudnn",), ["3.12"])
    assert (found.text, found.extra) == ("nvidia-cudnn-cu13~=9.0", "cudnn")


def test_packages_of_gpus_are_kept(facts):
    kept = gpu_requirements(applicable_requirements(TORCH, (), ["3.12"]), facts.packages)
    names = [one.requirement.name for one in kept]
    assert names == ["nvidia-cudnn-cu13", "nvidia-nccl-cu13", "cuda-toolkit", "triton"]


def test_cuda_and_pins_are_read_from_what_is_required():
    found = applicable_requirements(TORCH, (), ["3.12"])
    assert cuda_of(found) == (13, 0)
    assert pins_of(found) == {"cudnn": "==9.24.0.43", "nccl": "==2.30.7"}


@pytest.mark.parametrize(
    ("requirement", "cuda"),
    [
        ("nvidia-cuda-runtime-cu12<13.0,>=12.5.82", (12, 5)),
        ("nvidia-cuda-runtime~=13.0", (13, 0)),
        ("nvidia-cuda-runtime-cu12==12.6.77", (12, 6)),
        ("nvidia-cuda-runtime<14", None),
        ("numpy>=2", None),
    ],
)
def test_the_cuda_is_the_lowest_runtime_that_would_do(requirement, cuda):
    assert cuda_of(applicable_requirements([requirement], (), ["3.12"])) == cuda


def test_what_is_no_requirement_is_named():
    with pytest.raises(DamagedContent, match="is not a requirement") as caught:
        applicable_requirements(["numpy", "no requirement >>"], (), ["3.12"])
    assert caught.value.value == "no requirement >>"


@pytest.mark.parametrize(
    ("specifiers", "spec"),
    [
        ("==9.1.0.70", "==9.1.0.70"),
        ("<10.0,>=9.10.2.21", ">=9.10.2.21,<10.0"),
        ("~=9.0", "9.*"),
        ("~=2.21.5", ">=2.21.5,<2.22"),
        ("==2.*", "2.*"),
        ("!=2.1", None),
        ("", None),
    ],
)
def test_specifiers_are_written_as_pins_are(specifiers, spec):
    assert spec_of(SpecifierSet(specifiers)) == spec


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        (">=3.10", ("3.10", None)),
        ("<3.15,>=3.11", ("3.11", "3.14")),
        (">=3.9,!=3.9.1,<=3.13", ("3.9", "3.13")),
        ("<4,>=3.8", ("3.8", None)),
        (None, (None, None)),
        ("3.9 or newer", (None, None)),
        ("===3.9-odd", (None, None)),
    ],
)
def test_a_range_of_pythons_has_the_ends_that_are_stated(requires, expected):
    assert range_of(requires) == expected
