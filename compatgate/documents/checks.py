"""Check documents beyond their schema.

Components, constraints, GPUs, rules and dates must exist. A new waiver names its stacks, and lasts
no longer than the target's policy allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from compatgate.core.components import MAX_KEYS, OF_BUILDS, resolve_component
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import can_be_cut, resolve_gpu, split_any_slice
from compatgate.core.matrix import ANY_TARGET
from compatgate.core.needs import parse_needs
from compatgate.core.node import read_node, read_node_value, read_platform
from compatgate.core.rules import BY_ID
from compatgate.core.versions import parse_version
from compatgate.documents.quantities import parse_duration
from compatgate.documents.sources import DocumentProblem, FieldPath, suggest_name
from compatgate.documents.specs import (
    RULE_PATTERN,
    CanarySpec,
    TargetDoc,
    WaiverDoc,
    WaiverMatch,
    WaiverPolicySpec,
)
from compatgate.documents.text import RawDocument, get_at
from compatgate.errors import BadInput

Mistakes = Iterator[DocumentProblem]
_NAMESPACES = re.compile(r"[a-z0-9*?\[\]!-]{1,253}")
"""Characters of namespaces' names (RFC 1123 labels) and of globs."""


def check(raw: RawDocument, kind: str, gpus: Gpus) -> Mistakes:
    """Yield every mistake of meaning in one document."""
    yield from _CHECKS[kind](raw, gpus)


def check_target_refs(raw: RawDocument, known: Collection[str]) -> Mistakes:
    """Yield every missing target that an entry or a waiver names."""
    for index, name in _list_texts(raw.value, "spec", "targets"):
        if name != ANY_TARGET and name not in known:
            yield raw.problem(
                ("spec", "targets", index),
                f"target {name!r} does not exist, neither here nor in the database",
                value=name,
                hint=suggest_name(name, known),
            )


def _check_target(raw: RawDocument, gpus: Gpus) -> Mistakes:
    pools = get_at(raw.value, "spec", "pools")
    readers: dict[str, Callable[[str], object]] = {
        "gpu": lambda text: resolve_gpu(text, gpus),
        "driver": lambda text: parse_version("driver", text),
        "platform": lambda text: read_platform(text, "platform"),
    }
    names: dict[str, int] = {}
    for index, pool in enumerate(pools if isinstance(pools, list) else ()):
        if not isinstance(pool, dict):
            continue
        path: FieldPath = ("spec", "pools", index)
        for field, read in readers.items():
            yield from _check_value(raw, (*path, field), pool.get(field), read)
        node = pool.get("node")
        for part, value in node.items() if isinstance(node, dict) else ():
            try:
                read_node_value(part, value, part)
            except BadInput as error:
                where = (*path, "node", part)
                yield raw.problem(where, error.problem, value=value, hint=error.hint)
        name = pool.get("name")
        if isinstance(name, str) and names.setdefault(name, index) != index:
            what = f"the pool {name!r} is stated twice"
            yield raw.problem((*path, "name"), what, value=name, hint="name each pool once")
    for index, glob in _list_texts(raw.value, "spec", "match", "namespaces"):
        if glob and not _NAMESPACES.fullmatch(glob):
            yield raw.problem(
                ("spec", "match", "namespaces", index),
                f"no namespace can match {glob[:80]!r}",
                value=glob,
                hint="lower-case letters, digits and -, with * ? [...] as wildcards; one per item",
            )
    policy = get_at(raw.value, "spec", "policy")
    if isinstance(policy, dict):
        yield from _check_effects(raw, policy)
    for at in (("canary", "maxAge"), ("waivers", "maxDuration")):
        age: FieldPath = ("spec", "policy", *at)
        yield from _check_value(raw, age, get_at(raw.value, *age), parse_duration)
    for suites in ("suites", "soak"):
        yield from _check_repeats(raw, ("spec", "policy", "canary", suites))
    yield from _check_imported(raw)


