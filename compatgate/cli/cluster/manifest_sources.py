"""Choose who answers about manifests: a gate over REST, a local database, or a bundle."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec

from compatgate.check.deciders import BundleDecider, refuse_stale
from compatgate.check.verdicts import verdict_of
from compatgate.cli.gate.opening import Client, Operations, open_rooms
from compatgate.discovery.cache import default_image_folder
from compatgate.discovery.registry.limits import read_options
from compatgate.errors import BadInput, NotFound, Unavailable, quote_error
from compatgate.gate_client import ask, make_client
from compatgate.service.cluster.admission.kinds import Kinds
from compatgate.service.cluster.admission.questions import parse_exemptions
from compatgate.service.cluster.admission.service import AdmissionOptions
from compatgate.service.cluster.manifests.documents import DEFAULT_NAMESPACE
from compatgate.service.cluster.manifests.schemas import ObjectAnswer
from compatgate.service.cluster.manifests.service import BundleGate, ManifestChecks

Check = Callable[..., ObjectAnswer]
"""A function that returns admission's answer about a document, in a namespace, with claims."""


def ask_server(
    gate: Client,
    document: Mapping[str, Any],
    namespace: str,
    *,
    timeout: str,
    claims: Sequence[Mapping[str, Any]],
) -> ObjectAnswer:
    """Ask a gate over REST about an object."""
    try:
        body = ask(
            gate,
            Operations.check_manifest,
            document,
            namespace=namespace or DEFAULT_NAMESPACE,  # one in none needs none
            timeout=timeout,
            claims=claims or None,  # an older gate has no such field
        )
        answer = msgspec.convert(body, ObjectAnswer)
    except NotFound as error:
        hint = "use a gate of this version, or --bundle"
        raise NotFound(error.problem, field=gate.base_url, hint=hint) from None
    except msgspec.ValidationError as error:
        problem = f"the answer of the gate has an unexpected form: {quote_error(error)}"
        hint = "check that the URL is a gate's"
        raise Unavailable(problem, field=gate.base_url, hint=hint) from None
    for result in answer.results:
        if result.verdict is not None:
            verdict_of(result.verdict, gate.base_url)
    return answer


def open_source(args: argparse.Namespace, kinds: Kinds, stack: ExitStack) -> Check:
    """Open the source that the options name; each object has the timeout for itself."""
    timeout = f"{min(args.timeout, 3600):.3f}s"
    if server := args.target_server:
        for name in ("kinds", "exempt", "registry"):
            if getattr(args, name):
                what = "cannot be combined with --server: the gate uses its own setting"
                hint = f"start it with serve --{name}, or check with --bundle or --database"
                raise BadInput(what, field=f"--{name}", hint=hint)
        client = stack.enter_context(make_client(server, args.token, args.timeout, retries=0))
        return partial(ask_server, client, timeout=timeout)
    from compatgate.service.gate.questions.images import Images, ImageSettings, parse_places

    options = AdmissionOptions(kinds, exemptions=parse_exemptions(args.exempt, "--exempt"))
    reading = read_options(cache=default_image_folder())
    places = parse_places(args.registry, "--registry")
    images = ImageSettings(tuple(places), args.timeout, options=reading)
    if args.bundle:
        refuse_stale(args.bundle, args.max_stale)
        gate = BundleGate(BundleDecider(args.bundle, args.key).snapshot, Images(images))
        return partial(ManifestChecks(gate, options).check, timeout=timeout)
    rooms = stack.enter_context(open_rooms(args, overlays=args.facts, images=images))
    return partial(ManifestChecks(rooms.gate, options).check, timeout=timeout)
