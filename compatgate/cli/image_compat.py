"""Run ``compatgate image-compat``: NFD's image compatibility specs, beside images in registries."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, NotFound
from compatgate.kit.cli.parser import add_actions, run_action

if TYPE_CHECKING:
    import argparse

    from compatgate.core.facts import Facts
    from compatgate.core.matrix import Pool
    from compatgate.discovery.integrations.nfd_evaluate import RuleResult
    from compatgate.discovery.integrations.nfd_spec import Compatibility
    from compatgate.discovery.registry.artifacts import Attachment, ImageLocation

_EXAMPLES = """\
examples:
  compatgate inspect registry.example/team/app:1.2 --format nfd
  compatgate image-compat push registry.example/team/app:1.2
  nfd compat validate-node --image registry.example/team/app:1.2
  compatgate image-compat pull registry.example/team/app:1.2
  compatgate image-compat check spec.yaml --pool driver=580.82.07,gpu=H100-SXM5-80GB
"""
ACTIONS = {
    "push": (
        "compatgate.cli.image_compat:push",
        "attach a spec to an image in its registry: that of its stack, or a file's",
    ),
    "pull": ("compatgate.cli.image_compat:pull", "print the newest spec that is attached"),
    "check": ("compatgate.cli.image_compat:check", "say which rules of a spec hold on a pool"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit status is the action's."""
    return run_action(args, ACTIONS)


def add_push_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action: the image, and what is attached to it."""
    parser.add_argument("image", metavar="IMAGE", help="reference in a registry")
    parser.add_argument(
        "--platform",
        metavar="OS/CPU",
        help="platform in a multi-platform image (default: linux/amd64)",
    )
    parser.add_argument(
        "--file", metavar="FILE", help="attach this spec instead of the generated one"
    )
    parser.add_argument(
        "--index",
        action="store_true",
        help="attach to what the reference names, an index as well: nfd looks there unless it is"
        " told a platform",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the spec without attaching it"
    )


def run_push(args: argparse.Namespace) -> int:
    """Attach, unless the same spec is the newest already.

    Raises:
        BadInput: the reference is none, the file no spec, or there is no such platform.
        Inconclusive: no rule can be written for the image.
        Unavailable: the registry does not answer, or may not be written to.
    """
    from compatgate.discovery.registry.artifacts import open_location
    from compatgate.discovery.registry.limits import options_from_environment

    text, index = _read_spec_text(args)
    if args.dry_run:
        print(text, end="")
        return 0
    platform = None if args.index else args.platform or "linux/amd64"
    with open_location(args.image, options_from_environment()) as place:
        image = digest_in(place, platform)
        known = newest_spec(place, image)
        if known and known.data == text.encode():
            print(f"{known.digest} is attached already, and the same")
            return 0
        made = _attach_spec(place, image, text)
        print(f"{place.name.registry}/{place.name.repository}@{made} is attached to {image}")
    if index and platform:
        print(f"note: it belongs to one image of an index: nfd compat validate-node needs"
              f" --platform {platform}", file=sys.stderr)  # fmt: skip
    return 0


def _read_spec_text(args: argparse.Namespace) -> tuple[str, bool]:
    """Return the text, and whether the reference names an index."""
    from compatgate.catalog import load_facts
    from compatgate.check.stack_sources import read_image_reference
    from compatgate.discovery.integrations.nfd_spec import read_spec
    from compatgate.kit.cli.output import read_text

    if args.file:
        text = read_text(args.file, "--file")
        read_spec(text, origin=args.file)
        return text, False
    facts = load_facts()
    arm = bool(args.platform) and args.platform.startswith("linux/arm64")
    reading = read_image_reference(args.image, "aarch64" if arm else None, facts)
    return spec_text(reading.to_request(), reading.platform, facts), reading.index is not None


def _attach_spec(place: ImageLocation, image: str, text: str) -> str:
    from datetime import UTC, datetime

    from compatgate.discovery.integrations.nfd_spec import ARTIFACT_TYPE, LAYER_TYPE
    from compatgate.discovery.registry.artifacts import ArtifactLayer, attach

    title = {"org.opencontainers.image.title": "image-compatibility.yaml"}
    made = {CREATED: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return attach(
        place, image, ARTIFACT_TYPE, [ArtifactLayer(text.encode(), LAYER_TYPE, title)], made
    )


def add_pull_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action: the image."""
    parser.add_argument("image", metavar="IMAGE", help="reference in a registry")
    parser.add_argument("--platform", metavar="OS/CPU", help="platform in a multi-platform image")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="output file (default: standard output)"
    )


