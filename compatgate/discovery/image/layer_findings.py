"""Gather what the layers of an image hold: witnesses of versions, ranked, and its GPU content.

The digest of the GPU content says what a canary run tests of the image. The content is the stack,
each file that holds GPU code or links to GPU libraries, NVIDIA's libraries, the Python
interpreters, the file lists of GPU packages, the variables that GPU libraries read. Other files do
not change the digest: a rebuild of the application alone keeps it. A path is part of it: code that
moved is other content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from compatgate.core.binding import digest_json
from compatgate.core.facts.packages import NO_KNOWN_PACKAGES, Packages
from compatgate.core.versions import agree, parse_version
from compatgate.discovery.findings import CodeFile, Findings
from compatgate.discovery.image.files import is_cached, is_nvidia_library
from compatgate.discovery.image.tar import Content, Member
from compatgate.discovery.installed_packages import Inventory
from compatgate.discovery.observations import Observation

_JAX_PLUGIN = re.compile(r"jax-cuda(\d{2})(?:-plugin|-pjrt)")
_MAX_NOTES = 200
_PACKAGES = re.compile(r".*?(?:site|dist)-packages/")


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
    """Parts of an image's GPU content: path to the digest of the file, or to ``link:TARGET``."""

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


class WitnessKind(IntEnum):
    """Kinds of witnesses; the lower decides.

    A framework loads the packages of its own installer (wheels, conda); the distribution's packages
    and the base image's variables come after the library files.
    """

    FRAMEWORK = 0
    WHEEL = 1
    LABEL = 2
    CONDA = 3
    LIBRARY = 4
    TOOLKIT = 5
    PACKAGE = 6
    CONFIG = 7


class LayerFindings(Struct):
    """The findings in all layers.

    ``majors`` are components of which a library's name states only the major version, ``unread``
    files that may hold GPU code, with the reason. ``interpreters`` have the path of a Python
    interpreter to its link (``""`` for a program, None for a script of that name), ``path_files``
    the path of a ``.pth`` file to the lines that are folders, ``venvs`` whether each has only its
    own packages.
    """

    observations: list[tuple[WitnessKind, Observation]] = []
    majors: list[Observation] = []
    codes: list[CodeFile] = []
    open: list[str] = []
    inventory: Inventory = field(default_factory=Inventory)
    unread: list[tuple[str, str]] = []
    jax_plugins: dict[str, str] = {}
    content: ContentParts = field(default_factory=ContentParts)
    paths: dict[str, str] = {}
    links: dict[str, str] = {}
    interpreters: dict[str, str | None] = {}
    path_files: dict[str, list[str]] = {}
    venvs: dict[str, bool] = {}
    cached: list[Observation] = []

    def add(self, witness: WitnessKind, observations: Iterable[Observation | None]) -> None:
        """Add observations of one kind; ignore None."""
        self.observations += ((witness, o) for o in observations if o is not None)

    def add_distribution(self, name: str, path: str) -> None:
        """Add a Python distribution that describes another one."""
        if match := _JAX_PLUGIN.fullmatch(name):
            self.jax_plugins[path.rsplit("/", 2)[0]] = match[1]

    def note(self, sentence: str) -> None:
        """Add a sentence about an unread file, without duplicates."""
        if len(self.open) < _MAX_NOTES and sentence not in self.open:
            self.open.append(sentence)
            if len(self.open) == _MAX_NOTES:
                self.open.append("and more, which are not listed")

    def note_cached(self) -> None:
        """Note the components in caches that are installed in no such version: they may run."""
        installed = {(one.component, one.version) for _, one in self.observations}
        for one in self.cached:
            if one.component != "python" and (one.component, one.version) not in installed:
                what = f"{one.component} {one.version} in a cache, and not installed"
                self.note(f"{one.origin} is {what}: whether it runs is not known")

    def findings(
        self, known: Packages = NO_KNOWN_PACKAGES, toolkits: Mapping[str, str] | None = None
    ) -> Findings:
        """Return all findings, the deciding witness first."""
        installed = self.inventory.installed(known, toolkits or {})
        self.add(WitnessKind.WHEEL, installed.observations)
        self._note_contradictions()
        for origin, why in self.unread:
            if origin not in installed.owned:
                self.note(f"{origin} cannot be read and may hold GPU code: {why}")
        ordered = sorted(self.observations, key=lambda pair: pair[0])
        channels = self._channels()
        ranked = (
            _add_labels(self._with_plugin(o), channels) if w <= WitnessKind.WHEEL else o
            for w, o in ordered
        )
        return Findings(
            list(dict.fromkeys(ranked)),
            self.majors,
            self.codes,
            measured=installed.measured,
            owned=installed.owned,
            open=self.open,
        )

    def _note_contradictions(self) -> None:
        """Note a ``torch/version.py`` that says something else than its wheel, or than itself.

        One of the files was changed, and neither shows what is installed. A wheel's metadata may
        lack the label.
        """
        torch = [(kind, one) for kind, one in self.observations if one.component == "torch"]
        for one in (one for kind, one in torch if kind == WitnessKind.FRAMEWORK):
            version, folder = parse_version("torch", one.version), _folder_of(one)
            others = {o for _, o in torch if folder and _folder_of(o) == folder}
            for other in others:
                if not agree(version, parse_version("torch", other.version)):
                    what = f"{other.origin} says {other.version}: which runs is not known"
                    self.note(f"{one.origin} says torch {one.version}, {what}")
            for _, other in self.observations:
                if (other.component, other.origin) != ("cuda", one.origin) or not version.cuda:
                    continue
                if version.cuda != parse_version("cuda", other.version).parts[: len(version.cuda)]:
                    what = f"torch {one.version} and CUDA {other.version}: which runs is not known"
                    self.note(f"{one.origin} says {what}")

    def _with_plugin(self, seen: Observation) -> Observation:
        """Label JAX with the CUDA of its plugin, which may be read later than JAX."""
        if seen.component != "jax" or "+" in seen.version or not self.jax_plugins:
            return seen
        for folder, major in self.jax_plugins.items():
            if f": {folder}/" in seen.origin:
                return replace(seen, version=f"{seen.version}+cuda{major}")
        return seen

    def _channels(self) -> dict[tuple[str, str], str]:
        """Return the labels of conda's records, by component and version.

        A conda package installs the metadata of a wheel; only conda's record distinguishes them.
        """
        channels: dict[tuple[str, str], str] = {}
        for witness, seen in self.observations:
            public, _, label = seen.version.partition("+")
            if witness == WitnessKind.CONDA and label:
                channels.setdefault((seen.component, public), label)
        return channels

    def components(self) -> set[str]:
        """Return the components found so far; ``arch`` when GPU code was found."""
        components = {o.component for _, o in self.observations}
        return components | {"arch"} if self.codes else components


def _folder_of(seen: Observation) -> str:
    """Return the folder of packages that a file or distribution is in; empty: another place."""
    found = _PACKAGES.match(seen.origin.rpartition(": ")[2])
    return found[0] if found else ""


def _add_labels(seen: Observation, channels: dict[tuple[str, str], str]) -> Observation:
    label = channels.get((seen.component, seen.version.partition(".post")[0]))
    if not label or "+" in seen.version:
        return seen
    return replace(seen, version=f"{seen.version}+{label}")
