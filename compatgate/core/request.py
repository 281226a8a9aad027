"""Read a question to the gate from JSON, and apply its "what if" changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import find_component
from compatgate.core.facts.nvidia import Gpu, Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.limits import (
    LONGEST_IMAGE,
    LONGEST_NAME,
    MOST_KEYS,
    refuse_longer,
    refuse_more,
)
from compatgate.core.matrix import Cpu, Os, Pool
from compatgate.core.stack import Stack, canonical_key, parse_stack, parse_stack_text, with_changes
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

_REQUEST_KEYS = ("target", "pools", "pool", "stack", "image", "set")
_POOL_KEYS = ("name", "driver", "gpu", "os", "cpu", "count")
_CPU_NAMES: dict[str, Cpu] = {"arm64": "aarch64", "amd64": "x86_64", "x64": "x86_64"}
"""Other names of processors: those of containers, Windows and macOS."""
POOL_CHANGES = ("driver", "gpu", "os", "cpu")
"""Keys of ``set`` that change the pool; every other changes the stack."""


class Request(Struct, frozen=True):
    """One question: a stack, and the target or the pool that it shall run on.

    Attributes:
        pools: names of the target's pools in question; empty: all.
    """

    stack: Stack
    target: str | None = None
    pool: Pool | None = None
    changes: dict[str, Any] = {}
    pools: tuple[str, ...] = ()


def parse_request(body: Any, gpus: Gpus) -> Request:
    """Read the body of ``POST /gate``.

    Args:
        body: ``{"target": ... | "pool": {...}, "stack": {...}, "image": ..., "set": {...}}``;
            ``pools`` names those of the target that the question is about.
        gpus: the GPU table, to resolve names.

    Raises:
        BadInput: names the field, the value and a correct form.
    """
    body = _mapping(body, None, _REQUEST_KEYS)
    target, pool = body.get("target"), body.get("pool")
    if (target is None) == (pool is None):
        raise BadInput("name a target or describe a pool, one of the two", field="target")
    if target is not None and (not isinstance(target, str) or not target):
        raise BadInput("must be the name of a target", field="target", value=target)
    pools = _pool_names(body.get("pools"), target)
    image = body.get("image")
    if image is not None and (not isinstance(image, str) or not image):
        raise BadInput("must be an image reference", field="image", value=image)
    refuse_longer(target or "", LONGEST_NAME, "target")
    refuse_longer(image or "", LONGEST_IMAGE, "image")
    if body.get("stack") is None:
        hint = "this gate reads no images: use serve --registry, or check --image"
        hint = hint if image else ""
        raise BadInput("the stack is missing", field="stack", hint=hint)
    stated = _mapping(body["stack"], "stack")
    stack = _at("stack", lambda: parse_stack(stated, image=image))
    changes = parse_changes(body.get("set"))
    return Request(
        stack=_at("set", lambda: change_stack(stack, changes)),
        target=target,
        pool=None if pool is None else change_pool(parse_pool(pool, gpus), changes, gpus),
        changes=changes,
        pools=pools,
    )


def _pool_names(stated: Any, target: str | None) -> tuple[str, ...]:
    """Read ``pools``.

    Raises:
        BadInput: it is not a list of names, or the question names no target.
    """
    if stated is None:
        return ()
    names = stated if isinstance(stated, list) else []
    if not names or not all(isinstance(name, str) and name for name in names):
        hint = "leave it out to ask about every pool of the target"
        raise BadInput("must be a list of pool names", field="pools", value=stated, hint=hint)
    refuse_more(len(names), MOST_KEYS, "names", "pools")
    for name in names:
        refuse_longer(name, LONGEST_NAME, "pools")
    if target is None:
        raise BadInput("names pools of a target", field="pools", value=stated, hint="name a target")
    return tuple(dict.fromkeys(names))


def parse_changes(body: Any) -> dict[str, Any]:
    """Read the changes of ``set``, the pool's keys in canonical spelling.

    Raises:
        BadInput: it is not a JSON object, or states a part twice, in two spellings.
    """
    found: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    stated = {} if body is None else _mapping(body, "set")
    refuse_more(len(stated), MOST_KEYS, "keys", "set")
    for key, value in stated.items():
        pools = _pool_key(key)
        name = pools or canonical_key(key)
        if spelled.setdefault(name, key) != key:
            what = f"{name} is stated twice, as {spelled[name]} and {key}"
            raise BadInput(what, field=f"set.{key}", value=value, hint="name each part once")
        found[pools or key] = value
    return found


def parse_changes_text(text: str) -> dict[str, Any]:
    """Read ``driver=580.95.05,cuda-compat=``; an empty value becomes None, which removes.

    Raises:
        BadInput: an item that is not ``name=value``; ``field`` starts with ``set``.
    """
    items = [item.strip() for item in text.split(",") if item.strip()]
    removed = {item[:-1].strip(): None for item in items if item.endswith("=")}
    stated = ",".join(item for item in items if not item.endswith("="))
    return {**_at("set", lambda: parse_stack_text(stated)), **removed}


def parse_pool(body: Any, gpus: Gpus) -> Pool:
    """Read a pool, ``{"driver": "535.104.05", "gpu": "A100-SXM4-80GB", "os": "linux"}``.

    The driver may be left open; the GPU may be a bare compute capability.

    Raises:
        BadInput: ``field`` starts with ``pool.``.
    """
    body = _mapping(body, "pool", _POOL_KEYS)
    if not any(body.get(key) for key in ("driver", "gpu")):
        raise BadInput("the pool is empty", field="pool", hint="state its driver and gpu")
    pool = Pool(name=_text(body, "name") or "pool", gpu=None, driver=None)
    return change_pool(pool, body, gpus, path="pool")


def change_pool(pool: Pool, changes: Mapping[str, Any], gpus: Gpus, *, path: str = "set") -> Pool:
    """Return the pool with the stated properties set; keys that are not a pool's are ignored.

    Raises:
        BadInput: a malformed value.
    """
    fields: dict[str, Any] = {}
    for key in ("gpu", "driver", "os", "cpu", "count"):
        if (value := changes.get(key)) is None:
            continue
        if key == "count":
            fields[key] = _count(value, f"{path}.count")
            continue
        if not isinstance(value, str):
            raise BadInput("must be text", field=f"{path}.{key}", value=value)
        refuse_longer(value, LONGEST_NAME, f"{path}.{key}")
        if key == "driver":
            fields[key] = _at(path, lambda v=value: parse_version("driver", v))
        elif key == "gpu":
            fields[key] = _at(path, lambda v=value: resolve_gpu(v, gpus))
        else:
            name = _CPU_NAMES.get(value.lower(), value) if key == "cpu" else value
            fields[key] = _choice(name, Os if key == "os" else Cpu, f"{path}.{key}")
    if "gpu" in fields and "cpu" not in fields:
        fields["cpu"] = _cpu_with(fields["gpu"], pool)
    return replace(pool, **fields)


def _cpu_with(gpu: Gpu, pool: Pool) -> Cpu:
    """Return the processor that goes with a new GPU: a superchip has a processor of its own."""
    brought = pool.gpu is not None and pool.gpu.cpu == pool.cpu
    return gpu.cpu or (Pool("pool", None, None).cpu if brought else pool.cpu)


def change_stack(stack: Stack, changes: Mapping[str, Any]) -> Stack:
    """Return the stack with every change that is not a pool's applied; None removes.

    Raises:
        BadInput: a malformed value or an unknown component.
    """
    ours = {key: value for key, value in changes.items() if _pool_key(key) is None}
    return with_changes(stack, ours) if ours else stack


def _pool_key(key: str) -> str | None:
    if key in POOL_CHANGES:
        return key
    found = find_component(key)
    return "driver" if found and found.component.name == "driver" else None


def _mapping(value: Any, field: str | None, known: tuple[str, ...] = ()) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput("must be a JSON object", field=field, value=value)
    for key in value:
        if not isinstance(key, str):
            raise BadInput("a key must be text", field=field, value=key)
        if known and key not in known:
            path = f"{field}.{key}" if field else key
            raise BadInput("unknown key", field=path, value=value[key], hint=_known(known))
    return value


def _known(known: tuple[str, ...]) -> str:
    return f"known: {', '.join(known)}"


def _text(body: Mapping[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise BadInput("must be text", field=f"pool.{key}", value=value)
    refuse_longer(value or "", LONGEST_NAME, f"pool.{key}")
    return value


def _count(value: Any, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput("must be a number of nodes", field=field, value=value)
    return value


def _choice(value: str, kind: Any, field: str) -> str:
    choices = get_args(kind)
    if value.lower() not in choices:
        raise BadInput(
            f"{value!r} is not known", field=field, value=value, hint=f"one of {', '.join(choices)}"
        )
    return value.lower()


def _at(path: str, read: Any) -> Any:
    try:
        return read()
    except BadInput as error:
        raise error.at(path) from None
