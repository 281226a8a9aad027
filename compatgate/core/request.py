"""Read a question to the gate from JSON: targets, pools and policies, and "what if" changes.

A target has pools of one GPU and driver each, and the policy that decides what is enough.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from compatgate.core.binding import Assurance, Bind
from compatgate.core.components import (
    MAX_COMMAND_LENGTH,
    MAX_IMAGE_LENGTH,
    MAX_KEYS,
    MAX_NAME_LENGTH,
    check_count,
    check_length,
    find_component,
)
from compatgate.core.facts.nvidia import Gpu, Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.node import (
    NODE_COMPONENTS,
    Sharing,
    parse_node_version,
    read_node,
    read_node_value,
    read_platform,
)
from compatgate.core.performance import near_names
from compatgate.core.stack import Stack, canonical_key, parse_stack, parse_stack_text, update_stack
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput

Os = Literal["linux", "windows", "wsl"]
DriverOs = Literal["linux", "windows"]
"""The system whose driver numbers a pool has: WSL has those of Windows."""
Cpu = Literal["x86_64", "aarch64"]
Mode = Literal["enforce", "warn", "audit"]
UnknownPolicy = Literal["fail", "warn", "allow"]
PromotionMode = Literal["approval", "automatic"]
PackagesMode = Literal["enforce", "audit"]
MissingFactsMode = Literal["enforce", "audit"]
EntriesMode = Literal["lenient", "strict"]
FailurePolicy = Literal["warn", "revoke"]


class Pool(Struct, frozen=True):
    """Nodes of one GPU SKU with one driver."""

    name: str
    gpu: Gpu | None  # resolved SKU; None only where a question leaves it open (the verdict says so)
    driver: Version | None  # None only where a question leaves it open
    os: Os = "linux"  # ``wsl`` has the driver numbers of Windows
    cpu: Cpu = "x86_64"
    count: int = 1
    platform: str | None = None  # kind of machine, like ``aws/p6e-gb200``; None: not stated
    sharing: Sharing | None = None  # how containers share a GPU; None: not stated
    node: dict[str, str] = {}  # parts and settings of the nodes, by name of `NODE_COMPONENTS`

    @property
    def driver_os(self) -> DriverOs:
        """Return the system whose driver numbers this pool has."""
        return "linux" if self.os == "linux" else "windows"

    def node_version(self, name: str) -> Version | None:
        """Return the version of a part of the nodes; None when not stated."""
        text = self.node.get(name)
        return None if text is None else parse_node_version(text)


class CanaryPolicy(Struct, frozen=True):
    """The evidence that a target requires."""

    require: bool = False
    max_age_s: int = 30 * 86400  # seconds for which a passed run counts
    suites: tuple[str, ...] = ("smoke",)  # suites that must have passed
    accept_development: bool = False  # runs outside containers count as well
    soak: tuple[str, ...] = ()  # further suites that must have passed before an entry is blessed
    # who blesses a candidate whose suites have passed: a person, or the gate
    promote: PromotionMode = "approval"
    # effect of a failing re-run on a blessed entry, in addition to the warning
    on_failure: FailurePolicy = "warn"
    assurance: Assurance = "self-reported"  # minimum assurance of a passed run
    # suite to the sources, ``FORMAT@SOURCE``, whose imported results count for it
    imported: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # what evidence must share with an image: its versions, its GPU content where that of both is
    # known, or its digest
    bind: Bind = "content"

    def evidence_suites(self, suite: str) -> tuple[str, ...]:
        """Return the suites whose evidence counts for a suite: itself, and imported sources."""
        return (suite, *(s for name, sources in self.imported if name == suite for s in sources))


class Policy(Struct, frozen=True):
    """The requirements of a target, and the effect of a verdict."""

    # ``enforce`` denies what fails; ``warn`` and ``audit`` allow it and report it
    mode: Mode = "enforce"
    require_entry: bool = False
    canary: CanaryPolicy = field(default_factory=CanaryPolicy)
    # effect of an unknown verdict; ``fail`` stops (exit status 3)
    on_unknown: UnknownPolicy = "fail"
    # outcome of a package without a record: unknown, or under ``audit`` a warning
    packages: PackagesMode = "enforce"
    # outcome where the facts lack what decides about a stated value: unknown, or under ``audit`` a
    # warning
    missing_facts: MissingFactsMode = "enforce"
    # ``lenient`` lets an entry bless a stack with GPU packages that it does not name; ``strict``
    # does not
    entries: EntriesMode = "lenient"


class Target(Struct, frozen=True):
    """A target as the rules see it; its pools are resolved."""

    name: str
    pools: tuple[Pool, ...]
    policy: Policy = field(default_factory=Policy)
    # names of its other pools, where a question is about some pools only
    left_out: tuple[str, ...] = ()


DriverState = Literal["blessed", "not-blessed", "unknown"]
"""State of a node's driver: a blessed or deprecated entry of its targets allows it, or not."""
DriftKind = Literal[
    "driver",
    "gpu",
    "platform",
    "kernel-modules",
    "gsp-firmware",
    "fabric-manager",
    "imex",
    "nvlsm",
    "container-toolkit",
    "container-mode",
    "dcgm",
    "gpu-operator",
    "kernel",
    "distribution",
    "secure-boot",
    "peer-memory",
    "ofed",
    "efa",
    "vbios",
    "persistence",
    "iommu",
    "acs",
    "l4t",
    "jetpack",
    "vgpu-manager",
]
"""The property in which a node differs from its target's declaration: driver, GPUs, platform, or a
part of `NODE_COMPONENTS`."""


