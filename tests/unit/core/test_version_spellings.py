"""Every spelling of a version that users, drivers, packages and images have for it."""

import pytest

from compatgate.core.versions import parse_version
from compatgate.errors import BadInput


@pytest.mark.parametrize(
    ("component", "text", "parts"),
    [
        ("driver", "525.60.13", (525, 60, 13)),
        ("driver", "550.54.15", (550, 54, 15)),
        ("driver", "527.41", (527, 41)),
        ("driver", "570.26", (570, 26)),
        ("driver", "535.104.05", (535, 104, 5)),
        ("driver", "450.248.02", (450, 248, 2)),
        ("driver", "304.137", (304, 137)),
        ("driver", "v535.104.05", (535, 104, 5)),
        ("cuda", "CUDA 12.4", (12, 4)),
        ("cuda", "release 12.4", (12, 4)),
        ("cuda", "cuda_12.4.r12.4/compiler.34097967_0", (12, 4)),
        ("python", "3.10.x", (3, 10)),
        ("torch", "2.4.x", (2, 4)),
        ("tensorflow", "2.15.0-gpu-jupyter", (2, 15, 0)),
        ("cudnn", "cuDNN-8.9.7", (8, 9, 7)),
        ("tensorrt", "TensorRT-8.6.1.6", (8, 6, 1, 6)),
        ("torch", "pytorch-2.4.1", (2, 4, 1)),
        ("tritonserver", "24.05-py3", (24, 5)),
        ("tritonserver", "24.05-vllm-python-py3", (24, 5)),
        ("cuda", "12.4", (12, 4)),
        ("cuda", "12.4.1", (12, 4, 1)),
        ("cuda", "12040", (12, 4)),
        ("cuda", "12.4.131", (12, 4)),
        ("cuda", "V12.4.131", (12, 4)),
        ("cuda", "12.4.127-1", (12, 4)),
        ("cuda", "10.2.89", (10, 2, 89)),
        ("cuda", "10.1.105", (10, 1, 105)),
        ("cuda", "13.0.2.006", (13, 0, 2)),
        ("cuda", "12.10", (12, 10)),
        ("cuda", "12100", (12, 10)),
        ("cuda", "11080", (11, 8)),
        ("cuda", "9020", (9, 2)),
        ("cuda", "cu121", (12, 1)),
        ("cuda", "cu118", (11, 8)),
        ("cuda", "cu92", (9, 2)),
        ("cudnn", "9.1.0", (9, 1, 0)),
        ("cudnn", "9.1", (9, 1)),
        ("cudnn", "9", (9,)),
        ("cudnn", "9.1.0.70", (9, 1, 0, 70)),
        ("cudnn", "90100", (9, 1, 0)),
        ("cudnn", "91002", (9, 10, 2)),
        ("cudnn", "92800", (9, 28, 0)),
        ("cudnn", "8907", (8, 9, 7)),
        ("cudnn", "7605", (7, 6, 5)),
        ("cudnn", "8.9.7.29-1+cuda12.2", (8, 9, 7, 29)),
        ("nccl", "2.21.5", (2, 21, 5)),
        ("nccl", "22105", (2, 21, 5)),
        ("nccl", "21003", (2, 10, 3)),
        ("nccl", "2804", (2, 8, 4)),
        ("nccl", "2.21.5-1+cuda12.4", (2, 21, 5)),
        ("nccl", "2.28.3.post1", (2, 28, 3)),
        ("python", "3.11", (3, 11)),
        ("python", "3.11.7", (3, 11, 7)),
        ("python", "Python 3.11.7", (3, 11, 7)),
        ("python", "cp39", (3, 9)),
        ("python", "cp311", (3, 11)),
        ("python", "3.13t", (3, 13)),
        ("python", "cp313t", (3, 13)),
        ("torch", "2.4.1", (2, 4, 1)),
        ("torch", "v2.4.1", (2, 4, 1)),
        ("torch", "2.6.0a0+ecf3bae40a.nv25.01", (2, 6, 0)),
        ("cublas", "12.4.5.8", (12, 4, 5, 8)),
        ("tensorrt", "10.13.2.6", (10, 13, 2, 6)),
        ("jax", "0.12.0.1", (0, 12, 0, 1)),
    ],
)
def test_a_spelling_gives_its_numbers(component, text, parts):
    assert parse_version(component, text).parts == parts


@pytest.mark.parametrize(
    ("component", "text"),
    [
        ("driver", "535.104.05"),
        ("cuda", "12040"),
        ("cudnn", "90100"),
        ("torch", "2.4.1+cu121"),
        ("python", "cp311"),
    ],
)
def test_a_version_is_shown_as_it_was_written(component, text):
    assert str(parse_version(component, text)) == text


def test_a_label_behind_another_sign_is_the_label_of_the_same_build():
    assert parse_version("torch", "2.4.1-cu121").text == "2.4.1+cu121"