def run_pull(args: argparse.Namespace) -> int:
    """Print the newest spec as it was attached.

    Raises:
        NotFound: there is no such image, or nothing is attached.
        Unavailable: the registry does not answer, or refuses.
    """
    from compatgate.kit.cli.output import write_output

    write_output(args.output, pull_spec(args.image, args.platform).encode())
    return 0


_STATUS = {"pass": 0, "fail": 1, "unknown": 3}
_RANK = {"pass": 0, "unknown": 1, "fail": 2}


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action: the spec, where it is to hold, the form of the answer."""
    from compatgate.check.cli import add_where, add_who

    parser.epilog = (
        "exit status:\n  0  every rule holds   1  a rule fails   2  bad input   3  not all could be"
        " checked\n"
    )
    parser.add_argument(
        "spec", metavar="FILE|IMAGE", help="compatibility spec, or an image with one"
    )
    parser.add_argument("--platform", metavar="OS/CPU", help="platform in a multi-platform image")
    parser.add_argument("--tag", help="only sets with this tag")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="output format (default: text)"
    )
    add_where(parser.add_argument_group("where it is to hold"))
    add_who(parser.add_argument_group("who knows the target"))


def run_check(args: argparse.Namespace) -> int:
    """Answer rule by rule; the worst decides.

    Raises:
        BadInput: the spec is none, no set has the tag, or it is not said where.
        NotFound: nothing is attached to the image, or there is no such target.
    """
    from compatgate.catalog import load_facts
    from compatgate.discovery.integrations.nfd_evaluate import evaluate_spec
    from compatgate.discovery.integrations.nfd_spec import load_devices

    facts = load_facts(args.facts)
    sets = _read_sets(args)
    pools = _read_pools(args, facts)
    devices = load_devices()
    found = [(one, evaluate_spec(one, pools, facts.gpus, devices)) for one in sets]
    worst = [_worst(answers) for _, answers in found]
    outcome = max(worst, key=_RANK.__getitem__)
    note = ""
    if len(set(worst)) > 1:
        outcome = "unknown"
        note = "the format does not say whether all sets must hold or one; choose with --tag"
    if args.format == "json":
        _print_json(outcome, found, note)
    else:
        _print_text(outcome, found, note)
    return _STATUS[outcome]


def _read_sets(args: argparse.Namespace) -> tuple[Compatibility, ...]:
    from compatgate.discovery.integrations.nfd_spec import read_spec
    from compatgate.kit.cli.output import read_text

    local = args.spec == "-" or os.path.exists(args.spec)
    text = read_text(args.spec, "spec") if local else pull_spec(args.spec, args.platform)
    spec = read_spec(text, origin=args.spec)
    sets = tuple(one for one in spec.compatibilities if args.tag in (None, one.tag))
    if not any(one.rules for one in sets):
        tags = ", ".join(sorted({one.tag for one in spec.compatibilities if one.tag}))
        hint = f"tags: {tags}" if tags else ""
        raise BadInput("has no rules" + (f" with the tag {args.tag!r}" if args.tag else ""),
                       field=args.spec, hint=hint)  # fmt: skip
    return sets


def _read_pools(args: argparse.Namespace, facts: Facts) -> list[Pool]:
    from compatgate.check.deciders import pools_of
    from compatgate.check.host_sources import read_host
    from compatgate.check.question import named, read_pool
    from compatgate.core.request import parse_pool

    stated = [read_pool(text) for text in args.pool]
    if args.target and (stated or args.probe or args.nvidia_smi or args.node_labels):
        raise BadInput("--target and a described pool exclude each other")
    bodies: list[dict[str, Any]] = stated
    if args.target:
        bodies = pools_of(args)
    elif args.probe or args.nvidia_smi or args.node_labels:
        bodies = read_host(args, facts).choose(stated)
    if not bodies:
        hint = "--target NAME, or --pool driver=535.104.05,gpu=L4"
        raise BadInput("say where it is to hold", hint=hint)
    return [parse_pool({k: v for k, v in body.items() if v is not None}, facts.gpus)
            for body in named(bodies)]  # fmt: skip


def _worst(answers: tuple[RuleResult, ...]) -> str:
    return max((one.outcome for one in answers), key=_RANK.__getitem__, default="unknown")


def _print_json(
    outcome: str, found: list[tuple[Compatibility, tuple[RuleResult, ...]]], note: str
) -> None:
    import json

    sets = [
        {"tag": one.tag, "description": one.description, "rules": [a.to_json() for a in answers]}
        for one, answers in found
    ]
    print(json.dumps({"outcome": outcome, "sets": sets, **({"note": note} if note else {})}))


def _print_text(
    outcome: str, found: list[tuple[Compatibility, tuple[RuleResult, ...]]], note: str
) -> None:
    from compatgate.kit.cli.terminal import paint, printable, wants_colour

    colour = wants_colour(sys.stdout)
    paints = {"pass": "green", "fail": "red", "unknown": "yellow"}
    for one, answers in found:
        if one.description:
            print(printable(one.description))
        for answer in answers:
            mark = paint(f"{answer.outcome:<7}", paints[answer.outcome], colour=colour)
            print(f"  {mark}  {printable(answer.pool)}: {printable(answer.rule)}")
            for text in answer.why:
                print(f"           {printable(text)}")
    if note:
        print(f"  note: {note}")
    print({"pass": "every rule holds", "fail": "a rule fails",
           "unknown": "not every rule could be checked"}[outcome])  # fmt: skip


CREATED = "org.opencontainers.image.created"
"""By which NFD tells the newest of several specs."""


def digest_in(place: ImageLocation, platform: str | None) -> str:
    """The digest that specs belong to: what the reference names, or its image for a platform.

    Raises:
        NotFound: there is no such image.
        BadInput: the reference names an index without that platform.
    """
    from compatgate.discovery.registry.manifest import (
        choose_manifest,
        parse_manifest,
        parse_platform,
    )

    found = place.registry.manifest(place.name.locator)
    document = parse_manifest(found.data, found.media_type, str(place.name))
    if platform is None or not isinstance(document, list):
        return found.digest
    return choose_manifest(document, parse_platform(platform), str(place.name)).digest


def newest_spec(place: ImageLocation, digest: str) -> Attachment | None:
    """Return the newest spec of an image, as NFD chooses it; None without one.

    Raises:
        Unavailable: the registry does not answer, or refuses.
        Damaged: an artifact is not what it should be.
    """
    from compatgate.discovery.integrations.nfd_spec import ARTIFACT_TYPE, LAYER_TYPE
    from compatgate.discovery.registry.artifacts import fetch_attachments

    found = list(fetch_attachments(place, digest, ARTIFACT_TYPE, LAYER_TYPE))
    return max(found, key=lambda one: one.annotations.get(CREATED, ""), default=None)


def pull_spec(reference: str, platform: str | None) -> str:
    """Return the text of the newest spec.

    Raises:
        NotFound: there is no such image, or nothing is attached; else as `newest`.
    """
    from compatgate.discovery.registry.artifacts import open_location
    from compatgate.discovery.registry.limits import options_from_environment

    with open_location(reference, options_from_environment()) as place:
        found = newest_spec(place, digest_in(place, platform))
    if found is None:
        hint = "attach one with image-compat push; of an index, name the image with --platform"
        raise NotFound("no image-compatibility spec is attached", field=reference, hint=hint)
    return found.data.decode("utf-8", "replace")


def spec_text(stack: dict[str, Any], platform: str, facts: Facts) -> str:
    """The spec of a stack in the form of requests; what it leaves out goes to standard error.

    Raises:
        BadInput: a version in the stack is malformed.
        Inconclusive: no rule can be written.
    """
    from compatgate.core.stack import Stack, parse_stack
    from compatgate.discovery.integrations.nfd_spec import load_devices, spec_of_stack, write_spec
    from compatgate.kit.cli.terminal import printable

    parsed = parse_stack(stack) if stack else Stack({})
    written = spec_of_stack(parsed, facts, load_devices(), platform=platform)
    for text in written.left_out:
        print(f"warning: not in the spec: {printable(text)}", file=sys.stderr)
    return write_spec(written.spec)
