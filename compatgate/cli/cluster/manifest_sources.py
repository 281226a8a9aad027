"""Choose who answers about manifests: a gate over REST, a local database, or a bundle."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from compatgate.check.deciders import BundleDecider, refuse_stale
from compatgate.check.verdicts import verdict_of
from compatgate.cli.gate.opening import open_rooms
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

if TYPE_CHECKING:
    from compatgate.client import Client
    from compatgate.service.gate.questions.images import ImageSettings

Claims = Sequence[Mapping[str, Any]]
_OWN = ("kinds", "exempt", "registry")
"""Options that a gate has itself."""


class ObjectSource(Protocol):
    """The interface of everything that answers about objects."""

    def check(
        self, document: Mapping[str, Any], namespace: str, claims: Claims = ()
    ) -> ObjectAnswer:
        """Return admission's answer."""
        ...


class ServerSource:
    """Asks a gate over REST, with a timeout for each object."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout = f"{min(timeout_s, 3600):.3f}s"

    def check(
        self, document: Mapping[str, Any], namespace: str, claims: Claims = ()
    ) -> ObjectAnswer:
        """Return the gate's answer; see `ObjectSource.check`."""
        from compatgate.client.operations import Operations

        gate = self._client
        try:
            said = ask(
                gate,
                Operations.check_manifest,
                document,
                namespace=namespace or DEFAULT_NAMESPACE,  # one in none needs none
                timeout=self._timeout,
                claims=claims or None,  # an older gate has no such field
            )
            answer = msgspec.convert(said, ObjectAnswer)
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


class LocalSource:
    """Asks admission in this process, on a database or a bundle."""

    def __init__(self, checks: ManifestChecks, timeout_s: float) -> None:
        self._checks = checks
        self._timeout = f"{min(timeout_s, 3600):.3f}s"

    def check(
        self, document: Mapping[str, Any], namespace: str, claims: Claims = ()
    ) -> ObjectAnswer:
        """Return the answer; see `ObjectSource.check`."""
        return self._checks.check(document, namespace, timeout=self._timeout, claims=claims)


def open_source(args: argparse.Namespace, kinds: Kinds, stack: ExitStack) -> ObjectSource:
    """Open the source that the options name."""
    if server := args.target_server:
        _refuse_own(args)

        client = make_client(server, args.token, args.timeout, retries=0)
        return ServerSource(stack.enter_context(client), args.timeout)
    exemptions = parse_exemptions(args.exempt, "--exempt")
    options = AdmissionOptions(kinds, exemptions=exemptions)
    images = _image_settings(args)
    if args.bundle:
        from compatgate.service.gate.questions.images import Images

        refuse_stale(args.bundle, args.max_stale)
        snapshot = BundleDecider(args.bundle, args.key).snapshot
        gate = BundleGate(snapshot, Images(images))
        return LocalSource(ManifestChecks(gate, options), args.timeout)

    opened = stack.enter_context(open_rooms(args, overlays=args.facts, images=images))
    return LocalSource(ManifestChecks(opened.gate, options), args.timeout)


def _refuse_own(args: argparse.Namespace) -> None:
    for name in _OWN:
        if getattr(args, name):
            hint = f"start it with serve --{name}, or check with --bundle or --database"
            raise BadInput(
                "cannot be combined with --server: the gate uses its own setting",
                field=f"--{name}",
                hint=hint,
            )


def _image_settings(args: argparse.Namespace) -> ImageSettings:
    from compatgate.service.gate.questions.images import ImageSettings, parse_places

    places = parse_places(args.registry, "--registry")
    return ImageSettings(
        tuple(places), args.timeout, options=read_options(cache=default_image_folder())
    )
