"""Run ``compatgate k8s check``: decide about rendered manifests as admission would."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.check.cli import (
    OUTPUT,
    complete_decider,
    decider,
    publish_answers,
    read_format,
    settle,
)
from compatgate.check.deciders import BundleDecider, refuse_stale
from compatgate.cli.gate import Client, Operations, open_rooms
from compatgate.discovery.cache import default_image_folder
from compatgate.discovery.registry.limits import read_options
from compatgate.documents.sources import DocumentProblem
from compatgate.errors import (
    BadInput,
    CompatgateError,
    ManyProblems,
    NotFound,
    Unavailable,
    quote_error,
)
from compatgate.formats.reports import open_reports, verdict_of
from compatgate.gate_client import ask, make_client
from compatgate.kit.cli.output import say
from compatgate.kit.cli.usage import action, titled
from compatgate.service.cluster.admission import AdmissionOptions
from compatgate.service.cluster.kinds import Kinds, load_kinds
from compatgate.service.cluster.manifest_checks import BundleGate, ManifestChecks
from compatgate.service.cluster.manifests import (
    DEFAULT_NAMESPACE,
    Manifests,
    read_manifests,
)
from compatgate.service.cluster.questions import parse_exemptions
from compatgate.service.cluster.schemas import ObjectAnswer

if TYPE_CHECKING:
    from compatgate.service.cluster.admission import UnmatchedPolicy
    from compatgate.service.cluster.manifest_reports import CheckedManifest

_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_FOR_THE_OBJECT = (400, 413, 422)
"""Statuses of a refusal that is about one object; any other is about the caller or the gate."""
Check = Callable[..., ObjectAnswer]
"""A function that returns admission's answer about a document, in a namespace, with claims."""


@action(
    "check rendered manifests before a cluster sees them, as admission would",
    f"""\
files: FILE|DIR ...                 rendered manifests, YAML or JSON; a folder: its files; "-":
                                    standard input
objects:
--namespace NAME = {DEFAULT_NAMESPACE}
    namespace of objects that state none, as kubectl apply --namespace
--unmatched {{allow,warn,deny}}     result for a GPU workload without a target (default: exit status
                                    3); a server that denies it keeps denying it
admission (a server has its own):
--exempt NAMESPACE=WAIVER ...       as in compatgate serve
--kinds FILE ...                    as in compatgate serve
--registry HOST[/PREFIX] ...        registry to read images from; may be repeated; without one, the
                                    stack of an image is unknown unless the annotation
                                    compatgate.dev/stack states it
""",
    decider("decider (default: the database)"),
    titled("output", OUTPUT, format={"type": read_format}),
    epilog="""\
Decide about each GPU container as the admission webhook would if the objects were created now.
Nothing is logged. Objects without GPU pods pass. An object whose GPU pods match no target was not
checked: exit status 3, unless --unmatched says otherwise.

exit status:
  0  admission would allow every object      1  it would deny one
  2  a manifest cannot be read, or usage     3  an object could not be decided, or was not checked

examples:
  helm template ./chart --namespace ml-train | compatgate k8s check - --namespace ml-train
  kubectl kustomize overlays/prod | compatgate k8s check - --server https://gate.example
  compatgate k8s check rendered/ --bundle compatgate.bundle --format github
  compatgate k8s check deploy.yaml --format sarif=compatgate.sarif --format markdown=comment.md
""",
)
def run(args: argparse.Namespace) -> int:
    """Check every object; return the exit status of the worst answer."""
    complete_decider(args)
    if not _NAMESPACE.fullmatch(args.namespace):
        hint = "lower-case letters, digits and '-', at most 63"
        raise BadInput("is not a namespace", field="--namespace", value=args.namespace, hint=hint)
    return settle(args, _check_all)


