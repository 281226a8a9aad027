"""Turn command-line options and an observed host into the request bodies of a question.

A host is observed by a probe, by the output of nvidia-smi, or by node labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from compatgate.core.gpus import find_gpu, resolve_gpu
from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.performance import near_names
from compatgate.core.request import NEEDED_OF_POOL, POOL_CHANGES, parse_changes_text
from compatgate.core.stack import canonical_key, is_repeated, parse_stack_text
from compatgate.errors import BadInput
from compatgate.formats.reports import Place
from compatgate.kit.cli.output import name_input, read_text

if TYPE_CHECKING:
    import argparse

    from compatgate.check.stack_sources import Platforms
    from compatgate.core.facts import Facts
    from compatgate.core.facts.nvidia import Gpus
    from compatgate.core.facts.records import Record
    from compatgate.discovery.lockfiles.interface import PackageOrigin
    from compatgate.discovery.probe import Probe


_POOL_EXAMPLE = "driver=535.104.05,gpu=A100-SXM4-80GB"


class Question(Struct, frozen=True):
    """One stack on a target, or on pools: requests to the gate that differ only in their pool."""

    bodies: tuple[dict[str, Any], ...]
    file: str = ""
    """The lockfile, if there are several."""
    places: Mapping[str, Place] = {}
    records: tuple[Record, ...] = ()


class Questions(Struct, frozen=True):
    """All questions of a command: one, or one per lockfile that was not skipped."""

    questions: tuple[Question, ...]
    notes: tuple[str, ...] = ()


class _Location(NamedTuple):
    """Pools, changes of ``--set``, and the stack of options and probe."""

    pools: list[dict[str, Any]]
    changes: dict[str, Any]
    stack: dict[str, Any]
    notes: tuple[str, ...] = ()


def read_questions(
    args: argparse.Namespace,
    facts: Callable[[], Facts],
    target_pools: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
) -> Questions:
    """Join options, probe and nvidia-smi; options win.

    ``target_pools`` reads the target's pools; it is called only for files and images that may hold
    a part for each platform.
    """
    where = _read_location(args, facts)
    if args.image and args.dockerfile:
        hint = "--image once the image is built"
        raise BadInput("--image and --dockerfile cannot be used together", hint=hint)
    if (args.build_arg or args.build_stage) and not args.dockerfile:
        raise BadInput("--build-arg and --build-stage need --dockerfile")
    if not (args.lock or args.sbom or args.image or args.dockerfile):
        if not where.stack and not args.stack:
            raise BadInput("no stack is given", hint="--stack cuda=12.4,cudnn=9.1.0,arch=sm_80")
        if not (args.read_wheels or args.cached_wheels):
            return Questions((Question(_bodies(args, where, where.stack, {})),), where.notes)
    from compatgate.check.stack_sources import read_platforms

    asked = target_pools if args.target else None
    platforms = read_platforms(where.pools, asked, where.changes, facts().gpus)
    notes = list(where.notes)
    questions = tuple(_read_files(args, where, platforms, facts, notes))
    return Questions(questions, tuple(notes))


def _read_files(
    args: argparse.Namespace,
    where: _Location,
    platforms: Platforms,
    facts: Callable[[], Facts],
    notes: list[str],
) -> Iterator[Question]:
    """Yield the question about each lockfile, joined with image, Dockerfile and bill of materials.

    Image and Dockerfile are read once.
    """
    from compatgate.check.stack_sources import read_dockerfile_stack, read_files, read_image_stack
    from compatgate.discovery.stated_stack import prefer_detected, prefer_stated

    detected, image = read_image_stack(args.image, platforms, facts()) if args.image else ({}, {})
    built = None
    if args.dockerfile:
        options = args.build_arg, args.build_stage
        built = read_dockerfile_stack(args.dockerfile, *options, platforms, facts())
    for lock in args.lock or [None]:
        stack = where.stack
        places: Mapping[str, Place] = {}
        origins: Mapping[str, PackageOrigin] = {}
        if lock or args.sbom:
            written = read_files(lock, args.sbom, platforms, stack, facts().packages)
            others = args.sbom or args.image or args.dockerfile
            if written.unrelated and args.skip_unrelated and not others:
                notes.append(f"skipped {lock}: it has no GPU components")
                continue
            stack, places, origins = written.stack, written.places, written.origins
        if args.image:
            stack = prefer_detected(detected, stack)
        if built:
            stack = prefer_stated(built.stack, stack, args.dockerfile)
            places = {**built.places, **places}
        records: tuple[Record, ...] = ()
        if args.read_wheels or args.cached_wheels:
            from compatgate.check.wheels import read_wheels

            read = read_wheels(
                stack,
                origins,
                platforms.all,
                facts(),
                network=not args.cached_wheels,
                one_question=not args.set,  # what is set may be another CUDA
            )
            stack, records = read.stack, read.records
            notes += read.notes
        file = lock if lock and len(args.lock) > 1 else ""
        yield Question(_bodies(args, where, stack, image), file, places, records)


def _read_location(args: argparse.Namespace, facts: Callable[[], Facts]) -> _Location:
    stack = read_stack(args.stack)
    changes = read_changes(args.set)
    notes: tuple[str, ...] = ()
    pools = [read_pool(text) for text in args.pool]
    if args.probe or args.nvidia_smi or args.node_labels:
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
        what = "--target and --pool cannot be used together"
        raise BadInput(what, hint="use --set to change the pools of a target")
    if not args.target and not pools:
        raise BadInput(
            "no target or pool is given", hint="--target NAME, or --pool driver=535.104.05,gpu=L4"
        )
    return _Location(pools, changes, stack, notes)


def _bodies(
    args: argparse.Namespace, where: _Location, stack: Mapping[str, Any], image: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    common: dict[str, Any] = {"stack": stack, **image}
    if where.changes:
        common["set"] = where.changes
    if args.target:
        return ({"target": args.target, **common},)
    return tuple({"pool": pool, **common} for pool in name_pools(where.pools))


def read_stack(texts: Iterable[str]) -> dict[str, Any]:
    """Merge the values of ``--stack``."""
    stack: dict[str, Any] = {}
    for text in texts:
        for name, value in _parse_field("stack", text).items():
            if any(is_repeated(name, other) for other in stack):
                problem = f"{canonical_key(name)} is stated twice"
                raise BadInput(problem, field=f"stack.{name}", hint="name each component once")
            stack[name] = value
    return stack


def read_changes(texts: Iterable[str]) -> dict[str, Any]:
    """Merge the values of ``--set``; an empty value becomes None, which removes."""
    changes: dict[str, Any] = {}
    for text in texts:
        for name, value in parse_changes_text(text).items():
            if value is None and name in NEEDED_OF_POOL:
                raise BadInput("a property of the pool cannot be removed", field=f"set.{name}")
            if name in changes:
                raise BadInput(f"{name} is stated twice", field=f"set.{name}")
            changes[name] = value
    return changes


def read_pool(text: str) -> dict[str, Any]:
    """Read ``driver=535.104.05,gpu=A100-SXM4-80GB,os=linux`` into request form."""
    pool = _parse_field("pool", text)
    if not pool:
        raise BadInput("is empty", field="pool", hint=f"for example {_POOL_EXAMPLE}")
    if isinstance(pool.get("count"), str) and pool["count"].isdecimal():
        pool["count"] = int(pool["count"])
    node: dict[str, Any] = {}
    for key in list(pool):  # a key names a part of the nodes, or a property of the pool
        part = key.lower().replace("_", "-")
        if part in NODE_COMPONENTS:
            if part in node:
                raise BadInput(f"{part} is stated twice", field=f"pool.{key}")
            node[part] = pool.pop(key)
            continue
        near = near_names(part, POOL_CHANGES, cutoff=0.75)
        if near and near[0] in NODE_COMPONENTS:
            raise BadInput("unknown key", field=f"pool.{key}", hint=f"did you mean {near[0]}?")
    return {**pool, "node": node} if node else pool


def _parse_field(field: str, text: str) -> dict[str, Any]:
    example = {"example": _POOL_EXAMPLE} if field == "pool" else {}
    try:
        return parse_stack_text(text, **example)
    except BadInput as error:
        raise error.at(field) from None


def name_pools(pools: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the pools with unique names."""
    if len(pools) < 2:
        return list(pools)
    named: list[Mapping[str, Any]] = []
    for number, pool in enumerate(pools, 1):
        taken = {other["name"] for other in named}
        name = str(pool.get("name") or pool.get("gpu") or "pool").lower()
        named.append({**pool, "name": f"{name}-{number}" if name in taken else name})
    return named


