"""Dockerfiles: the image they begin from, hints of their lines, and what only a build shows."""

from __future__ import annotations

from typing import Any

import pytest
from known_packages import PACKAGES

from compatgate.catalog import read_source
from compatgate.discovery.dockerfile import is_dockerfile, read_dockerfile
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.errors import BadInput, InconclusiveInput

SIGNALS = read_source("image_signals", overlays=[])


def read(text: str, **options: Any):
    return read_dockerfile("Dockerfile", text.encode(), known=PACKAGES, signals=SIGNALS, **options)


def hints(text: str) -> dict[str, str]:
    return {o.component: f"{o.version} {o.origin}" for o in read(text).observations}


_BASES: tuple[tuple[str, dict[str, str], str], ...] = (
    ("FROM a:1", {}, "a:1"),
    ("from a:1 as b\nFROM B", {}, "a:1"),
    ("FROM a:1 AS x\nFROM y:2\nCOPY --from=x / /", {}, "y:2"),
    ("ARG V=1\nFROM a:$V", {}, "a:1"),
    ("ARG V=1\nFROM a:${V}-devel", {"V": "2"}, "a:2-devel"),
    ("ARG V\nFROM a:${V:-3}", {}, "a:3"),
    ("ARG V=\nFROM a:${V:-3}", {}, "a:3"),
    ("ARG V=\nFROM a${V-x}:1", {}, "a:1"),
    ("ARG V=1\nFROM a${V:+-gpu}:1", {}, "a-gpu:1"),
    ("ARG R='nvcr.io/nvidia'\nARG I=\"$R/cuda\"\nFROM $I:1", {}, "nvcr.io/nvidia/cuda:1"),
    ("# escape=`\nFROM `\n  a:1", {}, "a:1"),
    ("# syntax=docker/dockerfile:1\n\nFROM \\\n# note\n\n  a:1", {}, "a:1"),
    ("FROM --platform=$BUILDPLATFORM a:1\n", {}, "a:1"),
    ("FROM a-$TARGETARCH:1", {}, "a-arm64:1"),
    ("FROM a:1\nARG V\nRUN <<E\nFROM b:2\nE\n", {"V": "9"}, "a:1"),
    ("ARG V=1 # the version\nFROM a:$V", {}, "a:1"),
    ("ARG V=1 W=2 #both\nFROM a:$V$W", {}, "a:12"),
    ("FROM scratch", {}, ""),
)


def test_the_base_is_the_last_stages_image_with_its_variables():
    arm = Platform(cpu="aarch64")
    for text, arguments, base in _BASES:
        assert read(text, arguments=arguments, platform=arm).base == base, text
    stages = "FROM a:1 AS dev\nFROM b:2 AS prod\n"
    assert [read(stages, target=name).base for name in ("dev", "PROD", "0")] == [
        "a:1",
        "b:2",
        "a:1",
    ]


_HINTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("RUN pip install torch==2.4.1", {"torch": "2.4.1 Dockerfile:2: RUN"}),
    (
        "RUN python3 -m pip install -i https://download.pytorch.org/whl/cu124 'torch==2.4.1'",
        {"torch": "2.4.1+cu124 Dockerfile:2: RUN"},
    ),
    (
        "RUN uv pip install --index-url=https://download.pytorch.org/whl/cu121 torch==2.4.1",
        {"torch": "2.4.1+cu121 Dockerfile:2: RUN"},
    ),
    ('RUN ["pip", "install", "torch==2.4.1"]', {"torch": "2.4.1 Dockerfile:2: RUN"}),
    ("RUN <<E\npip3.11 install torch==2.4.1\nE", {"torch": "2.4.1 Dockerfile:2: RUN"}),
    ("RUN apt-get update && apt-get install -y \\\n  libcudnn9-cuda-12=9.1.0.70-1", {}),
    (
        "RUN conda install -y -c nvidia cuda-version==12.4",
        {"cuda": "12.4 Dockerfile:2: RUN"},
    ),
    ("ENV CUDA_VERSION=12.4.1", {"cuda": "12.4.1 Dockerfile:2: ENV CUDA_VERSION"}),
    ("ENV CUDA_VERSION 12.4.1", {"cuda": "12.4.1 Dockerfile:2: ENV CUDA_VERSION"}),
    ("ARG C=12.4.1\nENV CUDA_VERSION=$C", {"cuda": "12.4.1 Dockerfile:3: ENV CUDA_VERSION"}),
    (
        "RUN pip install torch==2.3.1\nRUN pip install torch==2.4.1",
        {"torch": "2.4.1 Dockerfile:3: RUN"},
    ),
    ("ARG T=2.4.1\nRUN pip install torch==${T}", {"torch": "2.4.1 Dockerfile:3: RUN"}),
    ("ENV T=2.4.1\nRUN pip install torch==$T", {"torch": "2.4.1 Dockerfile:3: RUN"}),
    ("RUN pip install torch==$T\nARG T=2.4.1", {}),
    (
        "ARG T=2.4.1\nRUN pip install 'torch==2.3.0' && echo '$T'",
        {"torch": "2.3.0 Dockerfile:3: RUN"},
    ),
    ("RUN pip install numpy==1.26.4 && echo install torch==1.0.0", {}),
    ("RUN pip uninstall -y torch==2.4.1", {}),
    ("LABEL note='pip install torch==2.4.1'", {}),
)