def _check_all(args: argparse.Namespace) -> int:
    from compatgate.service.cluster.manifest_reports import make_answers

    inputs = (*args.files, *args.kinds, args.bundle)
    reports = open_reports(args.format, args.output, inputs)
    kinds = load_kinds(args.kinds)
    manifests = read_manifests(args.files, args.namespace, kinds)
    mistakes: list[CompatgateError] = []
    with ExitStack() as stack:
        source = open_source(args, kinds, stack) if manifests.found else None
        checked = _check(manifests, source, args.unmatched, mistakes) if source else []
    answers = [answer for one in checked for answer in make_answers(one)]
    status = publish_answers(args, reports, answers)
    say(_summary(manifests.objects, checked))
    for one in checked:
        group, kind = one.manifest.group, one.manifest.kind
        by_operator = "." in group and not group.endswith(".k8s.io") and kinds.of(group, kind)
        if by_operator and not one.uses_gpus:
            note = "asks for no GPU; pods that its operator adds were not checked"
            say(f"{one.manifest.name}: {note}")
    if mistakes:
        noun = "1 object was" if len(mistakes) == 1 else f"{len(mistakes)} objects were"
        raise ManyProblems(f"{noun} not checked", mistakes)
    return status


def _check(
    manifests: Manifests,
    ask: Check,
    unmatched: UnmatchedPolicy | None,
    mistakes: list[CompatgateError],
) -> list[CheckedManifest]:
    """Ask about each object; after the first that nobody answers, ask no more."""
    from compatgate.service.cluster.manifest_reports import CheckedManifest, apply_unmatched

    checked: list[CheckedManifest] = []
    why = ""
    for manifest in manifests.found:
        answer = ObjectAnswer(False, "", (), False, ())
        if not why:
            try:
                claims = manifests.claims_for(manifest)
                answer = ask(manifest.document, manifest.namespace, claims=claims)
            except Unavailable as error:
                why = error.detail
            except CompatgateError as error:
                if error.status not in _FOR_THE_OBJECT:
                    raise
                problem = DocumentProblem(
                    error.problem,
                    path=(error.field,) if error.field else (),
                    file="<stdin>" if manifest.file == "-" else manifest.file,
                    line=manifest.line(),
                    document=manifest.name,
                    hint=error.hint,
                )
                mistakes.append(problem)
                continue
        checked.append(CheckedManifest(manifest, apply_unmatched(answer, unmatched), why))
    return checked


def _summary(objects: int, checked: Iterable[CheckedManifest]) -> str:
    """Return the counts on one line: ``12 objects, 3 with GPU pods: 1 denied, 2 allowed``."""
    counts: Counter[str] = Counter()
    for one in checked:
        denied = [result.verdict for result in one.answer.results if result.outcome == "denied"]
        # denied only because something is not known
        unknown = denied and all(verdict and verdict["verdict"] == "unknown" for verdict in denied)
        if one.undecided or unknown:
            counts["not decided"] += 1
        elif one.uses_gpus and one.answer.allowed:
            unchecked = any(result.outcome == "undecided" for result in one.answer.results)
            counts["not checked" if unchecked else "allowed"] += 1
        elif one.uses_gpus:
            counts["denied"] += 1
    noun = "object" if objects == 1 else "objects"
    names = ("denied", "not decided", "not checked", "allowed")
    shown = ", ".join(f"{counts[name]} {name}" for name in names if counts[name])
    return f"{objects} {noun}, {counts.total()} with GPU pods{f': {shown}' if shown else ''}"


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

    options = AdmissionOptions(kinds, exemptions=parse_exemptions(args.exempt))
    reading = read_options(cache=default_image_folder())
    places = parse_places(args.registry, "--registry")
    images = ImageSettings(tuple(places), args.timeout, options=reading)
    if args.bundle:
        refuse_stale(args.bundle, args.max_stale)
        gate = BundleGate(BundleDecider(args.bundle, args.key).snapshot, Images(images))
        return partial(ManifestChecks(gate, options).check, timeout=timeout)
    rooms = stack.enter_context(open_rooms(args, overlays=args.facts, images=images))
    return partial(ManifestChecks(rooms.gate, options).check, timeout=timeout)
