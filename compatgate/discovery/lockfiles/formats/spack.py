"""Read spack.lock, the concrete environment of Spack.

Spack builds from source, so that no wheel's record holds for its packages: their versions get the
label ``spack``, and their GPU code is what the variant ``cuda_arch`` states. Only what the roots
link to or run counts; compilers and build tools do not.

Sources: spack/spack ``lib/spack/docs/lockfile_format.rst`` (versions 1 to 8 of the file) and
``lib/spack/spack/spec.py`` (nodes); spack/spack-packages ``build_systems/cuda.py`` (``cuda``,
``cuda_arch``: SASS of each value, no PTX).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from compatgate.core.request import CPU_NAMES
from compatgate.discovery.lockfiles.formats.json_locks import read_object, read_table
from compatgate.discovery.lockfiles.interface import (
    ListedPackage,
    LockContents,
    LockFile,
    Selection,
    describe_unrelated,
)
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.text import MAX_PACKAGES, read_tables, read_text
from compatgate.errors import BadInput, InconclusiveInput

_SHAPE = re.compile(r'"file-type"\s*:\s*"spack-lockfile"')
_VERSIONS = tuple(str(number) for number in range(1, 9))
_LABEL = "spack"
_PYTHON = "py-"
_RUNTIME_EDGES = frozenset({"link", "run"})
_ARM = re.compile(r"(?:aarch64|arm|neoverse|a64fx|thunderx|cortex|graviton|m\d$)")
_POWER = re.compile(r"(?:power|ppc)")
_CUDA_ARCH = re.compile(r"\d{2,3}[af]?")
_NUMBERS = re.compile(r"\d+(?:\.\d+)*(?:\.post\d+)?")
_DEEPEST = 8


class _Node(Struct, frozen=True):
    """A concrete package.

    Attributes:
        version: version without Spack's reference to a commit.
        variants: values by the name of the variant.
        needs: keys of the nodes that it links to or runs.
        target: microarchitecture, and its vendor where stated.
    """

    name: str
    version: str
    variants: dict[str, Any]
    needs: tuple[str, ...]
    system: str
    target: tuple[str, str]

    @property
    def uses_cuda(self) -> bool:
        """Return whether the variant ``cuda`` is on."""
        return self.variants.get("cuda") is True


class SpackLock:
    """The lockfile of a Spack environment."""

    name = "spack.lock"

    def recognises(self, file: LockFile) -> bool:
        """Look for Spack's name, or the type of the file."""
        return file.name.lower() == "spack.lock" or bool(_SHAPE.search(file.text[:100_000]))

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> LockContents:
        """Return the packages that the roots link to or run."""
        document = read_object(file)
        meta = read_table(document.get("_meta"), "_meta", file.name)
        version = str(meta.get("lockfile-version"))
        if version not in _VERSIONS or meta.get("file-type") != "spack-lockfile":
            hint = f"use one of the versions {', '.join(_VERSIONS)}"
            raise BadInput("is not a Spack lock of a known version", field=file.name, hint=hint)
        places = list(_environments(document, file.name))
        nodes = dict(_nodes(places, file.name))
        roots = [
            read_text(root, "hash", file.name)
            for place in places
            for root in read_tables(place.get("roots"), "roots", file.name)
        ]
        chosen = _reachable(nodes, roots, file.name)
        _check_platform(chosen, platform, file.name)
        packages = tuple(filter(None, (_package(node, file.name) for node in chosen)))
        left = list(_undecided_code(chosen, file.name))
        if chosen and not packages:
            left.append(describe_unrelated(file.name))
        return LockContents(packages, open=tuple(left), arch=_common_code(chosen))