def drift_title(what: DriftKind) -> str:
    """Return the property as sentences name it."""
    if what == "gpu":
        return "GPU"
    component = NODE_COMPONENTS.get(what)
    return component.title if component else what


_REQUEST_KEYS = ("target", "pools", "pool", "stack", "image", "command", "mounts", "set")
POOL_KEYS = ("name", "driver", "gpu", "os", "cpu", "count", "platform", "sharing", "node")
CPU_NAMES: dict[str, Cpu] = {"arm64": "aarch64", "amd64": "x86_64", "x64": "x86_64"}
"""Other names of processors: those of containers, Windows and macOS."""
_OS_NAMES = {"win": "windows"}
_OS_RELEASE = re.compile(r"[ _-]*\d[\w.]*$")
"""The release behind a system's name, on which nothing hangs: ``Windows 11``, ``wsl2``."""
NEEDED_OF_POOL = ("driver", "gpu", "os", "cpu")
"""Keys of ``set`` that change a pool, and that cannot be removed."""
_OLDEST_DRIVER = 21
"""Jetsons have the smallest numbers of drivers, those of L4T; below are the versions of CUDA."""
POOL_CHANGES = (*NEEDED_OF_POOL, "platform", "sharing", *NODE_COMPONENTS)
"""Keys of ``set`` that change the pool; every other changes the stack."""


class Request(Struct, frozen=True):
    """One question: a stack, and the target or the pool that it shall run on."""

    stack: Stack
    target: str | None = None
    pool: Pool | None = None
    changes: dict[str, Any] = {}
    pools: tuple[str, ...] = ()  # names of the target's pools in question; empty: all


def parse_request(body: Any, gpus: Gpus) -> Request:
    """Read the body of ``POST /gate``.

    Args:
        body: ``{"target": ... | "pool": {...}, "stack": {...}, "image": ..., "set": {...}}``;
            ``command`` is what runs in the image in place of its own; ``mounts`` are the places of
            volumes in it; ``pools`` names those of the target that the question is about.
    """
    body = _require_mapping(body, None, _REQUEST_KEYS)
    target, pool = body.get("target"), body.get("pool")
    if (target is None) == (pool is None):
        raise BadInput("name either a target or a pool", field="target")
    if target is not None and (not isinstance(target, str) or not target):
        raise BadInput("must be the name of a target", field="target", value=target)
    pools = _read_pool_names(body.get("pools"), target)
    image = body.get("image")
    if image is not None and (not isinstance(image, str) or not image):
        raise BadInput("must be an image reference", field="image", value=image)
    _check_words(body, "command", '["/opt/venv/bin/python", "train.py"]; [] where it is not known')
    _check_words(body, "mounts", '["/data", "/opt/venv"]')
    check_length(target or "", MAX_NAME_LENGTH, "target")
    check_length(image or "", MAX_IMAGE_LENGTH, "image")
    if body.get("stack") is None:
        hint = "this gate reads no images: use serve --registry, or check --image"
        hint = hint if image else ""
        raise BadInput("the stack is missing", field="stack", hint=hint)
    stated = _require_mapping(body["stack"], "stack")
    stack = _prefix_field("stack", lambda: parse_stack(stated, image=image))
    changes = parse_changes(body.get("set"))
    return Request(
        stack=_prefix_field("set", lambda: change_stack(stack, changes)),
        target=target,
        pool=None if pool is None else change_pool(parse_pool(pool, gpus), changes, gpus),
        changes=changes,
        pools=pools,
    )


