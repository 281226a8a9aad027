"""Turn command-line options into the request bodies of a question."""

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
    """One stack on a target, or on one or more pools.

    Attributes:
        bodies: requests to the gate; they differ only in their pool.
        file: the lockfile, if there are several.
        places: component to its place in a file.
        records: records of wheels measured for the question.
    """

    bodies: tuple[dict[str, Any], ...]
    file: str = ""
    places: Mapping[str, Place] = {}
    records: tuple[Record, ...] = ()


class Asked(Struct, frozen=True):
    """All questions of a command.

    Attributes:
        questions: one, or one per lockfile that was not skipped.
        notes: unknowns of an observed host, and skipped lockfiles.
    """

    questions: tuple[Question, ...]
    notes: tuple[str, ...] = ()


class _Where(NamedTuple):
    """Pools, changes of ``--set``, and the stack of options and probe."""

    pools: list[dict[str, Any]]
    changes: dict[str, Any]
    stack: dict[str, Any]
    notes: tuple[str, ...] = ()


def read_questions(
    args: argparse.Namespace,
    facts: Callable[[], Facts],
    target_pools: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
) -> Asked:
    """Join options, probe and nvidia-smi; options win.

    Args:
        args: arguments of ``compatgate check``.
        facts: function that loads the facts; called only for observed hosts, files and images.
        target_pools: function that reads the target's pools; called only for files and images
            that may hold a part for each platform.

    Raises:
        BadInput: stack, target or pool is missing, or an option is malformed.
    """
    where = _read_where(args, facts)
    if not (args.lock or args.sbom or args.image):
        if not where.stack and not args.stack:
            raise BadInput("no stack is named", hint="--stack cuda=12.4,cudnn=9.1.0,arch=sm_80")
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
                notes.append(f"skipped {lock}: it has no GPU components")
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
            "no target or pool is named", hint="--target NAME, or --pool driver=535.104.05,gpu=L4"
        )
    return _Where(pools, changes, stack, notes)


def _bodies(
    args: argparse.Namespace, where: _Where, stack: Mapping[str, Any], image: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """Return the request bodies, one per pool."""
    common: dict[str, Any] = {"stack": stack, **image}
    if where.changes:
        common["set"] = where.changes
    if args.target:
        return ({"target": args.target, **common},)
    return tuple({"pool": pool, **common} for pool in named(where.pools))


def read_stack(texts: Iterable[str]) -> dict[str, Any]:
    """Merge the values of ``--stack``.

    Raises:
        BadInput: a value is malformed, or names a component twice.
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
        BadInput: an item is not ``name=value``.
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
    """Read ``driver=535.104.05,gpu=A100-SXM4-80GB,os=linux`` into request form.

    Raises:
        BadInput: an item is not ``name=value``, or the pool is empty.
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
    """Return the pools with unique names."""
    if len(pools) < 2:
        return list(pools)
    named: list[Mapping[str, Any]] = []
    for number, pool in enumerate(pools, 1):
        taken = {other["name"] for other in named}
        name = str(pool.get("name") or pool.get("gpu") or "pool").lower()
        named.append({**pool, "name": f"{name}-{number}" if name in taken else name})
    return named
