"""Define the documents as typed structs, and compare two sets of documents field by field.

The structs have the shape of ``matrix/schema/*.schema.json``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from compatgate.core.binding import Assurance, Bind
from compatgate.core.components import sort_components
from compatgate.core.matrix import EntryStatus
from compatgate.core.node import Sharing
from compatgate.core.request import (
    Cpu,
    EntriesMode,
    FailurePolicy,
    MissingFactsMode,
    Mode,
    Os,
    PackagesMode,
    PromotionMode,
    UnknownPolicy,
)
from compatgate.documents.quantities import DURATION_PATTERN as DURATION
from compatgate.documents.sources import FieldPath, format_path

API_VERSION = "compatgate.dev/v1"
Kind = Literal["Target", "Entry", "Waiver"]
KINDS: tuple[Kind, ...] = ("Target", "Entry", "Waiver")
"""In the order of an export: targets come before the documents that name them."""
# The look-ahead stands for the line feed that Python's $ would let pass.
NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$(?!\n)"
REF_PATTERN = r"^(\*|[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?)$(?!\n)"
LINE_PATTERN = r"^[^\u0000-\u001f\u007f]{1,512}$(?!\n)"
TEXT_PATTERN = r"^[^\u0000]*$"
LABEL_KEY_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9./_-]{0,251}[A-Za-z0-9])?$(?!\n)"
LABEL_PATTERN = r"^[A-Za-z0-9._:/@+-]{0,256}$(?!\n)"
DATE_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$(?!\n)"
RULE_PATTERN = r"^CG[0-9]{3}$(?!\n)"
SLUG_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$(?!\n)"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)"
TIME_PATTERN = r"^([01][0-9]|2[0-3]):[0-5][0-9]$(?!\n)"
ENDPOINT_PATTERN = r"^(unix|tcp|ssh)://[^\u0000-\u0020\u007f]{1,480}$(?!\n)"
TOOL_PATTERN = r"^/opt(/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}){1,4}$(?!\n)"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$(?!\n)"
CONTENT_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?@[0-9a-f]{12}$(?!\n)"
MOMENT_PATTERN = (
    r"^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$(?!\n)"
)
NEED_PATTERN = (
    r"^([a-z][a-z0-9-]{1,15}|[1-9][0-9]{0,6}(\.[0-9]{1,3})?(MB|GB|TB|MiB|GiB|TiB))$(?!\n)"
)
Need = Annotated[str, Meta(pattern=NEED_PATTERN)]
"""A number format, a feature, or memory of one GPU."""
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
TargetRef = Annotated[str, Meta(pattern=REF_PATTERN)]
Line = Annotated[str, Meta(pattern=LINE_PATTERN)]
Text = Annotated[str, Meta(pattern=TEXT_PATTERN, max_length=8192)]
LabelKey = Annotated[str, Meta(pattern=LABEL_KEY_PATTERN)]
Label = Annotated[str, Meta(pattern=LABEL_PATTERN)]
Duration = Annotated[str, Meta(pattern=DURATION)]
Day = Annotated[str, Meta(pattern=DATE_PATTERN)]
ContentDigest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$(?!\n)")]
RuleId = Annotated[str, Meta(pattern=RULE_PATTERN)]
TargetRefs = Annotated[tuple[TargetRef, ...], Meta(min_length=1)]
Components = dict[Line, Line]


class _Spec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class PoolSpec(_Spec, frozen=True):
    """Nodes of one GPU SKU with one driver; names as written, not resolved."""

    name: Name
    gpu: Line
    driver: Line
    os: Os = "linux"
    cpu: Cpu = "x86_64"
    count: Annotated[int, Meta(ge=0, le=10_000_000)] = 1
    platform: Line | UnsetType = UNSET
    sharing: Sharing | UnsetType = UNSET
    node: dict[Name, Line] | UnsetType = UNSET


class MatchSpec(_Spec, frozen=True):
    """The workloads that the Kubernetes hook assigns to the target.

    Attributes:
        namespaces: patterns of namespaces.
        node_labels: node selector or affinity that names these labels.
    """

    namespaces: tuple[Line, ...] = ()
    node_labels: dict[LabelKey, Label] = {}


SOURCE_PATTERN = (
    # The last three are no longer read, but stored policies name results that were.
    r"^(dcgm|nccl-tests|jsonl|reframe|superbench|nvcre)@"
    r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$(?!\n)"
)
ImportedSource = Annotated[str, Meta(pattern=SOURCE_PATTERN)]


class CanarySpec(_Spec, frozen=True):
    """The evidence that the target requires, and its effect on entries.

    Attributes:
        assurance: minimum assurance of a passed run.
        imported: for each suite, the sources whose imported results count.
    """

    require: bool = False
    max_age: Duration = "30d"
    suites: Annotated[tuple[Name, ...], Meta(min_length=1)] = ("smoke",)
    accept_development: bool = False
    soak: tuple[Name, ...] = ()
    promote: PromotionMode = "approval"
    on_failure: FailurePolicy = "warn"
    assurance: Assurance = "self-reported"
    imported: dict[Name, tuple[ImportedSource, ...]] = {}
    bind: Bind | UnsetType = UNSET


class WaiverPolicySpec(_Spec, frozen=True):
    """The longest duration of a new waiver on the target."""

    max_duration: Duration = "90d"


ChangesMode = Literal["direct", "proposals"]
"""``proposals``: a change of the target, its entries or its waivers is a proposal first."""
StatedStacks = Literal["accept", "ignore"]
"""``ignore``: what a pod states of its stack does not count; its image must be read."""


class PolicySpec(_Spec, frozen=True):
    """The requirements of the target, and the effect of a verdict.

    Attributes:
        approvals: people, with the author, that a change needs if it lets the gate allow more.
        approvers: names of those whose approval counts; ``*`` matches any characters.
    """

    mode: Mode = "enforce"
    require_entry: bool = False
    canary: CanarySpec = CanarySpec()
    on_unknown: UnknownPolicy = "fail"
    packages: PackagesMode = "enforce"
    missing_facts: MissingFactsMode = "enforce"
    entries: EntriesMode = "lenient"
    stated_stacks: StatedStacks | UnsetType = UNSET
    waivers: WaiverPolicySpec | UnsetType = UNSET
    approvals: Annotated[int, Meta(ge=1, le=5)] | UnsetType = UNSET
    approvers: Annotated[tuple[Line, ...], Meta(min_length=1)] | UnsetType = UNSET
    changes: ChangesMode | UnsetType = UNSET


class TargetSpec(_Spec, frozen=True):
    """A target: its pools, the workloads that belong to it, and its policy."""

    pools: Annotated[tuple[PoolSpec, ...], Meta(min_length=1)]
    match: MatchSpec = MatchSpec()
    policy: PolicySpec = PolicySpec()


class BlessedBySpec(_Spec, frozen=True):
    """The evidence by which the gate has blessed an entry.

    Attributes:
        contents: digests of the GPU contents that they tested.
    """

    runs: tuple[Line, ...] = ()
    contents: tuple[ContentDigest, ...] = ()


class EntrySpec(_Spec, frozen=True):
    """A row of the matrix; ``components`` maps canonical names to constraints as written.

    Attributes:
        evidence_override: why the entry is blessed without the canary evidence that a policy of
            its targets asks for.
    """

    targets: TargetRefs
    components: Annotated[Components, Meta(min_length=1)]
    status: EntryStatus
    reason: Text = ""
    gpus: tuple[Line, ...] = ()
    replacement: Line | None = None
    needs: tuple[Need, ...] = ()
    blessed_by: BlessedBySpec | UnsetType = UNSET
    evidence_override: (
        Annotated[str, Meta(pattern=TEXT_PATTERN, min_length=1, max_length=2000)] | None
    ) = None


class WaiverMatch(_Spec, frozen=True):
    """The stacks of a waiver: a glob on the image reference, constraints on components.

    Attributes:
        everything: true: the waiver covers every stack of its targets, as a new waiver must state.
    """

    image: Line | None = None
    components: Components = {}
    everything: bool | UnsetType = UNSET


class WaiverSpec(_Spec, frozen=True):
    """An exception to rules, with an owner and an end date (its last day, UTC)."""

    rules: Annotated[tuple[RuleId, ...], Meta(min_length=1)]
    targets: TargetRefs
    owner: Line
    reason: Annotated[str, Meta(pattern=TEXT_PATTERN, min_length=1, max_length=8192)]
    expires: Day
    match: WaiverMatch = WaiverMatch()


LINK_PATTERN = r"^https?://[!#-;=?-\[\]_a-z~%]{1,2000}$(?!\n)"
Link = Annotated[str, Meta(pattern=LINK_PATTERN)]


class Metadata(_Spec, frozen=True):
    """The name of a waiver, and labels to find it."""

    name: Name
    labels: dict[LabelKey, Label] = {}


class EntryMetadata(_Spec, frozen=True):
    """The name of an entry, its owner, labels and links.

    Attributes:
        owner: team or person to ask.
        links: addresses of pages, by name.
    """

    name: Name
    labels: dict[LabelKey, Label] = {}
    owner: Line | None = None
    links: dict[LabelKey, Link] = {}


class TargetMetadata(EntryMetadata, frozen=True):
    """The name of a target, labels to find it, its owner and links; as of `EntryMetadata`."""


class _Document(_Spec, frozen=True, tag_field="kind"):
    api_version: Literal["compatgate.dev/v1"]


class TargetDoc(_Document, frozen=True, tag="Target", tag_field="kind"):
    """A document of ``kind: Target``."""

    metadata: TargetMetadata
    spec: TargetSpec


class EntryDoc(_Document, frozen=True, tag="Entry", tag_field="kind"):
    """A document of ``kind: Entry``."""

    metadata: EntryMetadata
    spec: EntrySpec


class WaiverDoc(_Document, frozen=True, tag="Waiver", tag_field="kind"):
    """A document of ``kind: Waiver``."""

    metadata: Metadata
    spec: WaiverSpec


Document = TargetDoc | EntryDoc | WaiverDoc
TYPES: dict[str, type[TargetDoc] | type[EntryDoc] | type[WaiverDoc]] = {
    "Target": TargetDoc,
    "Entry": EntryDoc,
    "Waiver": WaiverDoc,
}


def kind_of(document: Document) -> Kind:
    """Return the kind of a document: ``Target``, ``Entry`` or ``Waiver``."""
    return cast(Kind, type(document).__struct_config__.tag)


def key_of(document: Document) -> tuple[Kind, str]:
    """Return kind and name, which together identify a document."""
    return kind_of(document), document.metadata.name


def order_of(document: Document) -> tuple[int, str]:
    """Return the place in an export: targets, entries, waivers, each by name."""
    kind, name = key_of(document)
    return KINDS.index(kind), name


def target_refs(document: Document) -> tuple[str, ...]:
    """Return the targets that an entry or a waiver names; ``*`` included."""
    return () if isinstance(document, TargetDoc) else document.spec.targets


def suite_refs(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """Yield the suites that the policy of a target requires runs of, each with its place.

    A suite with imported results needs no run.
    """
    if isinstance(document, TargetDoc):
        canary = document.spec.policy.canary
        for field, names in (("suites", canary.suites), ("soak", canary.soak)):
            for index, name in enumerate(names):
                if field == "soak" or not canary.imported.get(name):
                    yield ("spec", "policy", "canary", field, index), name


def to_body(document: Document) -> dict[str, Any]:
    """Return the document as plain data in the order of the files, without empty values."""
    raw: dict[str, Any] = msgspec.to_builtins(document)
    kind = raw.pop("kind")
    body = {"apiVersion": raw.pop("apiVersion"), "kind": kind, **raw}
    return cast(dict[str, Any], _drop_empty(body))


_FREE_MAPS = ("labels", "links", "nodeLabels", "node", "imported")
"""Mappings whose keys are the author's; their order has no meaning."""


