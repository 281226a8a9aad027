"""Recognise text that somebody pastes, and read what it says about a stack, nodes or an image."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.facts.packages import Packages
from compatgate.core.stack import parse_stack_text
from compatgate.discovery.drafts import Draft, draft_pool, read_drafts
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.discovery.observations import Conflict, settle
from compatgate.discovery.probe import Probe, probe_labels, probe_output, read_probe
from compatgate.discovery.stated_stack import attach_remarks, attach_wheels
from compatgate.errors import BadInput

_NAME = "pasted text"
_IMAGE = re.compile(
    r"(docker://)?[a-z0-9][\w.-]*((:\d+)?(/[\w.-]+)+(:[\w.-]+)?|:[\w.-]+)(@sha256:[0-9a-f]{64})?"
)
_STACK = re.compile(r"\s*[\w-]+=[^=,\s][^,\s]*(\s*,\s*[\w-]+=[^=,\s][^,\s]*)*\s*")
_SMI = re.compile(
    r"NVIDIA-SMI|<nvidia_smi_log|Driver Version\s*:|^name, ?driver_version|^GPU \d+: .*\(UUID: ",
    re.M,
)
_OBJECT = re.compile(r"^\s*-?\s*\"?apiVersion\"?\s*:", re.M)
_LABELS = re.compile(r"nvidia\.com/(gpu|cuda|mig)")
_DOCKERFILE = re.compile(r"(?:[ \t]*(?:#[^\n]*|ARG[ \t][^\n]*)?\n)*[ \t]*FROM[ \t]", re.IGNORECASE)
_LINUX = Platform(os="linux", cpu="x86_64")
_HINT = (
    "paste the output of nvidia-smi, an image reference, a Dockerfile, a lockfile, a bill of"
    " materials, Kubernetes nodes or their labels, a probe, or versions like cuda=12.4,torch=2.4.1"
)


class PastedText(Struct, frozen=True):
    """The content of a text: its kind in words, and stack and pools in the form of requests.

    ``draft`` has what is open about the pools; None: the text is no report about nodes.
    """

    kind: str
    stack: dict[str, Any] = {}
    pools: tuple[dict[str, Any], ...] = ()
    draft: Draft | None = None
    image: str = ""
    notes: tuple[str, ...] = ()


def read_pasted(text: str, facts: Facts, signals: dict[str, Any]) -> PastedText:
    """Recognise and read pasted text; ``signals`` are the facts about files of images."""
    from compatgate.discovery.sbom.read import is_bill, read_sbom

    given = text.strip()
    if not given:
        raise BadInput("no text or file is given", field="pasted", hint=_HINT)
    if "\n" not in given and _IMAGE.fullmatch(given):
        return PastedText("an image reference", image=given.removeprefix("docker://"))
    if "\n" not in given and _STACK.fullmatch(given):
        return PastedText("versions", parse_stack_text(given))
    if '"compatgate"' in given and given.startswith("{"):
        document = read_probe(given, origin=_NAME)
        return PastedText("a probe", document["stack"], tuple(document["pools"]))
    if _SMI.search(given):
        probe = probe_output(text, facts, origin=_NAME)
        return _to_pasted("nvidia-smi output", _draft_probe(probe))
    if _DOCKERFILE.match(given):
        return _read_dockerfile(text, facts.packages, signals)
    if is_bill(given):
        reading = read_sbom(
            _NAME, text.encode(), known=facts.packages, signals=signals, platform=_LINUX
        )
        return PastedText("a bill of materials", _settle_stack(reading, ()))
    if _LABELS.search(given) and not _OBJECT.search(given):
        return _to_pasted("node labels", _draft_probe(probe_labels(text, facts, origin=_NAME)))
    if _OBJECT.search(given):
        return _to_pasted("Kubernetes objects", read_drafts([(_NAME, text)], facts))
    return _read_lock(text, facts.packages)


def _to_pasted(kind: str, draft: Draft) -> PastedText:
    pools = tuple(pool.to_body() for pool in draft.pools)
    return PastedText(kind, pools=pools, draft=draft, notes=draft.notes)


def _draft_probe(probe: Probe) -> Draft:
    remarks = probe.host.get("notes")
    notes = [str(one) for one in remarks] if isinstance(remarks, list | tuple) else []
    conflicts = [conflict.message for conflict in probe.conflicts]
    return Draft(tuple(map(draft_pool, probe.pools)), (*notes, *conflicts))


def _read_dockerfile(text: str, known: Packages, signals: dict[str, Any]) -> PastedText:
    """Return the image that a Dockerfile begins from; what its lines bring is open."""
    from compatgate.discovery.dockerfile import read_dockerfile

    reading = read_dockerfile(_NAME, text.encode(), known=known, signals=signals, platform=_LINUX)
    if not reading.base:
        stack, conflicts = settle(reading.observations)
        return PastedText("a Dockerfile", attach_remarks(stack, reading.open, conflicts))
    return PastedText("a Dockerfile", attach_remarks({}, reading.open, ()), image=reading.base)


def _read_lock(text: str, known: Packages) -> PastedText:
    try:
        reading = read_lockfile(_NAME, text.encode(), known=known, platform=_LINUX)
    except BadInput as error:
        if error.field == _NAME:
            error.field, error.hint = "pasted", _HINT
        raise
    stack = _settle_stack(reading, reading.arch)
    return PastedText("a lockfile", attach_wheels(stack, reading.wheels))


def _settle_stack(reading: Any, arch: Any) -> dict[str, Any]:
    stack, disagreements = settle(reading.observations, arch)
    conflicts: tuple[Conflict, ...] = (*reading.conflicts, *disagreements)
    return attach_remarks(stack, reading.open, conflicts)