class Host(Struct, frozen=True):
    """Observations of a host: a pool for each kind of GPU; a probe has a stack, too."""

    pools: tuple[dict[str, Any], ...]
    stack: dict[str, Any]
    notes: tuple[str, ...]
    gpus: Gpus

    def choose(self, stated: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the observed pools, overridden or selected by stated pools."""
        if not stated:
            return list(self.pools)
        if len(stated) > 1:
            hint = "the values of --pool override all pools of the host"
            raise BadInput("only one --pool can be combined with an observed host", hint=hint)
        changes = stated[0]
        pools = list(self.pools)
        if "gpu" in changes and pools:
            wanted = resolve_gpu(str(changes["gpu"]), self.gpus).sku
            found = ((pool, find_gpu(str(pool.get("gpu")), self.gpus)) for pool in pools)
            pools = [pool for pool, gpu in found if gpu and gpu.sku == wanted] or pools[:1]
        overridden = []
        for pool in pools or [{}]:
            node = {**pool.get("node", {}), **changes.get("node", {})}
            overridden.append({**pool, **changes, **({"node": node} if node else {})})
        return overridden

    def as_changes(self) -> dict[str, Any]:
        """Return the observed pool as changes to a target's pools."""
        if len(self.pools) > 1:
            names = ", ".join(str(pool.get("name")) for pool in self.pools)
            what = f"the host has several kinds of GPU: {names}"
            hint = "with --target, choose one with --set driver=..,gpu=.. instead"
            raise BadInput(what, field="--nvidia-smi or --node-labels", hint=hint)
        pool = self.pools[0]
        changes = {key: pool[key] for key in pool if key not in ("name", "count", "node")}
        return {**changes, **pool.get("node", {})}


def read_host(args: argparse.Namespace, facts: Facts) -> Host:
    """Read ``--probe``, and ``--nvidia-smi`` or ``--node-labels``, whose pools win.

    With a target, a probe gives only the stack; the others give driver and GPU of one of the
    target's nodes.
    """
    pools: tuple[dict[str, Any], ...] = ()
    stack: dict[str, Any] = {}
    notes: list[str] = []
    given = (args.probe, args.nvidia_smi, args.node_labels)
    if given.count("-") > 1:
        raise BadInput("standard input can be read only once", field="--probe")
    if args.nvidia_smi and args.node_labels:
        raise BadInput("--nvidia-smi and --node-labels cannot be used together")
    if args.probe:
        from compatgate.discovery.probe import read_probe

        document = read_probe(read_text(args.probe, "--probe"), origin=name_input(args.probe))
        pools, stack = tuple(document["pools"]), document["stack"]
        # without the conflicts that the stack turns into findings
        conflicts, findings = document.get("conflicts"), stack.get("conflicts")
        for one in conflicts if isinstance(conflicts, list) else ():
            message = str(one.get("message")) if isinstance(one, dict) else ""
            if message and not (isinstance(findings, list) and message in findings):
                notes.append(message)
    if args.nvidia_smi or args.node_labels:
        printed = read_printed(args, facts)
        pools = tuple(pool.to_body() for pool in printed.pools)
        notes += [*printed.host["notes"], *(conflict.message for conflict in printed.conflicts)]
    if not pools and not args.pool and not args.target:
        hint = "describe the pool with --pool driver=..,gpu=.."
        raise BadInput("the probe found no GPU", field=name_input(args.probe), hint=hint)
    return Host(pools, stack, tuple(dict.fromkeys(notes)), facts.gpus)


def read_printed(args: argparse.Namespace, facts: Facts) -> Probe:
    """Read ``--nvidia-smi`` or ``--node-labels``."""
    from compatgate.discovery.node_labels import LARGEST
    from compatgate.discovery.probe import probe_labels, probe_output

    if path := args.nvidia_smi:
        return probe_output(read_text(path, "--nvidia-smi"), facts, origin=name_input(path))
    path = args.node_labels
    text = read_text(path, "--node-labels", LARGEST)
    return probe_labels(text, facts, origin=name_input(path))