def test_lines_that_state_versions_are_hints_of_lower_confidence():
    for lines, expected in _HINTS:
        assert hints(f"FROM a:1\n{lines}\n") == expected, lines
    seen = read("FROM a:1\nRUN pip install torch==2.4.1\n").observations
    assert {one.confidence for one in seen} == {"derived"}


def test_what_a_build_brings_is_open_and_named():
    text = (
        "FROM g:1 AS tools\nRUN make\nFROM a:1\nCOPY --from=tools /x /x\nCOPY . /app\n"
        "ADD https://x.example/y /y\nRUN pip install -r requirements.txt 'torch>=2'\n"
        "RUN pip install $PACKAGES torch==${V}\nENV NVIDIA_REQUIRE_CUDA=cuda>=12.1\n"
    )
    reading = read(text)
    assert reading.require == ("cuda>=12.1",)
    assert reading.open[0].startswith("Dockerfile:9: ENV NVIDIA_REQUIRE_CUDA changes")
    assert "torch: '>=2' allows several versions (Dockerfile:7, 1)" in reading.open
    assert any("pip installs from requirements.txt" in text for text in reading.open)
    assert any("Dockerfile:8: pip install is not understood" in text for text in reading.open)
    assert reading.open[-1] == (
        "what COPY from tools (4), COPY (5), ADD (6), RUN (7, 8) of Dockerfile bring is not known "
        "before the build; check the image with --image"
    )
    assert read("FROM a:1\nENV A=1\nCMD ['x']\nLABEL a=b\nWORKDIR /x\nUSER 1\n").open == ()
    assert read("FROM scratch\n").open == ("Dockerfile:1: FROM scratch begins without an image",)


@pytest.mark.parametrize(
    ("text", "options", "error", "says"),
    [
        ("", {}, InconclusiveInput, "is empty"),
        ("ARG TAG\nFROM a:$TAG\n", {}, InconclusiveInput, r"Dockerfile:2: .*--build-arg TAG=VALUE"),
        ("FROM a:$TAG\n", {}, InconclusiveInput, "TAG has no value"),
        ("ARG V=1\nFROM a:${V%.*}\n", {}, InconclusiveInput, "has no value"),
        ("# only\n", {}, BadInput, "has no FROM"),
        ("RUN x\nFROM a:1\n", {}, BadInput, "Dockerfile:1: RUN stands before FROM"),
        ("FROM a b\n", {}, BadInput, "is not an image"),
        ("FROM\n", {}, BadInput, "is not an image"),
        ("FROM a:1\ntorch==2.4.1\n", {}, BadInput, "Dockerfile:2: .*is not an instruction"),
        ("FROM a:1\nRUN <<EOF\nx\n", {}, BadInput, "does not end with EOF"),
        ("FROM a:1\nENV =x\n", {}, BadInput, "is not NAME=VALUE"),
        ("FROM a:1\nARG 1=x\n", {}, BadInput, "is not NAME"),
        ("FROM a:1\n", {"target": "x"}, BadInput, "has no stage 'x'"),
        ("FROM a:1\n", {"arguments": {"X": "1"}}, BadInput, "has no ARG X"),
        ("FROM a:1\n" + "RUN x\n" * 10_001, {}, BadInput, "more than 10000 instructions"),
    ],
)
def test_what_cannot_be_read_says_why(text, options, error, says):
    with pytest.raises(error, match=says):
        read(text, **options)


def test_values_that_grow_are_bounded():
    doubled = "".join(f"ENV A{n + 1}=$A{n}$A{n}\n" for n in range(60))
    assert read(f"FROM a:1\nENV A0={'x' * 100}\n{doubled}").base == "a:1"


def test_dockerfiles_are_told_by_their_names():
    names = ("Dockerfile", "x/Dockerfile.gpu", "app.Dockerfile", "Containerfile", "dockerfile-dev")
    assert all(map(is_dockerfile, names))
    assert not any(map(is_dockerfile, ("Dockerfiles", "requirements.txt", "compose.yaml")))
