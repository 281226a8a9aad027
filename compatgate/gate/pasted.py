"""What somebody pastes: which of the things that are read it is, and what it says."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from compatgate.catalog import read_source
from compatgate.core.facts import Facts
from compatgate.core.facts.packages import Packages
from compatgate.core.stack import parse_stack_text
from compatgate.discovery.lockfiles import Platform, read_lockfile
from compatgate.discovery.observed import Conflict
from compatgate.discovery.printed import probe_labels, probe_output
from compatgate.discovery.probe import Probe, read_probe
from compatgate.discovery.stack.settle import settle
from compatgate.discovery.stack.stated import with_remarks, with_wheels
from compatgate.errors import BadInput

_NAME = "pasted text"
_IMAGE = re.compile(
    r"(docker://)?[a-z0-9][\w.-]*((:\d+)?(/[\w.-]+)+(:[\w.-]+)?|:[\w.-]+)(@sha256:[0-9a-f]{64})?"
)
_STACK = re.compile(r"\s*[\w-]+=[^=,\s][^,\s]*(\s*,\s*[\w-]+=[^=,\s][^,\s]*)*\s*")
_SMI = re.compile(r"NVIDIA-SMI|<nvidia_smi_log|Driver Version\s*:|^name, ?driver_version", re.M)
_LABELS = re.compile(r"nvidia\.com/(gpu|cuda)\.")
_SBOM = re.compile(r'"bomFormat"|"spdxVersion"|SPDXVersion:|cyclonedx\.org/schema/bom')
_LINUX = Platform(os="linux", cpu="x86_64")
_HINT = (
    "paste what nvidia-smi prints, an image reference, a lockfile, a bill of materials,"
    " node labels, a probe, or versions like cuda=12.4,torch=2.4.1"
)


class Pasted(Struct, frozen=True):
    """What was in it.

    Attributes:
        kind: what it was taken for, in words.
        stack: in the form of requests; ``pools`` likewise.
        image: an image reference.
        notes: what could not be told.
    """

    kind: str
    stack: dict[str, Any] = {}
    pools: tuple[dict[str, Any], ...] = ()
    image: str = ""
    notes: tuple[str, ...] = ()


def recognise(text: str, facts: Facts, platform: Platform = _LINUX) -> Pasted:
    """Read something that was pasted.

    Args:
        text: whatever it is.
        facts: to resolve GPUs with.
        platform: that a lockfile is installed on.

    Raises:
        BadInput: it is nothing that is read, or is damaged.
        Inconclusive: it says nothing.
    """
    given = text.strip()
    if not given:
        raise BadInput("nothing was pasted", field="pasted", hint=_HINT)
    if "\n" not in given and _IMAGE.fullmatch(given):
        return Pasted("an image reference", image=given.removeprefix("docker://"))
    if "\n" not in given and _STACK.fullmatch(given):
        return Pasted("versions", parse_stack_text(given))
    if '"compatgate"' in given and given.startswith("{"):
        document = read_probe(given, origin=_NAME)
        return Pasted("a probe", document["stack"], tuple(document["pools"]))
    if _SMI.search(given):
        return _of_host("what nvidia-smi printed", probe_output(text, facts, origin=_NAME))
    if _SBOM.search(given):
        return _bill(text, platform, facts.packages)
    if _LABELS.search(given):
        return _of_host("labels of nodes", probe_labels(text, facts, origin=_NAME))
    return _lock(text, platform, facts.packages)


def _of_host(kind: str, probe: Probe) -> Pasted:
    notes = [*_texts(probe.host.get("notes")), *(conflict.message for conflict in probe.conflicts)]
    return Pasted(kind, pools=tuple(pool.to_body() for pool in probe.pools), notes=tuple(notes))


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def _bill(text: str, platform: Platform, known: Packages) -> Pasted:
    from compatgate.discovery.sbom import read_sbom

    signals = read_source("image_signals")
    reading = read_sbom(_NAME, text.encode(), known=known, signals=signals, platform=platform)
    return Pasted("a bill of materials", _stack(reading.observations, reading, ()))


def _lock(text: str, platform: Platform, known: Packages) -> Pasted:
    try:
        reading = read_lockfile(_NAME, text.encode(), known=known, platform=platform)
    except BadInput as error:
        if error.field == _NAME:
            error.field, error.hint = "pasted", _HINT
        raise
    stack = _stack(reading.observations, reading, reading.arch)
    return Pasted("a lockfile", with_wheels(stack, reading.wheels))


def _stack(observations: Any, reading: Any, arch: Any) -> dict[str, Any]:
    stack, disagreements = settle(observations, arch)
    said: tuple[Conflict, ...] = (*reading.conflicts, *disagreements)
    return with_remarks(stack, reading.open, said)