def _check_effects(raw: RawDocument, policy: dict[str, Any]) -> Mistakes:
    """Yield what has no effect, since another part of the policy asks for nothing of the kind."""
    if policy.get("entries") == "strict" and policy.get("requireEntry", False) is False:
        yield raw.problem(
            ("spec", "policy", "entries"),
            "has no effect: the policy requires no entry",
            value="strict",
            hint="add requireEntry: true, or omit entries",
        )

    if policy.get("approvers") and policy.get("approvals", 1) == 1:
        yield raw.problem(
            ("spec", "policy", "approvers"),
            "has no effect: the policy requires one person, the author",
            value=policy["approvers"],
            hint="add approvals: 2, or omit approvers",
        )


def _check_imported(raw: RawDocument) -> Mistakes:
    """Yield sources for a suite that the policy does not ask for, which have no effect."""
    canary = get_at(raw.value, "spec", "policy", "canary")
    if not isinstance(canary, dict) or not isinstance(canary.get("imported"), dict):
        return
    suites = canary.get("suites", list(CanarySpec().suites))
    for suite in canary["imported"]:
        if isinstance(suites, list) and suite not in suites:
            yield raw.problem(
                ("spec", "policy", "canary", "imported", suite),
                f"has no effect: the policy does not require the suite {suite!r}",
                value=suite,
                hint="add the suite to canary.suites, or remove it here",
            )


def _check_entry(raw: RawDocument, gpus: Gpus) -> Mistakes:
    yield from _check_components(raw, _ENTRY_COMPONENTS)
    for index, name in _list_texts(raw.value, "spec", "gpus"):
        yield from _check_value(
            raw, ("spec", "gpus", index), name, partial(_check_product, gpus=gpus)
        )
    yield from _check_repeats(raw, ("spec", "targets"))
    yield from _check_repeats(raw, ("spec", "gpus"))
    needs = get_at(raw.value, "spec", "needs")
    if isinstance(needs, list) and needs:
        yield from _check_value(raw, ("spec", "needs"), "+".join(map(str, needs)), parse_needs)
    yield from _check_repeats(raw, ("spec", "needs"))


def _check_product(name: str, gpus: Gpus) -> None:
    base, slices = split_any_slice(name)
    gpu = resolve_gpu(base, gpus)
    if not gpu.product:
        what = f"{name!r} is a compute capability; an entry is for products"
        raise BadInput(what, value=name, hint="for example A100, A100-SXM4-80GB or L4")
    if slices and gpu.mig:
        what = f"{name!r} names a MIG profile and every slice"
        raise BadInput(what, value=name, hint=f"{gpu.name}/mig-{gpu.mig} or {gpu.name}/mig-*")
    if slices and not can_be_cut(gpu, gpus):
        what = f"{name!r} names MIG slices, and the facts know of no MIG on {gpu.name}"
        raise BadInput(what, value=name, hint=f"write {gpu.name} for the whole GPU")


def _check_waiver(raw: RawDocument, gpus: Gpus) -> Mistakes:
    for index, rule in _list_texts(raw.value, "spec", "rules"):
        path: FieldPath = ("spec", "rules", index)
        if (known := BY_ID.get(rule)) and known.not_waivable:
            why = f"{rule} {known.not_waivable}; it cannot be waived"
            yield raw.problem(path, why, value=rule)
        elif rule not in BY_ID and re.search(RULE_PATTERN, rule):
            hint = suggest_name(rule, BY_ID)
            yield raw.problem(path, f"rule {rule} does not exist", value=rule, hint=hint)
    for name in ("owner", "reason"):
        said = get_at(raw.value, "spec", name)
        if isinstance(said, str) and said and not said.strip():
            yield raw.problem(("spec", name), "must not be blank", value=said)
    path = ("spec", "match", "components")
    yield from _check_components(raw, path)
    components = get_at(raw.value, *path)
    for key in components if isinstance(components, dict) else ():
        if _canonical_name(key) == "driver":
            what = "a waiver matches stacks, and the driver belongs to the pool"
            yield raw.problem((*path, key), what, hint="name the targets instead")
    match = get_at(raw.value, "spec", "match")
    if get_at(match, "everything") is True:
        for name in filter(match.get, ("image", "components")):
            what = f"match names everything and {name}"
            hint = f"leave out everything, or {name}"
            yield raw.problem(("spec", "match", "everything"), what, value=True, hint=hint)
    yield from _check_value(
        raw, ("spec", "expires"), get_at(raw.value, "spec", "expires"), _check_day
    )
    yield from _check_repeats(raw, ("spec", "rules"))
    yield from _check_repeats(raw, ("spec", "targets"))


