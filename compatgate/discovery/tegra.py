"""Read what a Jetson says of itself: its L4T release, its JetPack and its module.

``/etc/nv_tegra_release`` names the release in its first line, ``/proc/device-tree`` the module. Up
to JetPack 5 there is no nvidia-smi; from JetPack 6 on it names the GPU alone (``Orin (nvgpu)``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.gpus import find_gpu, resolve_gpu
from compatgate.discovery.machine import Root
from compatgate.discovery.observations import Observation, ObservedPool
from compatgate.errors import BadInput

RELEASE = "/etc/nv_tegra_release"
TREE = "/proc/device-tree"
_RELEASE = re.compile(r"#?\s*R(\d{2}) \(release\), REVISION: (\d+(?:\.\d+)?)")
_L4T_VARIABLE = re.compile(r"\bL4T_VERSION=(\d{2}\.\d+\.\d+)\b")
_JETPACK_VARIABLE = re.compile(r"\bJETPACK_VERSION=(\d\.\d(?:\.\d)?)\b")
_L4T_PACKAGE = re.compile(r"\bnvidia-l4t-core\s{1,40}(?:\S{1,40}\s{1,40}){0,2}?(\d{2}\.\d+\.\d+)-")
_JETPACK_PACKAGE = re.compile(
    r"\bnvidia-jetpack\s{1,40}(?:\S{1,40}\s{1,40}){0,2}?(\d\.\d(?:\.\d)?)[+-]b\d+"
)
_MODEL = re.compile(r"^ {0,8}((?:NVIDIA )?(?:Jetson|IGX)[ -][\w ()+-]{1,80})$", re.MULTILINE)
_SOC = re.compile(r"\bnvidia,(tegra\d{3})\b")
_TEGRASTATS = re.compile(r"\bGR3D_FREQ [@\d]")


class TegraBoard(Struct, frozen=True):
    """A Jetson, as its device tree names it; a field is empty where nothing tells it.

    It is the model ``NVIDIA Jetson AGX Orin Developer Kit`` with the chip ``tegra234``.
    """

    l4t: str = ""
    jetpack: str = ""
    model: str = ""
    soc: str = ""

    @property
    def node(self) -> dict[str, str]:
        """Return the parts of the node that it states."""
        return {k: v for k, v in (("l4t", self.l4t), ("jetpack", self.jetpack)) if v}


def parse_board(text: str) -> TegraBoard | None:
    """Read a board from any text that holds these files, or lists of packages; None: no Jetson."""
    clean = text.replace("\0", "\n")
    release = _RELEASE.search(clean)
    l4t = f"{release[1]}.{release[2]}" if release else ""
    board = TegraBoard(
        l4t=l4t or _first(_L4T_PACKAGE, clean) or _first(_L4T_VARIABLE, clean),
        jetpack=_first(_JETPACK_PACKAGE, clean) or _first(_JETPACK_VARIABLE, clean),
        model=_first(_MODEL, clean),
        soc=_first(_SOC, clean),
    )
    return board if board.l4t or board.model or board.soc else None


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def read_board(root: Root) -> TegraBoard | None:
    """Return the board of a machine; None where it is no Jetson."""
    found = parse_board(root.read(RELEASE, 4096)) or TegraBoard()
    tree = root.read(f"{TREE}/compatible", 1024).replace("\0", "\n")
    found = replace(
        found, model=root.read(f"{TREE}/model", 256).strip("\0 "), soc=_first(_SOC, tree)
    )
    return found if found.l4t or found.soc else None


def observe_board(board: TegraBoard) -> list[Observation]:
    """Return the observations of a board's release."""
    return [Observation(name, version, RELEASE) for name, version in board.node.items()]


def name_gpu(board: TegraBoard, facts: Facts) -> str | None:
    """Return the GPU of a board: its module, else its capability; None where nothing tells it."""
    # A carrier of another maker prints a name of its own.
    module = find_gpu(board.model, facts.gpus) if board.model else None
    if module and module.segment == "jetson":
        return board.model
    same = [device for device in facts.jetson.devices if device.soc == board.soc]
    if not same:
        return None
    major, minor = same[0].capability
    return f"sm_{major}{minor}"


def add_board(
    pools: Sequence[ObservedPool], board: TegraBoard, facts: Facts
) -> tuple[ObservedPool, ...]:
    """Return the pools with the release and the module of a board; its own where there is none."""
    gpu = name_gpu(board, facts)
    if not pools and gpu:
        pools = (ObservedPool("jetson", gpu, cpu="aarch64"),)
    joined: list[ObservedPool] = []
    for pool in pools:
        found = resolve_gpu(pool.gpu, facts.gpus)
        if found.segment == "jetson" or found.capability in facts.arch.tegra:
            known = gpu if gpu and not gpu.startswith("sm_") else pool.gpu
            found = resolve_gpu(known, facts.gpus)
            device = facts.jetson.device_of(found.name, found.capability)
            there = replace(pool, gpu=known, cpu="aarch64")
            pool = there.on_machine(board.node, device.platform if device else None)
        joined.append(pool)
    return tuple(joined)


def explain_tegrastats(text: str, origin: str) -> BadInput | None:
    """Explain that tegrastats names no module; None for any other text."""
    if not _TEGRASTATS.search(text):
        return None
    return BadInput(
        "is output of tegrastats, which names neither the module nor its release",
        field=origin,
        hint=f"give the output of cat {RELEASE} {TREE}/model",
    )