def _check_words(body: Mapping[str, Any], name: str, example: str) -> None:
    stated = body.get(name)
    words = [] if stated is None else stated
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        what, hint = "must be a list of words", f"like {example}"
        raise BadInput(what, field=name, value=stated, hint=hint)
    check_length("".join(words), MAX_COMMAND_LENGTH, name)


def _read_pool_names(stated: Any, target: str | None) -> tuple[str, ...]:
    if stated is None:
        return ()
    names = stated if isinstance(stated, list) else []
    if not names or not all(isinstance(name, str) and name for name in names):
        hint = "leave it out to ask about every pool of the target"
        raise BadInput("must be a list of pool names", field="pools", value=stated, hint=hint)
    check_count(len(names), MAX_KEYS, "names", "pools")
    for name in names:
        check_length(name, MAX_NAME_LENGTH, "pools")
    if target is None:
        raise BadInput("needs a target", field="pools", value=stated, hint="name a target")
    return tuple(dict.fromkeys(names))


def parse_changes(body: Any) -> dict[str, Any]:
    """Read the changes of ``set``, the pool's keys in canonical spelling."""
    found: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    stated = {} if body is None else _require_mapping(body, "set")
    check_count(len(stated), MAX_KEYS, "keys", "set")
    for key, value in stated.items():
        pools = _pool_key(key)
        name = pools or canonical_key(key)
        if spelled.setdefault(name, key) != key:
            what = f"{name} is stated twice, as {spelled[name]} and {key}"
            raise BadInput(what, field=f"set.{key}", value=value, hint="name each part once")
        found[pools or key] = value
    return found


def parse_changes_text(text: str) -> dict[str, Any]:
    """Read ``driver=580.95.05,cuda-compat=``; an empty value becomes None, which removes."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    removed = {item[:-1].strip(): None for item in items if item.endswith("=")}
    stated = ",".join(item for item in items if not item.endswith("="))
    return {**_prefix_field("set", lambda: parse_stack_text(stated)), **removed}


def parse_pool(body: Any, gpus: Gpus) -> Pool:
    """Read a pool, ``{"driver": "535.104.05", "gpu": "A100-SXM4-80GB", "os": "linux"}``.

    The driver may be left open; the GPU may be a bare compute capability.
    """
    body = _require_mapping(body, "pool", POOL_KEYS)
    if not any(body.get(key) for key in ("driver", "gpu")):
        raise BadInput("the pool is empty", field="pool", hint="state driver and gpu of the pool")
    name = body.get("name")
    if name is not None and not isinstance(name, str):
        raise BadInput("must be text", field="pool.name", value=name)
    check_length(name or "", MAX_NAME_LENGTH, "pool.name")
    pool = Pool(name=name or "pool", gpu=None, driver=None)
    if body.get("node") is not None:
        pool = replace(pool, node=read_node(body["node"], "pool.node"))
    return change_pool(pool, body, gpus, path="pool")


def change_pool(pool: Pool, changes: Mapping[str, Any], gpus: Gpus, *, path: str = "set") -> Pool:
    """Return the pool with the stated properties set; keys that are not a pool's are ignored."""
    if not changes:  # the case of most questions
        return pool
    fields: dict[str, Any] = {}
    for key in ("gpu", "driver", "os", "cpu", "count"):
        if (value := changes.get(key)) is None:
            continue
        if key == "count":
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise BadInput("must be a number of nodes", field=f"{path}.count", value=value)
            fields[key] = value
            continue
        if not isinstance(value, str):
            raise BadInput("must be text", field=f"{path}.{key}", value=value)
        check_length(value, MAX_NAME_LENGTH, f"{path}.{key}")
        if key == "driver":
            version = _prefix_field(path, lambda v=value: parse_version("driver", v))
            if version.major < _OLDEST_DRIVER:
                hint = "nvidia-smi prints the driver version, like 550.54.15; CUDA belongs to the "
                problem = f"{value} is older than every driver with CUDA: a CUDA version?"
                raise BadInput(problem, field=f"{path}.driver", value=value, hint=f"{hint}stack")
            fields[key] = version
        elif key == "gpu":
            fields[key] = _prefix_field(path, lambda v=value: resolve_gpu(v, gpus))
        elif key == "cpu":
            name = CPU_NAMES.get(value.lower(), value)
            fields[key] = _read_choice(name, Cpu, f"{path}.{key}")
        else:
            name = _OS_RELEASE.sub("", value.lower())
            name = _OS_NAMES.get(name, name)
            known = name in get_args(Os)
            fields[key] = _read_choice(name if known else value, Os, f"{path}.{key}")
    if "gpu" in fields and "cpu" not in fields:
        brought = pool.gpu is not None and pool.gpu.cpu == pool.cpu
        fields["cpu"] = fields["gpu"].cpu or (Pool("pool", None, None).cpu if brought else pool.cpu)
    return replace(pool, **fields, **_change_node(pool, changes, path))