_ENTRY_COMPONENTS: FieldPath = ("spec", "components")


def _check_components(raw: RawDocument, path: FieldPath) -> Mistakes:
    stated = get_at(raw.value, *path)
    if not isinstance(stated, dict):
        return
    if len(stated) > MAX_KEYS:
        yield raw.problem(path, f"too many components: {len(stated)}", hint=f"at most {MAX_KEYS}")
        return
    seen: dict[str, str] = {}
    for key, text in stated.items():
        try:
            resolved = resolve_component(key)
        except BadInput as error:
            yield raw.problem((*path, key), error.problem, value=key, hint=error.hint)
            continue
        name = resolved.component.name
        if name in OF_BUILDS and path == _ENTRY_COMPONENTS:
            what = f"{key} is what a build is made with: no run measures it, so no entry names it"
            yield raw.problem((*path, key), what, value=key, hint=f"omit {key}")
        if resolved.cuda:
            tag = f"cu{''.join(map(str, resolved.cuda))}"
            hint = f"write {name}, and the build with the version, like ==9.1.0+{tag}"
            what = f"{key} names the package of one CUDA build, not a component"
            yield raw.problem((*path, key), what, value=key, hint=hint)
        if seen.setdefault(name, key) != key:
            what = f"{key} and {seen[name]} are both {name}"
            yield raw.problem((*path, key), what, value=key, hint="name each component once")
        yield from _check_value(raw, (*path, key), text, partial(_check_constraint, name))


def _check_constraint(component: str, text: str) -> None:
    if parse_constraint(component, text).is_empty:
        hint = "the lower bound first, like >=535.104.05,<536"
        raise BadInput(f"no version of {component} is {text}", value=text, hint=hint)


def to_canonical(body: dict[str, Any], kind: str, gpus: Gpus) -> dict[str, Any]:
    """Return the same document with canonical component names (``pytorch`` becomes ``torch``).

    A pool that names no processor gets the processor of its GPU: GH200 has an Arm processor.
    """
    if kind == "Target":
        pools = get_at(body, "spec", "pools")
        if not isinstance(pools, list):
            return body
        found = []
        for pool in pools:
            changed = pool
            if isinstance(pool, dict):
                changed = dict(pool)
                node, platform = pool.get("node"), pool.get("platform")
                if "cpu" not in pool and isinstance(pool.get("gpu"), str):
                    cpu = resolve_gpu(pool["gpu"], gpus).cpu
                    changed |= {"cpu": cpu} if cpu else {}
                if isinstance(node, dict):
                    changed["node"] = read_node(node, "node")
                if isinstance(platform, str):
                    changed["platform"] = read_platform(platform, "platform")
            found.append(changed)
        return body if found == pools else _replace_at(body, ("spec", "pools"), found)
    path = {"Entry": ("spec",), "Waiver": ("spec", "match")}.get(kind)
    if path is None:
        return body
    components = get_at(body, *path, "components")
    if not isinstance(components, dict) or all(_canonical_name(key) == key for key in components):
        return body
    renamed = {_canonical_name(key): text for key, text in components.items()}
    return _replace_at(body, (*path, "components"), renamed)


def _canonical_name(key: str) -> str | None:
    try:
        return resolve_component(key).component.name
    except BadInput:
        return None


