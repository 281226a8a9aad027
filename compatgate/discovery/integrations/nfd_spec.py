"""Read and write image-compatibility specs, ``v1alpha1``, of Node Feature Discovery (NFD).

`build_spec` writes the needs of a stack that NFD can see on a node, and names the others.
``matrix/nfd/devices.yaml`` has the PCI device ids of NVIDIA's GPUs.

NFD's validator knows cpu, kernel, memory, network, pci, storage, system and usb of a node, and no
labels: kubernetes-sigs/node-feature-discovery ``pkg/client-nfd/compat/node-validator`` registers
no ``local`` source. So a spec can require neither the driver's version nor labels of GPU Feature
Discovery; a rule on them would fail on every node. Rules have no ``matchAny`` either: with rules
of ``matchAny`` alone, releases up to 0.17 answer "matches" for every node
(``nodefeaturerule/rule.go``, ``Execute`` without fail-fast).

Sources: kubernetes-sigs/node-feature-discovery ``docs/usage/image-compatibility.md``,
``api/image-compatibility/v1alpha1/spec.go`` and ``api/nfd/v1alpha1/types.go`` (GroupRule,
MatchExpression).
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.components import COMPONENTS
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Pair
from compatgate.core.gpu_code import Arch, Capability, parse_capability
from compatgate.core.gpu_runs import find_run_mode
from compatgate.core.package_finder import package_finder
from compatgate.core.packages import GpuPackage, library_modes
from compatgate.core.stack import Stack, complete_stack
from compatgate.core.versions import format_parts
from compatgate.discovery.integrations.gpu_operator import read_objects
from compatgate.errors import BadInput, InconclusiveInput, quote_error
from compatgate.resources import locate

VERSION = "v1alpha1"
ARTIFACT_TYPE = "application/vnd.nfd.image-compatibility.v1alpha1"
LAYER_TYPE = "application/vnd.nfd.image-compatibility.spec.v1alpha1+yaml"
MAX_RULES = 1000
_HINT = "see https://kubernetes-sigs.github.io/node-feature-discovery, Image Compatibility"


class Expression(Struct, frozen=True, omit_defaults=True):
    """A condition on a value.

    Attributes:
        type: ``version`` compares ``1.2.3`` by its numbers.
    """

    op: str = ""
    value: tuple[str, ...] = ()
    type: str = ""


class Term(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Expressions on one feature, which must all hold."""

    feature: str
    match_expressions: dict[str, Expression] = {}
    match_name: Expression | None = None


class Alternative(Struct, frozen=True, rename="camel"):
    """One alternative of a rule."""

    match_features: tuple[Term, ...] = ()


