"""Compute the digest of an image's GPU content: what a canary run tests of the image.

The content is the stack, each file that holds GPU code or links to GPU libraries, NVIDIA's
libraries, the Python interpreters, the file lists of GPU packages, the variables that GPU
libraries read. Other files do not change the digest: a
rebuild of the application alone keeps it. A path is part of it: code that moved is other content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from compatgate.core.binding import digest_json
from compatgate.discovery.image.files import is_cached, is_nvidia_library
from compatgate.discovery.image.tar import Content, Member

FORM = 1
"""Version of the digest; raise it when the same image may get another digest."""
_INTERPRETER = re.compile(r"(?:.*/)?bin/python(?:\d(?:\.\d{1,2})?)?t?")
_VARIABLES = (
    "CUBLAS_", "CUDA_", "CUDNN_", "GOMP_", "JAX_", "LD_", "NCCL_", "NVIDIA_", "OMP_", "PYTHON",
    "PYTORCH_", "TF_", "TORCH_", "TRITON_", "UCX_", "VLLM_", "XLA_",
)  # fmt: skip
_STACK_REMARKS = ("open", "conflicts", "unread", "require", "disable-require", "wheels", "needs")
_PIECE = 1 << 20
_MAX_SAMPLE = 32
_OF_DRIVER = re.compile(r"/lib(?:cuda|cudadebugger|nvidia|nvcu|nvoptix|EGL|GL|vdpau)[^/]*$")


class ContentParts(Struct):
    """The parts of the GPU content that the files of an image hold.

    Attributes:
        files: path to the digest of the file, or to ``link:TARGET``.
    """

    files: dict[str, str] = field(default_factory=dict)
    lists: dict[str, str] = field(default_factory=dict)

    def add_file(self, path: str, digest: str | None) -> None:
        """Add a file, or None where its digest is unknown."""
        if not is_cached(path):
            self.files[path] = digest or "unknown"

    def sample_files(self) -> dict[str, str]:
        """Return some files by their digests, the same ones for the same image.

        Where the image has libraries of a driver, a container may see the host's in their place.
        """
        known = [
            path
            for path, digest in self.files.items()
            if digest.startswith("sha256:") and ":" not in path and not _OF_DRIVER.search(path)
        ]
        known.sort(key=lambda path: hashlib.sha256(path.encode()).digest())
        return {path: self.files[path] for path in known[:_MAX_SAMPLE]}

    def add_list(self, folder: str, data: bytes) -> None:
        """Add the file list of an installed distribution."""
        lines = sorted(line for line in data.splitlines() if b".pyc," not in line)
        whole = hashlib.sha256(b"\n".join(lines))
        self.lists[folder] = f"sha256:{whole.hexdigest()}"


def is_hashed(member: Member) -> bool:
    """Return whether a file belongs to the GPU content by its path alone."""
    if _INTERPRETER.fullmatch(member.path):
        return member.kind in ("file", "hardlink", "symlink")
    name = member.path.rpartition("/")[2]
    return member.kind in ("file", "hardlink") and ".so" in name and is_nvidia_library(name)


def finish_digest(content: Content) -> str:
    """Read the rest of a content, and return the digest of the whole of it."""
    while content.read(_PIECE):
        pass
    return f"sha256:{content.hexdigest()}"


def compute_content(
    stack: Mapping[str, Any],
    parts: ContentParts,
    names: Mapping[str, str],
    environment: Iterable[str],
) -> str:
    """Return ``sha256:...`` of the GPU content of an image."""
    gpu_packages = {*stack, *stack.get("measured", {})}
    lists = {
        folder: digest
        for folder, digest in parts.lists.items()
        if (name := names.get(folder, "")) in gpu_packages or name.startswith("nvidia-")
    }
    variables = (text.partition("=") for text in environment)
    return digest_json(
        {
            "form": FORM,
            "stack": {name: stack[name] for name in stack if name not in _STACK_REMARKS},
            "files": parts.files,
            "lists": lists,
            "variables": {
                name: value
                for name, _, value in variables
                if name == "PATH" or name.startswith(_VARIABLES)
            },
            "layers": [],  # none is unread; the key stays, so that digests do
        }
    )