def _replace_at(body: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    head, *rest = path
    return {**body, head: _replace_at(body[head], tuple(rest), value) if rest else value}


def _check_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        what = f"{text!r} is not a date"
        raise BadInput(what, value=text, hint="for example 2027-01-31") from None


def _check_value(
    raw: RawDocument, path: FieldPath, value: Any, read: Callable[[str], object]
) -> Mistakes:
    """Yield a reader's error about a text, or a number that quotes would not mend."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return
    try:
        read(value if isinstance(value, str) else raw.written(path) or str(value))
    except BadInput as error:
        yield raw.problem(path, error.problem, value=value, hint=error.hint)


def _check_repeats(raw: RawDocument, path: FieldPath) -> Mistakes:
    seen: set[str] = set()
    for index, text in _list_texts(raw.value, *path):
        if text in seen:
            yield raw.problem((*path, index), f"{text} is stated twice", value=text)
        seen.add(text)


def _list_texts(value: Any, *path: str | int) -> Iterator[tuple[int, str]]:
    found = get_at(value, *path)
    for index, item in enumerate(found if isinstance(found, list | tuple) else ()):
        if isinstance(item, str):
            yield index, item


_CHECKS: dict[str, Callable[[RawDocument, Gpus], Mistakes]] = {
    "Target": _check_target,
    "Entry": _check_entry,
    "Waiver": _check_waiver,
}


class WaiverLimit(Struct, frozen=True):
    """The last possible day of a waiver, in UTC, which follows from the longest duration.

    It is of the target whose policy sets the limit; empty for the default.
    """

    day: date
    longest: str
    target: str = ""


def waiver_limit(
    names: Iterable[str], targets: Mapping[str, TargetDoc], now: datetime
) -> WaiverLimit:
    """Return the latest end of a waiver for some targets: the earliest that one of them allows.

    ``*`` means all targets, future ones included.
    """
    named = list(names)
    usual = _limit_of_policy(WaiverPolicySpec(), now)
    every = ANY_TARGET in named
    found = [
        usual
        if target.spec.policy.waivers is UNSET
        else _limit_of_policy(target.spec.policy.waivers, now, n)
        for n, target in targets.items()
        if every or n in named
    ]
    return min([*found, usual] if every or not found else found, key=lambda one: one.day)


def _limit_of_policy(policy: WaiverPolicySpec, now: datetime, target: str = "") -> WaiverLimit:
    day = (now + parse_duration(policy.max_duration)).date()
    return WaiverLimit(day, policy.max_duration, target)


def is_within_limit(before: object, after: WaiverDoc) -> bool:
    """Return whether a waiver is unchanged, or only ends earlier."""
    if not isinstance(before, WaiverDoc):
        return False
    expires = max(before.spec.expires, after.spec.expires)
    return replace(after, spec=replace(after.spec, expires=expires)) == before


_SETS = re.compile(r"\[[^\]]*\]|[^A-Za-z0-9]")
_REPOSITORY = re.compile(r"[A-Za-z0-9][^*?\[]*/")
_SHORTEST_NAME = 3
_LOWEST, _HIGHEST = "0.1", "99.9"


def _excludes_stacks(match: WaiverMatch) -> bool:
    """Return whether a waiver's match says which stacks it is for.

    A glob without a part of a name (``?*``, ``*:*``) fits every image, and a constraint that the
    lowest and the highest version satisfy (``>0``) every stack with the component.
    """
    image = match.image or ""
    if _REPOSITORY.match(image) or len(_SETS.sub("", image)) >= _SHORTEST_NAME:
        return True
    return any(
        not all(
            parse_constraint(name, text).allows(parse_version("cuda", version))
            for version in (_LOWEST, _HIGHEST)  # drivers have another form, and the same order
        )
        for name, text in match.components.items()
    )


def waiver_problems(
    raw: RawDocument, waiver: WaiverDoc, latest: WaiverLimit
) -> Iterator[DocumentProblem]:
    """Yield the mistakes for which a new or changed waiver cannot be stored."""
    if (
        not _excludes_stacks(waiver.spec.match)
        and get_at(raw.value, "spec", "match", "everything") is not True
    ):
        match = waiver.spec.match
        stated = [*([match.image] if match.image else []), *map(" ".join, match.components.items())]
        what = (
            f"{', '.join(stated)} fits any" if stated else "names neither an image nor components"
        )
        yield raw.problem(
            ("spec", "match"),
            f"{what}: the waiver is for every stack of its targets",
            hint="name them, or state match: {everything: true}",
        )
    expires = waiver.spec.expires
    if expires > latest.day.isoformat():
        whose = f"the policy of {latest.target}" if latest.target else "the default"
        yield raw.problem(
            ("spec", "expires"),
            f"{expires} is too late: a waiver lasts at most {latest.longest} from today",
            value=expires,
            hint=f"{latest.day} is the latest day; {whose} limits it (policy.waivers.maxDuration)",
        )
