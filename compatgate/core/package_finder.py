"""Find the packages of a stack with their records, each once while the facts are loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.facts.records import Record, Statement
from compatgate.core.gpu_code import Arch
from compatgate.core.package_requirements import Platform
from compatgate.core.package_wheels import (
    UNLABELLED,
    covers_release,
    find_labelled_record,
    find_record,
    gpus_of_record,
    has_new_abi,
    label_of,
    names_cuda,
    release_label,
    released_record,
)
from compatgate.core.packages import GpuPackage, requirements_of
from compatgate.core.performance import MIB, BoundedCache
from compatgate.core.request import Cpu, Os
from compatgate.core.stack import Stack
from compatgate.core.stack_facts import default_build, find_framework, is_of_other_index
from compatgate.core.stack_values import Wheel
from compatgate.core.versions import Version, format_parts, gpus_of_label, parse_version

SilentAnswer = Literal["pass", "not-applicable"]

_MAX_FINDERS = 64  # number of cached platforms
_PACKAGES_BYTES, _SETS_BYTES = 24 * MIB, 24 * MIB
"""Bytes of cached packages, and of cached sets, of all platforms together."""
_RELEASE_OF = re.compile(
    r"(?P<release>\d+(?:\.\d+)*)(?:(?:a|b|rc)\d+)?(?P<post>\.post\d+)?(?P<nightly>\.dev\d+)?(?:\+|$)"
)
"""The parts of a candidate's or a nightly build's version: ``2.0.0rc1.post110``."""
_POST_RELEASE = re.compile(r"\.post\d+$")
_INSTALLED_TOGETHER = {"torchvision", "torchaudio"}
"""What PyTorch's install command takes from torch's index. Source: pytorch.org, Get Started."""
AS_BUILT = "as its project's workflow builds it"
_PACKAGE_BYTES = 1500  # bytes of a package with what rules derive of it, as measured


class PackageSet(Struct, frozen=True):
    """The packages of a stack on one platform, with certain frameworks."""

    # packages, and components that the records of their wheels judge
    packages: tuple[GpuPackage, ...]
    # answers of rules without a finding, by rule and the other values that it reads
    silent: dict[tuple[Any, ...], SilentAnswer] = {}


class PackageCaches:
    """Packages and sets of packages that finders of one catalog have found."""

    def __init__(self) -> None:
        self.packages: BoundedCache[tuple[Any, ...], GpuPackage] = BoundedCache(_PACKAGES_BYTES)
        self.sets: BoundedCache[tuple[Any, ...], PackageSet] = BoundedCache(_SETS_BYTES)


class PackageFinder:
    """Finds packages with their records on one platform, each once while the facts are loaded."""

    def __init__(self, facts: Facts, platform: Platform, caches: PackageCaches) -> None:
        self._facts = facts
        self._platform = platform
        self.caches = caches

    def all_of(self, stack: Stack) -> PackageSet:
        """Return the packages of a stack; published wheels give the same set for equal stacks.

        A set belongs to one release of each framework: rules look at both together. The content of
        an image's own files is not cached beyond the question.
        """
        if stack.measured:
            return PackageSet(self._packages(stack))
        facts = self._facts
        key = (
            self._platform.key,
            tuple([(name, version.text) for name, version in stack.packages.items()]),
            tuple(
                [
                    (name, version.text)
                    for name, version in stack.components.items()
                    if name in facts.frameworks or facts.has_records(name, version)
                ]
            ),
            cuda.text if (cuda := stack.components.get("cuda")) else "",
            tuple(stack.wheels.items()),
            tuple(stack.code.items()),
        )
        found = self.caches.sets.peek(key)
        if found is None:
            found = PackageSet(self._packages(stack))
            self.caches.sets.put(key, found, _PACKAGE_BYTES * (1 + len(found.packages)))
        return found

    def _packages(self, stack: Stack) -> tuple[GpuPackage, ...]:
        """Return the packages, then the components whose wheels or files are known."""
        facts = self._facts
        names = [name for name in stack.versions if facts.is_package(name)]
        packages = [self.of_stack(stack, name) for name in names]
        others = [(name, v) for name, v in stack.components.items() if name not in names]
        recorded = [n for n, v in others if n in stack.measured or facts.has_records(n, v)]
        packages += [one for name in recorded if (one := self.of_stack(stack, name)).is_known]
        return tuple(packages)

    def of_stack(self, stack: Stack, name: str) -> GpuPackage:
        """Return a part of a stack with its record."""
        version, wheel = stack.versions[name], stack.wheels.get(name)
        code = stack.code.get(name, ())
        if name in stack.measured:
            return self.installed(name, version, code, stack.measured[name])
        if wheel or code or version.local:
            return self.find(name, version, wheel, code)
        found = self.find(name, version, label=self._label_beside_torch(stack, name))
        found = self._find_of_torchs_label(stack, found)
        return self._find_of_cuda(stack, found)

    def _find_of_cuda(self, stack: Stack, package: GpuPackage) -> GpuPackage:
        """Return a package as its project's build for the stack's CUDA, where the index's fails.

        ``paddlepaddle-gpu`` says 2.6.1 of itself whatever its build, which is 2.6.1.post120 for
        CUDA 12.0; 3.0 is on indexes by CUDA alone, and brings it. A CUDA of which there is no build
        may be the machine's, and decides nothing, or an older build beside it.
        """
        cuda, name, version = stack.components.get("cuda"), package.name, package.version
        if cuda is None or _POST_RELEASE.search(version.public):
            return package
        rows = [wheels for one in package.statements for wheels in one.wheels]
        stated = [(one.cuda, text, one.own_cuda) for one in rows for text in one.labels if one.cuda]
        labels = {
            built: label
            for built, label, brings in stated
            if label.startswith("post") or (brings and label != UNLABELLED)
        }
        older = [built for built, _, brings in stated if brings and built <= cuda.major_minor]
        label = labels.get(cuda.major_minor) or labels.get(max(older, default=cuda.major_minor))
        if label is None:
            return package
        like = package.near[-1] if package.near else package
        of_index = {built[0] for built, label, _ in stated if label == UNLABELLED}
        linked = like.runtimes(cuda) or of_index
        needs = [one for one in requirements_of(like, stack) if one.name == "cuda"]
        known = linked or package.record or package.near
        if known and cuda.major in (linked or {cuda.major}) and all(one.holds for one in needs):
            return package
        sign = "." if label.startswith("post") else "+"
        other = self.find(name, parse_version(name, f"{version.public}{sign}{label}"))
        if other.is_open and not other.near:
            return package
        assumed = f"the wheel is assumed to be its project's for CUDA {cuda}"
        return replace(other, version=version, assumed=assumed)

    def _find_of_torchs_label(self, stack: Stack, package: GpuPackage) -> GpuPackage:
        """Return a package as the wheel that has the label of the stack's torch, where it is known.

        ``torchvision=0.16.1`` beside ``torch=2.1.1+cu121`` comes from the index of that torch if
        the package index has none, beside ``torch=2.1.1,cuda=11.8``, without a label, in any case.
        Where torch is not the package index's, it does if the stack has both torchvision and
        torchaudio, as PyTorch's install command takes all three from one index.
        """
        torch, name, version = stack.components.get("torch"), package.name, package.version
        if torch is None or (package.record and not package.assumed):
            return package
        table = self._facts.framework("torch")
        together = stack.versions.keys() >= _INSTALLED_TOGETHER and name in _INSTALLED_TOGETHER
        elsewhere = together and table is not None and is_of_other_index(table, torch)
        if package.record and torch.local and not elsewhere:
            return package
        label = torch.local if names_cuda(torch) else self._label_of_stated_cuda(torch, stack)
        other = self.find(name, parse_version(name, f"{version.public}+{label}")) if label else None
        if other is None or other.record is None:
            return package
        assumed = f"the wheel is assumed to have the label of torch's, {label}"
        return replace(other, version=version, assumed=assumed, of_torchs_label=True)

    def _label_of_stated_cuda(self, torch: Version, stack: Stack) -> str:
        """Return the label of torch's build for the stack's CUDA, where the index has another."""
        table, cuda = self._facts.framework("torch"), stack.components.get("cuda")
        if table is None or cuda is None or torch.local:
            return ""
        match = find_framework("torch", torch, cuda, table)
        usual = default_build(match.release) if match.release else None
        if match.build is None or usual is None or match.build == usual:
            return ""
        return match.build.label or ""

    def find(
        self,
        name: str,
        version: Version,
        wheel: Wheel | None = None,
        stated: tuple[Arch, ...] = (),
        label: str = "",
    ) -> GpuPackage:
        """Return a package with the record of the wheel that it is assumed to be."""
        key = (self._platform.key, name, version.text, wheel, stated, label)
        found = self.caches.packages.peek(key)
        if found is None:
            found = self._look_up(name, version, wheel, stated, label)
            self.caches.packages.put(key, found, _PACKAGE_BYTES)
        return found

    def _label_beside_torch(self, stack: Stack, name: str) -> str:
        """Return the label of the wheel that a package's installer fetches for the stack's torch.

        Empty where the project has none, or where torch, its CUDA or its C++ ABI is not known.
        """
        torch = stack.components.get("torch")
        said = self._facts.statements(name) if torch else ()
        if torch is None or not any(one.wheels for one in said):
            return ""
        table = self._facts.framework("torch")
        if table is None:
            return ""
        match = find_framework("torch", torch, stack.components.get("cuda"), table)
        cuda = match.build.cuda if match.build and match.published else None
        new_abi = has_new_abi(table, torch, cuda, self._platform)
        if cuda is None or new_abi is None:
            return ""
        about = [one for one in said if covers_release(one, stack.versions[name])]
        platform = self._platform
        return release_label(about, torch, cuda[0], new_abi=new_abi, platform=platform) or ""

    def installed(
        self, name: str, version: Version, stated: tuple[Arch, ...], measured: Record
    ) -> GpuPackage:
        """Return a package with the record of its installed files; the record caches it."""
        facts, platform = self._facts, self._platform
        key = (facts.digest, platform.key, name, version.text, stated)
        found: GpuPackage | None = measured.memory.get(key)
        if found is None:
            named = gpus_of_label(version.local) or facts.packages.gpus_of(name)
            found = GpuPackage(
                name,
                version,
                platform,
                measured,
                toolkits=facts.cuda_components.toolkits(name, version.public),
                stated=stated,
                installed=True,
                gpus=named or gpus_of_record(measured),
                variant=facts.packages.variant_of(name),
            )
            measured.memory[key] = found
        return found

    def _look_up(
        self, name: str, version: Version, wheel: Wheel | None, stated: tuple[Arch, ...], label: str
    ) -> GpuPackage:
        facts, platform = self._facts, self._platform
        recorded = facts.recorded_name(name, version.cuda)
        own = version if recorded == name else parse_version(name, version.public)
        fitting = find_record(facts.records(recorded), own, wheel, platform)
        if fitting is None and recorded != name:  # one that was measured has the stack's name
            fitting = find_record(facts.measured(name), version, wheel, platform)
        said = tuple(one for one in facts.statements(recorded) if covers_release(one, version))
        image = facts.containers.find(version.text) if name == "tritonserver" else None
        if image and (least := image.min_cc_stated):
            says = f"supports compute capability {format_parts(least)} and later"
            noted = Statement(f"=={version}", None, image.source, says, least_capability=least)
            said += (noted,)
        if fitting is None and names_cuda(version):
            fitting = find_labelled_record(facts, recorded, version, said, platform)
        if fitting is None and not stated and not (wheel and not version.local):
            named_label = label or label_of(version, said)
            sure = [one for one in said if one.source.confidence != "derived"]
            released = released_record(name, version, named_label, sure, platform)
            why = f"the wheel is assumed to be its project's {version.public}+{label}"
            fitting = (released, why if label else AS_BUILT) if released else None
        if fitting is None and not (wheel or stated or label):
            fitting = self._find_of_series(name, version, recorded)
        near = (
            ()
            if fitting or wheel or stated or label
            else self._find_near(name, version, recorded, said)
        )
        record, assumed = fitting or (None, "")
        named = gpus_of_label(version.local) or facts.packages.gpus_of(name)
        return GpuPackage(
            name,
            version,
            platform,
            record,
            assumed,
            facts.cuda_components.toolkits(name, version.public),
            stated,
            statements=said,
            file=(wheel.file if wheel else None) or "",
            gpus=named or gpus_of_record(record),
            on_request=record is not None and facts.is_measured(record),
            fetched=record is not None and bool(label),
            variant=facts.packages.variant_of(recorded),
            near=near,
        )

    def _find_of_series(
        self, name: str, version: Version, recorded: str
    ) -> tuple[Record, str] | None:
        """Return the newest measured release of a series, as ``ctranslate2=4.2`` names one."""
        if len(version.parts) != 2 or version.whole or version.local:
            return None
        records, platform = self._facts.records(recorded), self._platform
        releases = {parse_version(name, one.version) for one in records}
        of_series = [one for one in releases if one.at(2) == version.parts and one.key[1] != 0]
        for release in sorted(of_series, key=lambda one: one.key, reverse=True):
            if len(release.parts) > 2 and (found := find_record(records, release, None, platform)):
                return found[0], f"the release is assumed to be {release}"
        return None

    def _find_near(
        self, name: str, version: Version, recorded: str, said: tuple[Statement, ...]
    ) -> tuple[GpuPackage, ...]:
        """Return what a release without a record is assumed to be like; empty where nothing is.

        It is a wheel that statements derive from the project's build files, or else the measured
        releases before and after it, if both exist. For a project that had wheels for this system
        before, it is the wheel of the same release for the other system. ``recorded`` is the
        package with the records.
        """
        if version.key[1] == 0 and (leads_to := _RELEASE_OF.match(version.whole)):
            return self._find_leading(name, version, leads_to)
        platform, records = self._platform, self._facts.records(recorded)
        of_record = recorded != name  # the label says which package it is, transformer-engine-cu12
        plain = parse_version(name, version.public) if of_record else version
        named = label_of(plain, said)
        if record := released_record(name, version, named, said, platform):
            return (GpuPackage(name, version, platform, record, AS_BUILT, statements=said),)
        if any(one.compiled for one in said):
            return ()
        if named != UNLABELLED:
            return self._find_unlabelled(name, version)
        label = f"+{version.local}" if of_record else ""
        texts = {one.version for one in records if "+" not in one.version}
        releases = sorted((parse_version(name, text) for text in texts), key=lambda one: one.key)
        measured = [one for one in releases if find_record(records, one, None, platform)]
        before = [one.text for one in measured if one <= version][-1:]
        after = [one.text for one in measured if one >= version][:1]
        if version in releases and before and (other := self._find_on_other_system(name, version)):
            return other
        pair = dict.fromkeys((*before, *after) if before and after else ())
        return tuple(self.find(name, parse_version(name, f"{text}{label}")) for text in pair)

    def _find_unlabelled(self, name: str, version: Version) -> tuple[GpuPackage, ...]:
        """Return the index's wheel of a release whose label names but the CUDA of that wheel.

        Reports write ``bitsandbytes=0.43.1+cu121`` for the wheel beside a torch of this label. What
        is compiled for a torch has other wheels for other CUDAs.
        """
        if not (version.cuda and names_cuda(version)):
            return ()
        plain = self.find(name, parse_version(name, version.public))
        if plain.record is None:
            return ()
        of_torch = any(asked.startswith("torch") for asked in plain.record.requires)
        for_major = not of_torch and plain.cuda_majors == {version.cuda[0]}
        return (plain,) if for_major or version.cuda in plain.named_cudas else ()

    def _find_leading(
        self, name: str, version: Version, leads_to: re.Match[str]
    ) -> tuple[GpuPackage, ...]:
        """Return the releases that a candidate or nightly build leads to, with its label.

        The numbers of nightly builds may lag: those of torchvision were 0.22.0 when torch's were
        2.8.0 already. So for these it is the release of the next minor, too.
        """
        major, minor = version.major_minor
        end = f"{leads_to['post'] or ''}{'+' if version.local else ''}{version.local}"
        texts = [f"{leads_to['release']}{end}"]
        if leads_to["nightly"]:
            texts.append(f"{major}.{minor + 1}.0{end}")
        found = [self.find(name, parse_version(name, text)) for text in texts]
        return tuple(like for one in found for like in ((one,) if one.record else one.near))

    def _find_on_other_system(self, name: str, version: Version) -> tuple[GpuPackage, ...]:
        """Return a release as its wheel for the other system, Linux or Windows on x86-64."""
        here = self._platform
        if here.cpu != "x86_64":
            return ()
        os: Os = "linux" if here.os == "windows" else "windows"
        there = Platform(os, here.cpu, here.python)
        if find_record(self._facts.records(name), version, None, there) is None:
            return ()
        return (package_finder(self._facts, os, here.cpu, here.python).find(name, version),)


def package_finder(facts: Facts, os: Os, cpu: Cpu, python: Version | None) -> PackageFinder:
    """Return the finder of a platform, which is made once while the facts are loaded."""
    platform = Platform(os, cpu, python)
    finders: dict[Any, PackageFinder] = facts.memory.setdefault("package finders", {})
    found = finders.get(platform.key)
    if found is None:
        if len(finders) >= _MAX_FINDERS:
            finders.clear()
        shared = [finder.caches for finder in finders.values()]
        caches = shared[0] if shared else PackageCaches()
        found = finders[platform.key] = PackageFinder(facts, platform, caches)
    return found


class OpenPackage(Struct, frozen=True):
    """A package whose content on a platform is not known.

    Attributes:
        wheel: known properties of the file.
        os: the pools' system, ``linux`` for WSL.
        python: the stack's Python, where it is known.
    """

    name: str
    version: Version
    wheel: Wheel | None
    os: Os
    cpu: Cpu
    python: Version | None


def release_of(package: GpuPackage | OpenPackage) -> str:
    """Return name and version as an installer writes them, ``xformers==0.0.35``."""
    return f"{package.name}=={package.version.text}"


def open_packages(
    stack: Stack, platforms: Iterable[tuple[Os, Cpu]], facts: Facts
) -> tuple[OpenPackage, ...]:
    """List the packages of a stack that no record describes, once for each platform.

    Components without published tables are listed as well.
    """
    python = stack.get("python")
    found: list[OpenPackage] = []
    for system, cpu in dict.fromkeys(platforms):
        os: Os = "linux" if system == "wsl" else system
        finder = package_finder(facts, os, cpu, python)
        for name, version in stack.versions.items():
            if not facts.is_package(name):
                continue
            package = finder.of_stack(stack, name)
            if package.is_open and not package.installed:
                wheel = stack.wheels.get(name)
                found.append(OpenPackage(name, version, wheel, os, cpu, python))
    return tuple(dict.fromkeys(found))