def _change_node(pool: Pool, changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the changed fields of what lies below the containers; None removes."""
    fields: dict[str, Any] = {}
    if "platform" in changes:
        value = changes["platform"]
        fields["platform"] = None if value is None else read_platform(value, f"{path}.platform")
    if "sharing" in changes:
        value = changes["sharing"]
        if value is not None and not isinstance(value, str):
            raise BadInput("must be text", field=f"{path}.sharing", value=value)
        fields["sharing"] = value and _read_choice(value, Sharing, f"{path}.sharing")
    stated = {name: changes[name] for name in NODE_COMPONENTS if name in changes}
    if stated:
        node = {**pool.node, **stated}
        kept = {name: value for name, value in node.items() if value is not None}
        read = {n: read_node_value(n, value, f"{path}.{n}") for n, value in kept.items()}
        fields["node"] = {name: read[name] for name in NODE_COMPONENTS if name in read}
    return fields


def change_stack(stack: Stack, changes: Mapping[str, Any]) -> Stack:
    """Return the stack with every change that is not a pool's applied; None removes."""
    ours = {key: value for key, value in changes.items() if _pool_key(key) is None}
    try:
        return update_stack(stack, ours) if ours else stack
    except BadInput as error:
        if near := near_names(error.field or "", POOL_CHANGES, cutoff=0.8):
            error.hint = f"did you mean {near[0]}?"
        raise


def _pool_key(key: str) -> str | None:
    if key in POOL_CHANGES:
        return key
    if (name := canonical_key(key)) in POOL_CHANGES:
        return name
    found = find_component(key)
    return "driver" if found and found.component.name == "driver" else None


def _require_mapping(
    value: Any, field: str | None, known: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput("must be a JSON object", field=field, value=value)
    for key in value:
        if not isinstance(key, str):
            raise BadInput("a key must be text", field=field, value=key)
        if known and key not in known:
            path = f"{field}.{key}" if field else key
            parts = {f"node.{name}": name for name in NODE_COMPONENTS} if known is POOL_KEYS else {}
            spelled = key.lower().replace("_", "-")
            near = near_names(spelled, (*known, *parts.values()), cutoff=0.75)
            paths = {name: path for path, name in parts.items()}
            hint = f"known: {', '.join(known)}"
            hint = f"did you mean {paths.get(near[0], near[0])}?" if near else hint
            raise BadInput("unknown key", field=path, value=value[key], hint=hint)
    return value


def _read_choice(value: str, kind: Any, field: str) -> str:
    choices = get_args(kind)
    if value.lower() not in choices:
        hint = f"one of {', '.join(choices)}"
        raise BadInput(f"{value!r} is not known", field=field, value=value, hint=hint)
    return value.lower()


def _prefix_field(path: str, read: Any) -> Any:
    try:
        return read()
    except BadInput as error:
        raise error.at(path) from None