def to_sorted_body(document: Document) -> dict[str, Any]:
    """Return the document as `to_body`, the keys of its free mappings sorted.

    Equal documents have equal bodies, in the same order.
    """
    return cast(dict[str, Any], _sort_free_maps(to_body(document)))


def _sort_free_maps(value: Any, key: str = "") -> Any:
    if isinstance(value, list):
        return [_sort_free_maps(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    if key == "components":
        names = sort_components(names)
    elif key in _FREE_MAPS:
        names.sort()
    return {name: _sort_free_maps(value[name], name) for name in names}


def encode(document: Document) -> str:
    """Return the document as JSON text; equal documents have equal text."""
    return msgspec.json.encode(to_body(document)).decode()


def decode(kind: str, text: str | bytes) -> Document:
    """Read a document that `encode` wrote.

    A target that was stored before the field ``missingFacts`` existed audits missing facts for one
    release: `encode` writes every field, so its text lacks this one until it is changed.
    """
    document = make_explicit(msgspec.json.decode(text, type=TYPES[kind]))
    stated = b'"missingFacts"' in text if isinstance(text, bytes) else '"missingFacts"' in text
    if stated or not isinstance(document, TargetDoc):
        return document
    policy = replace(document.spec.policy, missing_facts="audit")
    return replace(document, spec=replace(document.spec, policy=policy))


def make_explicit(document: Document) -> Document:
    """Return the document, with ``everything`` set in a waiver for every stack, as now required."""
    if not isinstance(document, WaiverDoc):
        return document
    old = document.spec.match
    is_narrow = old.components or (old.image or "").strip("*")
    match = replace(old, everything=UNSET) if is_narrow else WaiverMatch(everything=True)
    return replace(document, spec=replace(document.spec, match=match))


def _drop_empty(value: Any) -> Any:
    """Return plain data without empty values; every document passes here, so it asks little."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            if isinstance(item, _CONTAINERS):
                item = _drop_empty(item)
                if not item:
                    continue
            elif item is None or (item == "" and key == "reason"):
                continue
            kept[key] = item
        return kept
    return [_drop_empty(item) if isinstance(item, _CONTAINERS) else item for item in value]


_CONTAINERS = (dict, list, tuple)


Action = Literal["create", "change", "delete"]


class FieldChange(Struct, frozen=True, forbid_unknown_fields=True):
    """A value that differs; null: no value."""

    path: str
    before: Any
    after: Any


class Change(Struct, frozen=True, forbid_unknown_fields=True):
    """A document that is created, changed or deleted."""

    kind: Kind
    name: str
    action: Action
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    fields: list[FieldChange]


def make_change(
    kind: Kind,
    name: str,
    action: Action,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> Change:
    """Return a change with the values that differ; they need both sides, as plain data."""
    fields = [] if before is None or after is None else [*_compare((), before, after)]
    return Change(kind, name, action, before, after, fields)


def compare_document(before: Document | None, after: Document | None) -> Change | None:
    """Return the difference between two versions of a document; None when they are equal."""
    document = after or before
    if document is None or before == after:
        return None
    kind, name = key_of(document)
    action: Action = "create" if before is None else "delete" if after is None else "change"
    return make_change(
        kind, name, action, to_body(before) if before else None, to_body(after) if after else None
    )


def compare_documents(before: Iterable[Document], after: Iterable[Document]) -> list[Change]:
    """Return the changes from one set of documents to another: by kind, then by name."""
    old = {key_of(document): document for document in before}
    new = {key_of(document): document for document in after}
    pairs = [(old.get(key), new.get(key)) for key in old.keys() | new.keys()]
    pairs.sort(key=lambda pair: order_of(pair[1] or pair[0]))  # type: ignore[arg-type]
    return [change for pair in pairs if (change := compare_document(*pair))]


def _compare(path: FieldPath, before: Any, after: Any) -> Iterator[FieldChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(k for k in after if k not in before)]:
            yield from _compare((*path, key), before.get(key), after.get(key))
    elif _is_named_list(before) and _is_named_list(after):
        old, new = ({item["name"]: item for item in side} for side in (before, after))
        yield from _compare(path, old, new)
    elif before != after:
        yield FieldChange(format_path(path), before, after)


def _is_named_list(value: Any) -> bool:
    """Return whether a list is of named items (pools), which compare by name."""
    return bool(isinstance(value, list) and value) and all(
        isinstance(item, dict) and "name" in item for item in value
    )
