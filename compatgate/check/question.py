"""Turn the options of the command line into the bodies of one question to the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from compatgate.check.reports import Place
from compatgate.core.request import POOL_CHANGES, parse_changes_text
from compatgate.core.stack import canonical_key, parse_stack_text
from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.core.facts import Facts
    from compatgate.core.facts.records import Record


class Question(Struct, frozen=True):
    """One stack on one target, or on one or more pools.

    Attributes:
        bodies: requests to the gate; they differ in their pool only.
        file: the lockfile, where several are asked about.
        places: component to where it is locked.
        records: of wheels that were measured for it.
    """

    bodies: tuple[dict[str, Any], ...]
    file: str = ""
    places: Mapping[str, Place] = {}
    records: tuple[Record, ...] = ()


class Asked(Struct, frozen=True):
    """Everything that was asked at once.

    Attributes:
        questions: one; or one per lockfile, without those that were passed over.
        notes: what could not be told of the host that was observed, and what was passed over.
    """

    questions: tuple[Question, ...]
    notes: tuple[str, ...] = ()


class _Where(NamedTuple):
    """Pools, changes of ``--set``, and the stack that options and a probe state."""

    pools: list[dict[str, Any]]
    changes: dict[str, Any]
    stack: dict[str, Any]
    notes: tuple[str, ...] = ()


def read_questions(
    args: argparse.Namespace,
    facts: Callable[[], Facts],
    target_pools: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
) -> Asked:
    """Join what the options, the probe and nvidia-smi say; the options win.

    Args:
        args: of ``compatgate check``.
        facts: gives the facts; asked for only when a host was observed or a file or image is read.
        target_pools: gives the pools of the target; asked for only when what is read may hold a
            part for each platform.

    Raises:
        BadInput: nothing to check, nowhere to run it, or a malformed option.
    """
    where = _read_where(args, facts)
    if not (args.lock or args.sbom or args.image):
        if not where.stack and not args.stack:
            raise BadInput("say what is to run", hint="--stack cuda=12.4,cudnn=9.1.0,arch=sm_80")
        if not (args.read_wheels or args.cached_wheels):
            return Asked((Question(_bodies(args, where, where.stack, {})),), where.notes)
    from compatgate.check.stack_sources import read_platforms

    asked = target_pools if args.target else None
    platforms = read_platforms(where.pools, asked, where.changes, facts().gpus)
    shown: dict[str, Any] = {}
    image: dict[str, str] = {}
    if args.image:
        from compatgate.check.stack_sources import read_image_stack

        shown, image = read_image_stack(args.image, platforms, facts())
    questions: list[Question] = []
    notes = list(where.notes)
    for lock in args.lock or [None]:
        stack, places, origins = where.stack, {}, {}
        if lock or args.sbom:
            from compatgate.check.stack_sources import read_files

            written = read_files(lock, args.sbom, platforms, stack, facts().packages)
            if written.unrelated and args.skip_unrelated and not (args.sbom or args.image):
                notes.append(f"{lock} holds no component of a GPU stack: it is passed over")
                continue
            stack, places, origins = written.stack, written.places, written.origins
        if args.image:
            from compatgate.discovery.stated_stack import prefer_shown

            stack = prefer_shown(shown, stack, "the image")
        file = lock if lock and len(args.lock) > 1 else ""
        records: tuple[Record, ...] = ()
        if args.read_wheels or args.cached_wheels:
            from compatgate.check.wheels import read_wheels

            read = read_wheels(
                stack, origins, platforms.all, facts(), network=not args.cached_wheels
            )
            stack, records = read.stack, read.records
            notes += read.notes
        questions.append(Question(_bodies(args, where, stack, image), file, places, records))
    return Asked(tuple(questions), tuple(notes))


def _read_where(args: argparse.Namespace, facts: Callable[[], Facts]) -> _Where:
    stack = read_stack(args.stack)
    changes = read_changes(args.set)
    notes: tuple[str, ...] = ()
    pools = [read_pool(text) for text in args.pool]
    if args.probe or args.nvidia_smi or args.node_labels:
        from compatgate.check.host_sources import read_host

        observed = read_host(args, facts())
        notes = observed.notes
        stated = set(map(canonical_key, stack))
        stack = {
            **{k: v for k, v in observed.stack.items() if canonical_key(k) not in stated},
            **stack,
        }
        if not args.target:
            pools = observed.choose(pools)
        elif args.nvidia_smi or args.node_labels:
            changes = {**observed.as_changes(), **changes}
    if args.target and args.pool:
        raise BadInput("--target and --pool exclude each other", hint="--set changes a target's")
    if not args.target and not pools:
        raise BadInput(
            "say where it is to run", hint="--target NAME, or --pool driver=535.104.05,gpu=L4"
        )
    return _Where(pools, changes, stack, notes)


def _bodies(
    args: argparse.Namespace, where: _Where, stack: Mapping[str, Any], image: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """Return the request, once for each pool."""
    common: dict[str, Any] = {"stack": stack, **image}
    if where.changes:
        common["set"] = where.changes
    if args.target:
        return ({"target": args.target, **common},)
    return tuple({"pool": pool, **common} for pool in named(where.pools))


def read_stack(texts: Iterable[str]) -> dict[str, Any]:
    """Merge the values of ``--stack``.

    Raises:
        BadInput: malformed, or a component in two of them.
    """
    stack: dict[str, Any] = {}
    for text in texts:
        for name, value in _at("stack", text).items():
            if canonical_key(name) in map(canonical_key, stack):
                problem = f"{canonical_key(name)} is stated twice"
                raise BadInput(problem, field=f"stack.{name}", hint="name each component once")
            stack[name] = value
    return stack


def read_changes(texts: Iterable[str]) -> dict[str, Any]:
    """Merge the values of ``--set``; an empty value becomes None, which removes.

    Raises:
        BadInput: an item that is not ``name=value``.
    """
    changes: dict[str, Any] = {}
    for text in texts:
        for name, value in parse_changes_text(text).items():
            if value is None and name in POOL_CHANGES:
                raise BadInput("a property of the pool cannot be removed", field=f"set.{name}")
            if name in changes:
                raise BadInput(f"{name} is stated twice", field=f"set.{name}")
            changes[name] = value
    return changes


def read_pool(text: str) -> dict[str, Any]:
    """Read ``driver=535.104.05,gpu=A100-SXM4-80GB,os=linux`` into the form of requests.

    Raises:
        BadInput: an item that is not ``name=value``, or an empty pool.
    """
    pool = _at("pool", text)
    if not pool:
        raise BadInput("is empty", field="pool", hint="like driver=535.104.05,gpu=A100-SXM4-80GB")
    if isinstance(pool.get("count"), str) and pool["count"].isdecimal():
        pool["count"] = int(pool["count"])
    return pool


def _at(field: str, text: str) -> dict[str, Any]:
    try:
        return parse_stack_text(text)
    except BadInput as error:
        if field == "pool":
            error.hint = "like driver=535.104.05,gpu=A100-SXM4-80GB"
        raise error.at(field) from None


def named(pools: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Return pools with names that tell them apart."""
    if len(pools) < 2:
        return list(pools)
    named: list[Mapping[str, Any]] = []
    for number, pool in enumerate(pools, 1):
        taken = {other["name"] for other in named}
        name = str(pool.get("name") or pool.get("gpu") or "pool").lower()
        named.append({**pool, "name": f"{name}-{number}" if name in taken else name})
    return named
