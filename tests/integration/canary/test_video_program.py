"""The video workload on a stand-in of ffmpeg that decodes what the program writes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from canary_programs import (
    NO_GPU,
    NOTHING_TO_TEST,
    REAL_GPU,
    compile_library,
    failed,
    keeps_to_its_manifest,
    output,
    run,
)

from compatgate.resources import canary_dir

NAME = "video-decode"
STAND_INS = Path(__file__).parent / "stand_ins"
FEW = ("--repetitions", "2", "--warmup", "0", "--value-ms", "1")
ON_CPU = ("--device", "cpu", *FEW)


@pytest.fixture
def ffmpeg(tmp_path: Path) -> dict[str, str]:
    """An environment in which the stand-in is ``ffmpeg``."""
    tool = tmp_path / "ffmpeg"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -I {STAND_INS / "ffmpeg.py"} "$@"\n')
    tool.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "STAND_IN_CLIP": str(canary_dir() / NAME)}


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A folder with a stand-in of the CUDA driver library, and none of the video library."""
    settings = {"GPUS": 1, "CUDA": 12040, "NEWEST": 84, "BROKEN": 0, "COLD": 0, "WARM": 0}
    compile_library(STAND_INS / "cuda.c", tmp_path / "libcuda.so.1", **settings)
    return tmp_path


def test_random_frames_and_the_clip_are_decoded_and_compared(ffmpeg: dict[str, str]) -> None:
    report = run(NAME, *ON_CPU, environment=ffmpeg)
    keeps_to_its_manifest(NAME, report)
    assert failed(report) == {}


@pytest.mark.parametrize(
    ("fault", "check", "said"),
    [
        ("lost", "exact", "8 of 9 frames came, 8 of them wrong"),
        ("order", "clip", "60 of 60 frames came, 60 of them wrong"),
    ],
)
def test_frames_that_are_lost_or_in_another_order_are_found(
    fault: str, check: str, said: str, ffmpeg: dict[str, str]
) -> None:
    report = run(NAME, *ON_CPU, environment={**ffmpeg, "STAND_IN_FAULT": fault})
    assert failed(report) == {check: said}
    assert report.metrics == ()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("timed", "119 of 120 frames came while timed"),
        ("long", "120 of 120 frames came, 2 of them wrong"),
    ],
)
def test_frames_of_the_timed_stream_that_are_lost_or_change_places_are_found(
    fault: str, said: str, ffmpeg: dict[str, str]
) -> None:
    report = run(NAME, *ON_CPU, environment={**ffmpeg, "STAND_IN_FAULT": fault})
    assert failed(report) == {"timed": said}


def test_an_ffmpeg_that_does_not_start_is_a_failure_that_says_why(ffmpeg: dict[str, str]) -> None:
    wrong = failed(run(NAME, *ON_CPU, environment={**ffmpeg, "STAND_IN_FAULT": "dies"}))
    assert "error while loading shared libraries: libavcodec.so.60" in wrong["exact"]


def test_without_the_drivers_video_library_the_check_says_what_to_look_at(
    ffmpeg: dict[str, str], driver: Path
) -> None:
    if REAL_GPU:
        pytest.skip("there is a GPU here")
    wrong = failed(run(NAME, *FEW, libraries=driver, environment=ffmpeg))
    assert set(wrong) == {"library"}
    assert wrong["library"].endswith("does NVIDIA_DRIVER_CAPABILITIES of the container have video?")


def test_an_image_without_the_decoder_has_nothing_to_test(
    ffmpeg: dict[str, str], driver: Path
) -> None:
    only = {**ffmpeg, "STAND_IN_DECODERS": "h264"}
    said = (
        output(NAME, *FEW, libraries=driver, environment=only, status=NOTHING_TO_TEST)
        .decode()
        .splitlines()
    )
    assert said[1:] == [f"{NAME}: nothing to test: the image's ffmpeg has no decoder h264_cuvid"]
    if shutil.which("ffmpeg") is None:
        said = output(NAME, *ON_CPU, status=NOTHING_TO_TEST).decode().splitlines()
        assert said[1:] == [f"{NAME}: nothing to test: the image has no ffmpeg"]


@pytest.mark.skipif(REAL_GPU, reason="there is a GPU here")
def test_without_a_gpu_the_program_says_so_in_one_line() -> None:
    said = output(NAME, status=NO_GPU).decode()
    assert said.startswith(f"{NAME}: no GPU: ")
    assert said.count("\n") == 1