def _environments(document: dict[str, Any], file: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the environment and those that it includes, which have roots and nodes of their own."""
    yield document
    included = read_table(document.get("include_concrete"), "include_concrete", file)
    if included and depth >= _DEEPEST:
        raise BadInput("is nested too deeply", field=f"{file}: include_concrete")
    for one in included.values():
        yield from _environments(read_table(one, "include_concrete", file), file, depth + 1)


def _nodes(places: list[dict[str, Any]], file: str) -> Iterator[tuple[str, _Node]]:
    for place in places:
        listed = read_table(place.get("concrete_specs"), "concrete_specs", file)
        if len(listed) > MAX_PACKAGES:
            raise BadInput(f"has more than {MAX_PACKAGES} items", field=f"{file}: concrete_specs")
        for key, value in listed.items():
            entry = read_table(value, f"concrete_specs.{key}", file)
            if "name" not in entry and len(entry) == 1:  # versions 1 to 3 nest nodes by name
                (name, inner), *_ = entry.items()
                entry = {**read_table(inner, f"concrete_specs.{key}", file), "name": name}
            yield key, _node(entry, file)


def _node(entry: dict[str, Any], file: str) -> _Node:
    name = read_text(entry, "name", file)
    arch = read_table(entry.get("arch"), f"{name}: arch", file)
    target = arch.get("target")
    named = target if isinstance(target, dict) else {"name": target}
    return _Node(
        name,
        read_text(entry, "version", file).rpartition("=")[2],
        read_table(entry.get("parameters"), f"{name}: parameters", file),
        tuple(_runtime_needs(entry.get("dependencies"), name, file)),
        str(arch.get("platform") or ""),
        (str(named.get("name") or "").lower(), str(named.get("vendor") or "").lower()),
    )


def _runtime_needs(stated: Any, name: str, file: str) -> Iterator[str]:
    """Yield the keys of dependencies at run time; each version of the file spells them anew."""
    if isinstance(stated, dict):
        stated = list(stated.values())
    for one in read_tables(stated, f"{name}: dependencies", file):
        parameters = read_table(one.get("parameters"), f"{name}: dependencies", file)
        kinds = parameters.get("deptypes", one.get("type", ["link"]))
        if isinstance(kinds, list) and _RUNTIME_EDGES.isdisjoint(map(str, kinds)):
            continue
        yield str(one.get("build_hash") or one.get("hash"))


def _reachable(nodes: dict[str, _Node], roots: list[str], file: str) -> list[_Node]:
    """Return the nodes of the roots, and all that they need at run time."""
    waiting, seen = list(roots), dict.fromkeys(roots)
    found = []
    while waiting:
        key = waiting.pop()
        if key not in nodes:
            hint = "concretize the environment again"
            raise BadInput(
                f"names the spec {key[:60]!r}, which is missing in the file", field=file, hint=hint
            )
        found.append(nodes[key])
        new = [need for need in nodes[key].needs if need not in seen]
        seen |= dict.fromkeys(new)
        waiting += new
    return found


def _check_platform(nodes: list[_Node], platform: Platform, file: str) -> None:
    """Refuse a lock for another system or processor.

    Raises:
        InconclusiveInput: no node is for the target.
    """
    systems = {node.system for node in nodes if node.system}
    wanted = "linux" if platform.os == "wsl" else platform.os
    processors = {cpu for node in nodes if (cpu := _processor(*node.target))}
    if (systems and wanted not in systems) or (processors and platform.cpu not in processors):
        have = ", ".join(sorted(systems | processors))
        hint = f"concretize on {platform}"
        raise InconclusiveInput(f"is for {have}, the target is {platform}", field=file, hint=hint)


def _processor(target: str, vendor: str) -> str:
    """Return the processor of a microarchitecture; empty where neither name nor vendor says it."""
    if target.startswith("x86") or vendor in ("genuineintel", "authenticamd"):
        return "x86_64"
    if _ARM.match(target) or vendor in ("arm", "apple", "ampere", "cavium", "fujitsu", "nvidia"):
        return "aarch64"
    return target if _POWER.match(target) else CPU_NAMES.get(target, "")


def _package(node: _Node, file: str) -> ListedPackage | None:
    """Return a node as a package of Python, or as a component of the toolkit's kind."""
    origin = f"{file}: {node.name}"
    if not node.version:
        return ListedPackage(node.name.removeprefix(_PYTHON), origin, specifier="*")
    if node.name.startswith(_PYTHON):
        name = node.name.removeprefix(_PYTHON)
        return ListedPackage(name, origin, version=f"{_public(node.version)}+{_label(node)}")
    if node.name in ("cudnn", "nccl", "cutensor", "tensorrt"):
        public, _, major = node.version.partition("-")
        build = f"cuda{major.partition('.')[0]}" if node.name == "cudnn" and major else ""
        return ListedPackage(node.name, origin, version=public, build=build, ecosystem="conda")
    if node.name in ("cuda", "python"):
        return ListedPackage(node.name, origin, version=node.version, ecosystem="conda")
    if node.uses_cuda:
        version = f"{_public(node.version)}+{_LABEL}"
        return ListedPackage(node.name, origin, version=version, build="cuda", ecosystem="conda")
    return None


def _public(version: str) -> str:
    match = _NUMBERS.match(version)
    return match[0] if match else version


def _label(node: _Node) -> str:
    """Return the label of a build: without CUDA where the variant is off."""
    if node.variants.get("rocm") is True:
        return "rocm"
    return "cpu" if node.variants.get("cuda") is False else _LABEL


def _codes(node: _Node) -> tuple[str, ...]:
    stated = node.variants.get("cuda_arch")
    values = stated if isinstance(stated, list) else [stated]
    return tuple(f"sm_{one}" for one in map(str, values) if _CUDA_ARCH.fullmatch(one))


def _common_code(nodes: list[_Node]) -> tuple[str, ...]:
    """Return the code that each package with CUDA has."""
    stated = [codes for node in nodes if node.uses_cuda and (codes := _codes(node))]
    if not stated:
        return ()
    return tuple(code for code in stated[0] if all(code in other for other in stated))


def _undecided_code(nodes: list[_Node], file: str) -> Iterator[str]:
    """Yield a sentence for packages without ``cuda_arch``, and for those without one in common."""
    bare = sorted({node.name for node in nodes if node.uses_cuda and not _codes(node)})
    if bare:
        yield f"arch: {file} states no cuda_arch for {', '.join(bare[:20])}"
    built = sorted({node.name for node in nodes if node.uses_cuda and _codes(node)})
    if built and not _common_code(nodes):
        yield f"arch: {', '.join(built[:20])} have no cuda_arch in common ({file})"
