"""Convert typed documents into the objects that the rules read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import ANY_SLICE, normalise, resolve_gpu, split_any_slice
from compatgate.core.matrix import Entry, Waiver
from compatgate.core.needs import parse_needs
from compatgate.core.node import read_node, read_platform
from compatgate.core.request import CanaryPolicy, Policy, Pool, Target
from compatgate.core.versions import parse_version
from compatgate.documents.quantities import parse_duration
from compatgate.documents.specs import EntryDoc, PolicySpec, PoolSpec, TargetDoc, WaiverDoc
from compatgate.errors import BadInput

_MAX_SKUS = 4096


def to_target(document: TargetDoc, gpus: Gpus) -> Target:
    """Return a target with its pools resolved."""
    return Target(
        name=document.metadata.name,
        pools=tuple(_pool(pool, gpus) for pool in document.spec.pools),
        policy=to_policy(document.spec.policy),
    )


def to_entry(document: EntryDoc, gpus: Gpus, revision: int) -> Entry:
    """Return a row of the matrix.

    A GPU that the facts no longer know stays as written: no pool can have it.

    ``revision`` made this version of the document.
    """
    spec = document.spec
    return Entry(
        name=document.metadata.name,
        targets=spec.targets,
        components=_constraints(spec.components),
        status=spec.status,
        reason=spec.reason,
        gpus=tuple(dict.fromkeys(sku for name in spec.gpus for sku in _resolve_skus(name, gpus))),
        replacement=spec.replacement,
        revision=revision,
        needs=parse_needs(spec.needs) if spec.needs else None,
        blessed_contents=spec.blessed_by.contents if spec.blessed_by else (),
    )


def to_waiver(document: WaiverDoc) -> Waiver:
    """Return a waiver as the rules read it."""
    spec = document.spec
    return Waiver(
        name=document.metadata.name,
        rules=spec.rules,
        targets=spec.targets,
        owner=spec.owner,
        reason=spec.reason,
        expires=spec.expires,
        image=spec.match.image,
        components=_constraints(spec.match.components),
    )


_SKUS: dict[tuple[int, str], tuple[Gpus, tuple[str, ...]]] = {}
"""Resolved names by table; the table is held, so that its id stays valid."""


def _resolve_skus(name: str, gpus: Gpus) -> tuple[str, ...]:
    """Return the names of pools that a GPU name means: a SKU, or a family and all its members.

    A name of every slice stays one, for each of them: ``H100-SXM5-80GB/mig-*``.
    """
    key = (id(gpus), name)
    if key not in _SKUS:
        if len(_SKUS) >= _MAX_SKUS:
            _SKUS.clear()
        _SKUS[key] = (gpus, _find_skus(name, gpus))
    return _SKUS[key][1]


def _find_skus(name: str, gpus: Gpus) -> tuple[str, ...]:
    base, slices = split_any_slice(name)
    if slices:
        return tuple(sku + ANY_SLICE for sku in _find_skus(base, gpus))
    try:
        gpu = resolve_gpu(name, gpus)
    except BadInput:
        return (name,)
    if not gpu.product or gpu.name in gpus.gpus:
        return (gpu.sku,)
    words = set(normalise(gpu.name).split("-"))
    members = [
        replace(member, mig=gpu.mig).sku
        for member in gpus.gpus.values()
        if member.capability == gpu.capability and words <= set(normalise(member.name).split("-"))
    ]
    return (gpu.sku, *members)


def _pool(spec: PoolSpec, gpus: Gpus) -> Pool:
    stated = _stated(spec)
    stated["gpu"] = resolve_gpu(spec.gpu, gpus)
    stated["driver"] = parse_version("driver", spec.driver)
    if spec.platform:
        stated["platform"] = read_platform(spec.platform, "platform")
    if spec.node:
        stated["node"] = read_node(spec.node, "node")
    return Pool(**stated)


def to_policy(spec: PolicySpec) -> Policy:
    """Return the policy of a target."""
    canary = _stated(spec.canary)
    canary["max_age_s"] = _seconds(canary.pop("max_age"))
    canary["imported"] = tuple(spec.canary.imported.items())
    policy = {name: getattr(spec, name) for name in Policy.__struct_fields__}
    return Policy(**policy | {"canary": CanaryPolicy(**canary)})


def _stated(spec: Struct) -> dict[str, Any]:
    """Return the members of a spec that its document states, or that have a default."""
    return {name: value for name, value in asdict(spec).items() if value is not UNSET}


def _constraints(components: dict[str, str]) -> dict[str, Constraint]:
    return {name: parse_constraint(name, text) for name, text in components.items()}


@lru_cache(maxsize=256)
def _seconds(text: str) -> int:
    return int(parse_duration(text).total_seconds())
