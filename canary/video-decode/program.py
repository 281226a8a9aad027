"""Decode H.264 on the GPU with the image's ffmpeg: exact frames, frames a second, time to start."""

import ctypes
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import decoder  # noqa: E402
import pcm  # noqa: E402

CLIP = os.path.join(HERE, "clip.h264")
ACROSS, DOWN, FRAMES = 12, 8, 9
"""Macroblocks and frames of the random stream; decoders have a least size."""
TIMES = {"cuda": 100, "cpu": 2}
"""How often the clip is repeated for its rate."""
LIBRARY = "libnvcuvid.so.1"


def main():
    """Compare the frames of two streams, then time a long one and a short one."""
    options = program.options(__doc__)
    try:
        tool = decoder.find(options.device)
    except decoder.DoesNotDecode as error:
        canary_env.bare(options)
        say.check("exact", False, str(error))
        return
    canary_env.bare(options, ffmpeg=tool and tool.version)
    if tool is None:
        raise program.NothingToTest("the image has no ffmpeg")
    if tool.name is None:
        raise program.NothingToTest("the image's ffmpeg has no decoder h264_cuvid")
    _check_library(options.device)
    stream, digests = pcm.write(ACROSS, DOWN, FRAMES)
    with open(CLIP, "rb") as file:
        clip = file.read()
    with open(os.path.join(HERE, "clip.json"), encoding="utf-8") as file:
        wanted = json.load(file)["frames"]
    with tempfile.TemporaryDirectory() as folder:
        short = _write(folder, "short.h264", stream)
        right = [_check("exact", tool, short, digests), _check("clip", tool, CLIP, wanted)]
        if all(right):
            wanted = wanted * TIMES[options.device]
            long = _write(folder, "long.h264", clip * TIMES[options.device])
            counts = _measure(options, tool, short, long, len(wanted))
            if counts == {len(wanted)}:
                _check("timed", tool, long, wanted)
            else:
                numbers = " or ".join(map(str, sorted(counts)))
                say.check("timed", False, f"{numbers} of {len(wanted)} frames came while timed")


def _check_library(device):
    if device == "cpu":
        say.skip("library", "a CPU decodes without it")
        return
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        hint = "does NVIDIA_DRIVER_CAPABILITIES of the container have video?"
        say.check("library", False, f"{error}; {hint}")
        return
    say.check("library", True, f"{LIBRARY} is there")


def _write(folder, name, content):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(content)
    return path


def _check(name, tool, path, wanted):
    """Report whether the frames of a file are those wanted, and return it."""
    try:
        found = tool.digests(path)
    except decoder.DoesNotDecode as error:
        say.check(name, False, str(error))
        return False
    wrong = sum(ours != right for ours, right in zip(found, wanted))
    message = f"{len(found)} of {len(wanted)} frames came, {wrong} of them wrong"
    say.check(name, found == wanted, message)
    return found == wanted


def _measure(options, tool, short, long, frames):
    """Report both metrics; return the numbers of frames that came from the long stream."""
    progress, clock, counts = program.Steps(2), timing.WallClock(), set()
    times = timing.repeat(lambda: counts.add(tool.decode(long)), clock, options)
    timing.report("frames", "frames/s", times, timing.per_second(frames))
    progress.done()
    times = timing.repeat(lambda: tool.decode(short), clock, options, calls=1)
    timing.report("start", "s", times, lambda seconds: seconds)
    progress.done()
    return counts


if __name__ == "__main__":
    program.start(main)
