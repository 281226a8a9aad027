"""Call the image's ffmpeg to decode H.264. Python 3.8 or newer."""

import re
import shutil
import subprocess

DECODERS = {"cuda": "h264_cuvid", "cpu": "h264"}
ON_GPU = ("-hwaccel", "cuda", "-hwaccel_output_format", "cuda")
"""Frames stay in the GPU's memory; without it they are copied to the host."""
_QUIET = ("-hide_banner", "-nostdin", "-loglevel", "error")
_COUNTED = ("-nostats", "-progress", "pipe:1")
_PATIENCE_S = 120


class DoesNotDecode(Exception):
    """Error: ffmpeg ended with a status; the message has its first lines."""


def find(device):
    """Return the image's `Decoder` for a device; None without ffmpeg.

    Raises:
        DoesNotDecode: ffmpeg does not start.
    """
    path = shutil.which("ffmpeg")
    return None if path is None else Decoder(path, device)


class Decoder:
    """ffmpeg with one of its decoders.

    Attributes:
        version: as ffmpeg states it.
        name: name of the decoder; None if this ffmpeg does not have it.

    Args:
        path: of the program.
        device: ``cuda`` or ``cpu``.
    """

    def __init__(self, path, device):
        self._path, self._device = path, device
        said = self._run("-hide_banner", "-version").split("\n")[0].split()
        self.version = said[2] if said[:2] == ["ffmpeg", "version"] else "?"
        rows = [line.split() for line in self._run("-hide_banner", "-decoders").split("\n")]
        known = {row[1] for row in rows if len(row) > 1}
        wanted = DECODERS[device]
        self.name = wanted if wanted in known else None
        release = re.match(r"n?(\d+)\.(\d+)", self.version)
        old = release and tuple(map(int, release.groups())) < (5, 1)
        # Every frame as it comes, none twice and none dropped.
        self._every_frame = ("-vsync" if old else "-fps_mode", "passthrough")

    def digests(self, path):
        """Return the MD5 digest of each frame of a file, in order.

        Raises:
            DoesNotDecode: ffmpeg fails.
        """
        output = (*self._every_frame, "-pix_fmt", "yuv420p", "-f", "framemd5", "-")
        said = self._run(*_QUIET, "-c:v", self.name, "-i", path, *output)
        rows = (line for line in said.split("\n") if line and not line.startswith("#"))
        return [line.rsplit(",", 1)[1].strip() for line in rows]

    def decode(self, path):
        """Decode a file, drop its frames, and return their number: a lost one is no error here.

        Raises:
            DoesNotDecode: ffmpeg fails.
        """
        given = ON_GPU if self._device == "cuda" else ()
        output = (*self._every_frame, "-f", "null", "-")
        said = self._run(*_QUIET, *_COUNTED, *given, "-c:v", self.name, "-i", path, *output)
        counts = re.findall(r"^frame=\s*(\d+)", said, re.MULTILINE)
        return int(counts[-1]) if counts else 0

    def _run(self, *arguments):
        try:
            done = subprocess.run(  # noqa: S603
                [self._path, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DoesNotDecode(f"ffmpeg: {error}") from None
        if done.returncode:
            said = " / ".join(line.strip() for line in done.stderr.split("\n") if line.strip())
            raise DoesNotDecode(f"ffmpeg ended with {done.returncode}: {said}"[:400])
        return done.stdout
