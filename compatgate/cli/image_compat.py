"""Run ``compatgate image-compat``: attach NFD's compatibility specs to images, and check them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, NotFound
from compatgate.kit.cli.options import add_format

if TYPE_CHECKING:
    import argparse

    from compatgate.core.facts import Facts
    from compatgate.core.request import Pool
    from compatgate.discovery.integrations.nfd_evaluate import RuleResult
    from compatgate.discovery.integrations.nfd_spec import Compatibility
    from compatgate.discovery.registry.artifacts import Attachment, ImageLocation

EXAMPLES = """\
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
        "attach a spec to an image in its registry, generated from its stack or from a file",
    ),
    "pull": ("compatgate.cli.image_compat:pull", "print the newest attached spec"),
    "check": ("compatgate.cli.image_compat:check", "check the rules of a spec against a pool"),
}


def add_push_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the image, and the spec."""
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
        help="attach to the exact reference, even to an index; nfd reads it there unless"
        " nfd gets a platform",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the spec without attaching it"
    )


def run_push(args: argparse.Namespace) -> int:
    """Attach a spec, unless the newest one is the same.

    Raises:
        BadInput: the reference, spec or platform is invalid.
        Inconclusive: no rule can be written for the image.
        Unavailable: the registry does not answer, or refuses the upload.
    """
    from compatgate.discovery.registry.artifacts import open_location
    from compatgate.discovery.registry.limits import read_options

    text, index = _read_spec_text(args)
    if args.dry_run:
        print(text, end="")
        return 0
    platform = None if args.index else args.platform or "linux/amd64"
    with open_location(args.image, read_options()) as place:
        image = digest_in(place, platform)
        known = newest_spec(place, image)
        if known and known.data == text.encode():
            print(f"{known.digest} is already attached with the same content")
            return 0
        made = _attach_spec(place, image, text)
        print(f"{place.name.registry}/{place.name.repository}@{made} is attached to {image}")
    if index and platform:
        print(f"note: the spec belongs to one image of an index: nfd compat validate-node needs"
              f" --platform {platform}", file=sys.stderr)  # fmt: skip
    return 0


def _read_spec_text(args: argparse.Namespace) -> tuple[str, bool]:
    """Return the text, and whether the reference is an index."""
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
    from compatgate.discovery.registry.artifacts import ArtifactLayer, attach_artifact

    title = {"org.opencontainers.image.title": "image-compatibility.yaml"}
    made = {CREATED: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return attach_artifact(
        place, image, ARTIFACT_TYPE, [ArtifactLayer(text.encode(), LAYER_TYPE, title)], made
    )


def add_pull_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the image."""
    parser.add_argument("image", metavar="IMAGE", help="reference in a registry")
    parser.add_argument("--platform", metavar="OS/CPU", help="platform in a multi-platform image")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="output file (default: standard output)"
    )


def run_pull(args: argparse.Namespace) -> int:
    """Print the newest attached spec, unchanged.

    Raises:
        NotFound: the image does not exist, or has no spec.
        Unavailable: the registry does not answer, or refuses.
    """
    from compatgate.kit.cli.output import write_output

    write_output(args.output, pull_spec(args.image, args.platform).encode())
    return 0


