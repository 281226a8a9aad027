"""From a stack to a spec: what of it NFD can see on a node, and what it cannot.

NFD's validator knows cpu, kernel, memory, network, pci, storage, system and usb of a node, and no
labels: kubernetes-sigs/node-feature-discovery ``pkg/client-nfd/compat/node-validator`` registers
no ``local`` source. So neither the driver's version nor GPU Feature Discovery's labels can be asked
for; a rule that did would fail on every node. Rules have no ``matchAny`` either: with rules of that
alone, releases up to 0.17 answer "matches" whatever the node has (``nodefeaturerule/rule.go``,
``Execute`` without fail-fast).
"""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.arch import Arch
from compatgate.core.components import COMPONENTS
from compatgate.core.facts import Facts, Pair
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.package_code import ways_here
from compatgate.core.packages import GpuPackage, package_finder
from compatgate.core.stack import Stack, complete
from compatgate.core.versions import show
from compatgate.discovery.nfd.devices import VENDOR, Devices
from compatgate.discovery.nfd.spec import VERSION, Compatibility, Expression, Rule, Spec, Term
from compatgate.errors import Inconclusive

_CLASSES = ("0300", "0302")
"""VGA and 3D controllers; NVIDIA's GPUs are one or the other."""


class Written(Struct, frozen=True):
    """A spec, and what the stack needs that it does not say."""

    spec: Spec
    left_out: tuple[str, ...]


def spec_of_stack(
    stack: Stack, facts: Facts, devices: Devices, *, platform: str = "linux/amd64"
) -> Written:
    """Write what a stack asks of a node.

    Args:
        stack: of an image.
        facts: where code runs, and which driver CUDA needs.
        devices: PCI ids of GPUs.
        platform: of the image.

    Raises:
        Inconclusive: nothing of it can be asked for: NFD would find that every node fits.
    """
    stack = complete(stack)
    left_out = [*_driver_needs(stack, facts), *_unseen(stack)]
    if not (stack.components or stack.packages or stack.arch or stack.require):
        hint = "an image without a CUDA component or GPU code asks nothing of a GPU node"
        raise Inconclusive("the stack names nothing that needs a GPU", field="stack", hint=hint)
    if platform.startswith("linux/arm64") and _may_run_on_tegra(stack, facts):
        raise Inconclusive(
            "the image may run on Jetson, whose GPU is no PCI device: no rule holds for all nodes",
            field="platform",
            value=platform,
            hint="state the code that it has with --stack arch=sm_90, if that is all",
        )
    gpu, unknown = _gpu_rule(stack, facts, devices)
    rules = (gpu, _module_rule())
    left_out += unknown
    description = _description(stack, left_out, facts)
    sets = (Compatibility(rules, description=description),)
    return Written(Spec(VERSION, sets), tuple(left_out))


def _gpu_rule(stack: Stack, facts: Facts, devices: Devices) -> tuple[Rule, list[str]]:
    """A GPU of NVIDIA is there; none of those that no code of the stack runs on."""
    asked = {"vendor": Expression("In", (VENDOR,)), "class": Expression("In", _CLASSES)}
    code = _code(stack, facts)
    if not code:
        note = "GPU code: the stack states none, so any GPU of NVIDIA is taken to do"
        return Rule("NVIDIA GPU", (Term("pci.device", asked),)), [note]
    if any(text.partition(": ")[0] not in COMPONENTS for text in stack.open):
        note = "GPU code: not all of the image was read, so any GPU of NVIDIA is taken to do"
        return Rule("NVIDIA GPU", (Term("pci.device", asked),)), [note]
    capabilities = devices.capabilities()
    useless = tuple(
        device for device, capability in capabilities.items() if not _runs(stack, capability, facts)
    )
    if len(useless) == len(capabilities):
        names = " ".join(arch.name for arch in code)
        raise Inconclusive(
            f"no GPU with a known PCI id runs {names}", field="arch", hint="it may be Tegra code"
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
    series = show(cuda.major_minor)
    least = floor.exceptions.get(series, {}).get("linux", floor.minimum["linux"])
    helped = " or its forward-compatibility package" if stack.cuda_compat else ""
    return [f"driver: at least {least} for CUDA {cuda}{helped}"]


def _unseen(stack: Stack) -> list[str]:
    asked = [f"NVIDIA_REQUIRE: {text}" for text in stack.require]
    return [*asked, *(f"left open: {text}" for text in stack.open)]


def _may_run_on_tegra(stack: Stack, facts: Facts) -> bool:
    if not _code(stack, facts):
        return True
    return any(_runs(stack, device, facts) for device in facts.arch.tegra)


def _code(stack: Stack, facts: Facts) -> tuple[Arch, ...]:
    """All GPU code of a stack, that of its packages' files included."""
    packages = [code for one in _measured(stack, facts) for code in one.carried]
    return tuple(dict.fromkeys([*(stack.arch or ()), *packages]))


def _runs(stack: Stack, device: Pair, facts: Facts) -> bool:
    """Tell whether loose code runs on a GPU, and something of each package that has any."""
    if stack.arch and how_it_runs(stack.arch, device, facts.arch) is None:
        return False
    cuda = stack.get("cuda")
    return all(
        any(how for group in groups for _, how in group)
        for one in _measured(stack, facts)
        if (groups := ways_here(one, device, cuda, facts.arch))
    )


def _measured(stack: Stack, facts: Facts) -> list[GpuPackage]:
    """The packages whose code has to run: not those that work without, nor NVIDIA's libraries."""
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
    code = " ".join(arch.name for arch in _code(stack, facts))
    what = ", ".join([*parts, *([code] if code else [])])
    return f"compatgate: {what}. Not checked by these rules: {'; '.join(left_out)}"