def test_space_around_a_version_does_not_count():
    assert parse_version("driver", " 535.104.05\n").text == "535.104.05"


@pytest.mark.parametrize(
    ("component", "text", "cuda"),
    [
        ("torch", "2.4.1+cu121", (12, 1)),
        ("torch", "2.4.1+CU121", (12, 1)),
        ("torch", "2.4.1-cu121", (12, 1)),
        ("torch", "2.4.1_cu121", (12, 1)),
        ("koboldcpp", "1.66.1_cuda12", (12,)),
        ("torch", "2.4.1+cu118.with.pypi.cudnn", (11, 8)),
        ("torch", "2.9.1+cu130", (13, 0)),
        ("torch", "1.13.1+cu92", (9, 2)),
        ("torch", "2.11.0.dev20260101+cu128", (12, 8)),
        ("torch", "2.4.1+cu12", (12,)),
        ("torch", "2.4.1", None),
        ("torch", "2.4.1+cpu", None),
        ("torch", "2.4.1+rocm6.2", None),
        ("cudnn", "9.1.0+cu12", (12,)),
        ("cudnn", "90100+cu12", (12,)),
        ("cudnn", "9.1.0.70-1+cuda12.4", (12, 4)),
        ("nccl", "2.21.5+cu12", (12,)),
        ("nccl", "2.21.5-1+cuda12.4", (12, 4)),
        ("jax", "0.4.20+cuda12.cudnn89", (12,)),
        ("nvidia-cudnn-cu12", "9.1.0.70", (12,)),
        ("libcudnn9-cuda-12", "9.1.0.70-1", (12,)),
        ("cupy-cuda11x", "13.0.0", (11,)),
    ],
)
def test_the_cuda_that_a_component_was_built_for_is_read(component, text, cuda):
    assert parse_version(component, text).cuda == cuda


@pytest.mark.parametrize(
    ("text", "local"), [("3.13t", "t"), ("cp313t", "t"), ("3.13", ""), ("3.13.0", "")]
)
def test_a_free_threaded_python_is_known_as_such(text, local):
    assert parse_version("python", text).local == local


@pytest.mark.parametrize(
    ("component", "text"),
    [
        ("driver", ""),
        ("driver", "535"),
        ("driver", "r535"),
        ("driver", "535.x"),
        ("driver", "535.104.05.1"),
        ("driver", "31.0.15.3699"),
        ("driver", "535.104.05-1"),
        ("driver", "latest"),
        ("driver", "999999.1"),
        ("driver", "\u0665\u0663\u0665.\u0661\u0660\u0664.\u0660\u0665"),
        ("cuda", ""),
        ("cuda", "12"),
        ("cuda", "cu12"),
        ("cuda", "12041"),
        ("cuda", "1204"),
        ("cuda", "12.4.1.2.3"),
        ("cuda", "-12.4"),
        ("cuda", "12.4-devel"),
        ("cuda", "latest"),
        ("cuda", "\u0661\u0662.\u0664"),
        ("cudnn", "892"),
        ("cudnn", "123456789"),
        ("cudnn", "9.1.0.70.1"),
        ("cudnn", "nine"),
        ("nccl", "2"),
        ("nccl", "2.21.5+"),
        ("python", "3"),
        ("python", "3.110"),
        ("python", "py311"),
        ("torch", ""),
        ("torch", "2..4"),
        ("torch", "2.4.1+"),
        ("torch", "nightly"),
        ("torch", "torchvision-2.4.1"),
        ("torch", "2.4.1-py3-none"),
        ("torch", "1." * 40 + "1"),
    ],
)
def test_what_is_not_a_version_is_refused_with_an_example(component, text):
    with pytest.raises(BadInput) as caught:
        parse_version(component, text)
    assert caught.value.field == component
    assert caught.value.value == text
    assert caught.value.hint


def test_a_branch_is_told_apart_from_a_driver_version():
    with pytest.raises(BadInput, match="a branch is not a driver version"):
        parse_version("driver", "r535")


def test_a_major_alone_asks_for_its_minor():
    with pytest.raises(BadInput, match=r"write 12\.x with its minor"):
        parse_version("cuda", "12")


@pytest.mark.parametrize(
    ("package", "component", "text", "shown"),
    [
        ("nvidia-cuda-runtime-cu12", "cuda", "12.4.127", "12.4.127"),
        ("nvidia-cudnn-cu12", "cudnn", "9.1.0.70", "9.1.0.70+cu12"),
        ("nvidia-nccl-cu12", "nccl", "2.21.5", "2.21.5+cu12"),
    ],
)
def test_what_a_package_states_reads_back_as_its_component(package, component, text, shown):
    version = parse_version(package, text)
    assert version.text == shown
    assert parse_version(component, shown) == version