class Rule(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule: all terms must hold, and one of the alternatives if there are any."""

    name: str
    match_features: tuple[Term, ...] = ()
    match_any: tuple[Alternative, ...] = ()


class Compatibility(Struct, frozen=True, omit_defaults=True):
    """A compatibility set: rules that must all hold."""

    rules: tuple[Rule, ...]
    weight: int = 0
    tag: str = ""
    description: str = ""


class Spec(Struct, frozen=True):
    """The requirements of an image on a node."""

    version: str
    compatibilities: tuple[Compatibility, ...]


def read_spec(text: str, *, origin: str = "image-compatibility spec") -> Spec:
    """Read an image-compatibility spec.

    Args:
        text: YAML or JSON.
        origin: name of the text in errors.

    Raises:
        BadInput: the text is neither YAML nor JSON, or has another version or form.
    """
    bodies = read_objects(text, origin)
    if len(bodies) != 1 or "compatibilities" not in bodies[0]:
        raise BadInput("is not an image-compatibility spec", field=origin, hint=_HINT)
    version = bodies[0].get("version")
    if version != VERSION:
        known = f"use version {VERSION}"
        raise BadInput(f"has version {version!r}", field=origin, value=version, hint=known)
    try:
        spec = msgspec.convert(_drop_empty_values(bodies[0]), Spec, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        problem = f"is not an image-compatibility spec: {quote_error(error)}"
        raise BadInput(problem, field=origin, hint=_HINT) from None
    if sum(len(one.rules) for one in spec.compatibilities) > MAX_RULES:
        raise BadInput(f"has more than {MAX_RULES} rules", field=origin)
    return spec


def write_spec(spec: Spec) -> str:
    """Return the spec as YAML.

    Values are always quoted: 1e38 is text to one YAML reader and a number to Go's.
    """
    import yaml

    class Quoted(str):
        __slots__ = ()

    class Dumper(yaml.SafeDumper):
        pass

    def quoted(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')

    def values(body: Any) -> Any:
        if isinstance(body, dict):
            return {k: [Quoted(v) for v in one] if k == "value" else values(one)
                    for k, one in body.items()}  # fmt: skip
        return [values(one) for one in body] if isinstance(body, list | tuple) else body

    Dumper.add_representer(Quoted, quoted)
    body = values(msgspec.to_builtins(spec))
    text: str = yaml.dump(body, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def _drop_empty_values(value: Any) -> Any:
    """Drop empty values of YAML, as NFD does."""
    if isinstance(value, dict):
        return {k: _drop_empty_values(v) for k, v in value.items() if v not in (None, "", "null")}
    if isinstance(value, list):
        return [_drop_empty_values(one) for one in value]
    return value


VENDOR = "10de"


class DeviceRow(Struct, frozen=True):
    """PCI devices of one product.

    Attributes:
        gpu: prefix of the product's names; empty where the facts have none.
    """

    capability: str
    ids: tuple[str, ...]
    gpu: str = ""


class Devices(Struct, frozen=True):
    """The table of PCI devices."""

    devices: tuple[DeviceRow, ...]

    def capabilities(self) -> dict[str, Capability]:
        """Return the compute capability of each device, ascending by id."""
        pairs = ((i, parse_capability(row.capability)) for row in self.devices for i in row.ids)
        return dict(sorted(pairs))

    def of_product(self, name: str) -> frozenset[str]:
        """Return the possible ids of a product; empty where none is known."""
        rows = (
            r for r in self.devices if r.gpu and (name == r.gpu or name.startswith(f"{r.gpu}-"))
        )
        return frozenset(i for row in rows for i in row.ids)


@cache
def load_devices() -> Devices:
    """Load the table of devices in the package."""
    import yaml

    with open(os.path.join(locate("matrix"), "nfd", "devices.yaml"), encoding="utf-8") as file:
        return msgspec.convert(yaml.load(file, yaml.CSafeLoader), Devices)


_CLASSES = ("0300", "0302")
"""PCI classes of NVIDIA's GPUs: VGA and 3D controllers."""


class StackSpec(Struct, frozen=True):
    """A spec, and the needs of the stack that the spec leaves out."""

    spec: Spec
    left_out: tuple[str, ...]


def build_spec(
    stack: Stack, facts: Facts, devices: Devices, *, platform: str = "linux/amd64"
) -> StackSpec:
    """Write the requirements of a stack on a node.

    Args:
        stack: stack of the image.
        facts: where code runs, and which driver CUDA needs.
        devices: PCI ids of GPUs.
        platform: platform of the image.

    Raises:
        Inconclusive: the spec would be empty, and every node would match.
    """
    stack = complete_stack(stack)
    left_out = [*_driver_needs(stack, facts), *_unchecked_needs(stack)]
    if not (stack.components or stack.packages or stack.arch or stack.require):
        hint = "an image without a CUDA component or GPU code has no requirement on a GPU node"
        raise InconclusiveInput("no part of the stack needs a GPU", field="stack", hint=hint)
    if platform.startswith("linux/arm64") and _may_run_on_tegra(stack, facts):
        raise InconclusiveInput(
            "the image may run on Jetson, whose GPU is not a PCI device: no rule fits all nodes",
            field="platform",
            value=platform,
            hint="state the image's GPU code, such as --stack arch=sm_90",
        )
    gpu, unknown = _gpu_rule(stack, facts, devices)
    rules = (gpu, _module_rule())
    left_out += unknown
    description = _description(stack, left_out, facts)
    sets = (Compatibility(rules, description=description),)
    return StackSpec(Spec(VERSION, sets), tuple(left_out))


def _gpu_rule(stack: Stack, facts: Facts, devices: Devices) -> tuple[Rule, list[str]]:
    """Return the rule for an NVIDIA GPU, without GPUs that no code of the stack runs on."""
    asked = {"vendor": Expression("In", (VENDOR,)), "class": Expression("In", _CLASSES)}
    code = _all_code(stack, facts)
    if not code:
        note = "GPU code: the stack states none, so the rules accept any GPU of NVIDIA"
        return Rule("NVIDIA GPU", (Term("pci.device", asked),)), [note]
    if any(text.partition(": ")[0] not in COMPONENTS for text in stack.open):
        note = "GPU code: not all of the image was read, so the rules accept any GPU of NVIDIA"
        return Rule("NVIDIA GPU", (Term("pci.device", asked),)), [note]
    capabilities = devices.capabilities()
    useless = tuple(
        device
        for device, capability in capabilities.items()
        if not _runs_on(stack, capability, facts)
    )
    if len(useless) == len(capabilities):
        names = " ".join(arch.name for arch in code)
        raise InconclusiveInput(
            f"no GPU with a known PCI id runs {names}",
            field="arch",
            hint="the code may be for Tegra",
        )
    if useless:
        asked["device"] = Expression("NotIn", useless)
    note = (
        "GPU code: PCI ids of data-center GPUs are excluded; a GPU with another id is not checked"
    )
    return Rule("NVIDIA GPU that the image has code for", (Term("pci.device", asked),)), [note]


def _module_rule() -> Rule:
    term = Term("kernel.loadedmodule", {"nvidia": Expression("Exists")})
    return Rule("NVIDIA driver is loaded", (term,))


def _driver_needs(stack: Stack, facts: Facts) -> list[str]:
    cuda = stack.components.get("cuda")
    floor = cuda and facts.cuda_driver.minor_compat.get(cuda.major)
    if not cuda or not floor or "linux" not in floor.minimum:
        return [f"driver: for CUDA {cuda}"] if cuda else []
    series = format_parts(cuda.major_minor)
    least = floor.exceptions.get(series, {}).get("linux", floor.minimum["linux"])
    helped = " or its forward-compatibility package" if stack.cuda_compat else ""
    return [f"driver: at least {least} for CUDA {cuda}{helped}"]


def _unchecked_needs(stack: Stack) -> list[str]:
    asked = [f"NVIDIA_REQUIRE: {text}" for text in stack.require]
    return [*asked, *(f"left open: {text}" for text in stack.open)]


def _may_run_on_tegra(stack: Stack, facts: Facts) -> bool:
    if not _all_code(stack, facts):
        return True
    return any(_runs_on(stack, device, facts) for device in facts.arch.tegra)


def _all_code(stack: Stack, facts: Facts) -> tuple[Arch, ...]:
    """Return all GPU code of a stack, including the code in packages' files."""
    packages = [code for one in _required_packages(stack, facts) for code in one.carried]
    return tuple(dict.fromkeys([*(stack.arch or ()), *packages]))


def _runs_on(stack: Stack, device: Pair, facts: Facts) -> bool:
    """Return whether code outside packages runs on a GPU, and some code of each package."""
    if stack.arch and find_run_mode(stack.arch, device, facts.arch) is None:
        return False
    cuda = stack.get("cuda")
    return all(
        any(how for group in groups for _, how in group)
        for one in _required_packages(stack, facts)
        if (groups := library_modes(one, device, cuda, facts.arch))
    )


def _required_packages(stack: Stack, facts: Facts) -> list[GpuPackage]:
    """Return the packages whose code has to run, without optional ones and NVIDIA's libraries."""
    finder = package_finder(facts, "linux", "x86_64", stack.get("python"))
    return [
        finder.of_stack(stack, name)
        for name in stack.measured
        if name in stack.versions
        and not facts.packages.is_optional(name)
        and facts.packages.carries(name) != "libraries"
    ]


def _description(stack: Stack, left_out: list[str], facts: Facts) -> str:
    parts = [f"{name} {version}" for name, version in sorted(stack.components.items())]
    code = " ".join(arch.name for arch in _all_code(stack, facts))
    what = ", ".join([*parts, *([code] if code else [])])
    return f"compatgate: {what}. Not checked by these rules: {'; '.join(left_out)}"