_STATUS = {"pass": 0, "fail": 1, "unknown": 3}
_RANK = {"pass": 0, "unknown": 1, "fail": 2}


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the spec, the pool or target, and the format."""
    from compatgate.check.cli import add_decider_options, add_place_options

    parser.epilog = (
        "exit status:\n  0  every rule holds   1  a rule fails   2  bad input   3  a rule could not"
        " be checked\n"
    )
    parser.add_argument(
        "spec", metavar="FILE|IMAGE", help="compatibility spec, or an image with one"
    )
    parser.add_argument("--platform", metavar="OS/CPU", help="platform in a multi-platform image")
    parser.add_argument("--tag", help="only sets with this tag")
    add_format(parser)
    add_place_options(parser.add_argument_group("target or pool"))
    add_decider_options(parser.add_argument_group("source of targets and facts"))


def run_check(args: argparse.Namespace) -> int:
    """Check rule by rule; the worst result decides.

    Raises:
        BadInput: the spec is malformed, no set has the tag, or no pool is named.
        NotFound: the image has no spec, or the target does not exist.
    """
    from compatgate.catalog import load_facts
    from compatgate.discovery.integrations.nfd_evaluate import evaluate_spec
    from compatgate.discovery.integrations.nfd_spec import load_devices

    facts = load_facts(args.facts)
    sets = _read_sets(args)
    pools = _read_pools(args, facts)
    devices = load_devices()
    found = [(one, evaluate_spec(one, pools, facts.gpus, devices)) for one in sets]
    worst = [_worst_outcome(answers) for _, answers in found]
    outcome = max(worst, key=_RANK.__getitem__)
    note = ""
    if len(set(worst)) > 1:
        outcome = "unknown"
        note = "the format does not define whether all sets or one must hold; choose with --tag"
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
    from compatgate.check.observed_host import read_host
    from compatgate.check.question import name_pools, read_pool
    from compatgate.core.request import parse_pool

    stated = [read_pool(text) for text in args.pool]
    if args.target and (stated or args.probe or args.nvidia_smi or args.node_labels):
        raise BadInput("--target and a described pool cannot be combined")
    bodies: list[dict[str, Any]] = stated
    if args.target:
        bodies = pools_of(args)
    elif args.probe or args.nvidia_smi or args.node_labels:
        bodies = read_host(args, facts).choose(stated)
    if not bodies:
        hint = "--target NAME, or --pool driver=535.104.05,gpu=L4"
        raise BadInput("name a target or a pool", hint=hint)
    return [parse_pool({k: v for k, v in body.items() if v is not None}, facts.gpus)
            for body in name_pools(bodies)]  # fmt: skip


def _worst_outcome(answers: tuple[RuleResult, ...]) -> str:
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
    from compatgate.kit.cli.terminal import paint, strip_controls, wants_colour

    colour = wants_colour(sys.stdout)
    paints = {"pass": "green", "fail": "red", "unknown": "yellow"}
    for one, answers in found:
        if one.description:
            print(strip_controls(one.description))
        for answer in answers:
            mark = paint(f"{answer.outcome:<7}", paints[answer.outcome], colour=colour)
            print(f"  {mark}  {strip_controls(answer.pool)}: {strip_controls(answer.rule)}")
            for text in answer.why:
                print(f"           {strip_controls(text)}")
    if note:
        print(f"  note: {note}")
    print({"pass": "every rule holds", "fail": "a rule fails",
           "unknown": "not every rule could be checked"}[outcome])  # fmt: skip


CREATED = "org.opencontainers.image.created"
"""Annotation by which NFD finds the newest spec."""


def digest_in(place: ImageLocation, platform: str | None) -> str:
    """Return the digest that specs belong to: the reference's, or its image's for a platform.

    Raises:
        NotFound: the image does not exist.
        BadInput: the index lacks that platform.
    """
    if platform is None:
        return place.registry.manifest(place.name.locator).digest
    return place.digest(platform)


def newest_spec(place: ImageLocation, digest: str) -> Attachment | None:
    """Return the newest spec of an image, as NFD chooses it; None without one.

    Raises:
        Unavailable: the registry does not answer, or refuses.
        Damaged: an artifact is malformed.
    """
    from compatgate.discovery.integrations.nfd_spec import ARTIFACT_TYPE, LAYER_TYPE
    from compatgate.discovery.registry.artifacts import fetch_attachments

    found = list(fetch_attachments(place, digest, ARTIFACT_TYPE, LAYER_TYPE))
    return max(found, key=lambda one: one.annotations.get(CREATED, ""), default=None)


def pull_spec(reference: str, platform: str | None) -> str:
    """Return the text of the newest spec.

    Raises:
        NotFound: the image does not exist, or has no spec. See also `newest_spec`.
    """
    from compatgate.discovery.registry.artifacts import open_location
    from compatgate.discovery.registry.limits import read_options

    with open_location(reference, read_options()) as place:
        found = newest_spec(place, digest_in(place, platform))
    if found is None:
        hint = "attach one with image-compat push; of an index, name the image with --platform"
        raise NotFound("no image-compatibility spec is attached", field=reference, hint=hint)
    return found.data.decode("utf-8", "replace")


def spec_text(stack: dict[str, Any], platform: str, facts: Facts) -> str:
    """Return the spec of a stack in request form; print omissions on standard error.

    Raises:
        BadInput: a version in the stack is malformed.
        Inconclusive: no rule can be written.
    """
    from compatgate.core.stack import Stack, parse_stack
    from compatgate.discovery.integrations.nfd_spec import build_spec, load_devices, write_spec
    from compatgate.kit.cli.terminal import strip_controls

    parsed = parse_stack(stack) if stack else Stack({})
    written = build_spec(parsed, facts, load_devices(), platform=platform)
    for text in written.left_out:
        print(f"warning: not in the spec: {strip_controls(text)}", file=sys.stderr)
    return write_spec(written.spec)
