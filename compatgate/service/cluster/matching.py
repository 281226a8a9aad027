"""Match a pod to targets, by namespace and node labels, and find pods in any object.

In an object whose kind does not say where its pods are, they are found by their shape, within
bounds. A pod spec has a list of containers. A mapping with resources of its own, as custom kinds
have it, counts as a pod of one container; what it needs of a node may stand around it. An object of
a known kind inside is read as one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice, product
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.documents.specs import MatchSpec, TargetSpec
from compatgate.documents.weakening import is_stricter
from compatgate.kit.kubernetes import read_labels, read_list, read_mapping, read_text
from compatgate.service.cluster.kinds import Kinds, PodKind
from compatgate.service.cluster.pods import Pod, inherited, pods_of

TARGET = "compatgate.dev/target"
"""Annotation: the target's name. On a pod it chooses among those that the pod is bound for."""
MatchKind = Literal["match", "possible"]
TermMatch = Literal["named", "open", "excluded"]
_MAX_TERMS = 256
"""Maximum number of expanded placement terms."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class MatchedTarget(Struct, frozen=True):
    """The targets that a pod may run on; ``possible``: nothing says that it does, nor the contrary.

    ``open``: where there are none, those for no namespace that nothing in the pod excludes: only an
    annotation leads there.
    """

    targets: tuple[str, ...]
    how: MatchKind = "match"
    open: tuple[str, ...] = ()


def match_targets(
    namespace: str, terms: Sequence[Term], targets: Mapping[str, TargetSpec]
) -> MatchedTarget:
    """Return the targets of a pod by its terms (`terms_of`).

    Everything that a target's ``match`` states must hold: one of its namespaces, and node labels
    that the pod's node selector or required affinity names. A target that states more displaces the
    others, except those that are stricter. A pod that may run on a target's nodes by default, since
    it names no such label at all, is taken to be bound for it where no target matches that is as
    strict. The scheduler may take any alternative and any value of an affinity: each is looked at
    by itself.
    """
    here = {name: one for name, one in targets.items() if is_in_namespace(one.match, namespace)}
    stated: dict[str, set[str]] = {}
    for one in here.values():
        for key, value in one.match.node_labels.items():
            stated.setdefault(key, set()).add(value)
    ways = list(islice(_expand_terms(terms, stated), _MAX_TERMS + 1))
    found: dict[str, MatchKind] = {}
    for way in ways[:_MAX_TERMS]:
        for name, how in _targets_of_term(way, here):
            if found.get(name) != "match":
                found[name] = how
    if len(ways) > _MAX_TERMS:  # more than can be told apart: whatever it may come to run on
        for name, match in ((name, one.match) for name, one in here.items()):
            standings = {term.standing(match.node_labels) for term in terms}
            if "named" in standings or ("open" in standings and match.namespaces):
                found.setdefault(name, "possible")
    if not found:
        open_ones = [
            name
            for name, one in targets.items()
            if not one.match.namespaces
            and any(way.standing(one.match.node_labels) != "excluded" for way in terms)
        ]
        return MatchedTarget((), open=tuple(sorted(open_ones)))
    return MatchedTarget(tuple(sorted(found)), "match" if "match" in found.values() else "possible")


def is_in_namespace(match: MatchSpec, namespace: str) -> bool:
    """Return whether a match is for a namespace; one without namespaces is, if it has labels."""
    if not match.namespaces:
        return bool(match.node_labels)
    return any(fnmatchcase(namespace, glob) for glob in match.namespaces)


_POSSIBLE = (-1, False)


def _targets_of_term(
    way: Term, targets: Mapping[str, TargetSpec]
) -> Iterator[tuple[str, MatchKind]]:
    ranks: dict[str, tuple[int, bool]] = {}
    for name, one in targets.items():
        match = one.match
        standing = way.standing(match.node_labels) if match.node_labels else "named"
        if standing == "named":
            ranks[name] = (len(match.node_labels), bool(match.namespaces))
        elif standing == "open" and match.namespaces:
            ranks[name] = _POSSIBLE
    best = max(ranks.values(), default=_POSSIBLE)
    full = [(rank, targets[name].policy) for name, rank in ranks.items() if rank > _POSSIBLE]
    for name, rank in ranks.items():
        if rank == best or all(
            rank >= more or is_stricter(targets[name].policy, policy) for more, policy in full
        ):
            yield name, "possible" if rank == _POSSIBLE else "match"


class Term(Struct, frozen=True):
    """Nodes by their labels: the values that each may have, and those that it may not.

    ``allowed`` of a label that only has to exist, or to be missing, says no value.
    """

    allowed: dict[str, frozenset[str]]
    denied: dict[str, frozenset[str]]

    def standing(self, labels: Mapping[str, str]) -> TermMatch:
        """Return whether the term names, leaves open or excludes nodes with these labels."""
        for key, value in labels.items():
            if value not in self.allowed.get(key, {value}) or value in self.denied.get(key, ()):
                return "excluded"
        return "named" if all(key in self.allowed for key in labels) else "open"


def _expand_terms(terms: Iterable[Term], stated: Mapping[str, Collection[str]]) -> Iterator[Term]:
    """Yield the terms, expanded to one value for each label with several allowed values."""
    for term in terms:
        several: dict[str, list[frozenset[str]]] = {}
        for key, values in stated.items():
            allowed = term.allowed.get(key, frozenset())
            if len(allowed) > 1:
                named = [frozenset((value,)) for value in sorted(allowed.intersection(values))]
                rest = allowed.difference(values)
                several[key] = [*named, rest] if rest else named
        for choice in product(*several.values()):
            chosen = dict(zip(several, choice, strict=True))
            yield Term({**term.allowed, **chosen}, term.denied)


def terms_of(spec: Mapping[str, Any]) -> Iterator[Term]:
    """Give one term for each alternative of the required affinity, the node selector in each."""
    selector = {key: frozenset((v,)) for key, v in read_labels(spec.get("nodeSelector")).items()}
    affinity = read_mapping(read_mapping(spec.get("affinity")).get("nodeAffinity"))
    stated = read_list(read_mapping(affinity.get(_REQUIRED)).get("nodeSelectorTerms"))
    chosen = [term for term in stated if term]  # an empty one selects no node
    for alternative in chosen or [{}]:
        allowed, denied = dict(selector), dict[str, frozenset[str]]()
        for raw in read_list(read_mapping(alternative).get("matchExpressions")):
            expression = read_mapping(raw)
            key = read_text(expression.get("key"))
            values = frozenset(v for v in read_list(expression.get("values")) if isinstance(v, str))
            match expression.get("operator"):
                case "In":
                    allowed[key] = allowed.get(key, values) & values
                case "DoesNotExist":
                    allowed[key] = frozenset()
                case "NotIn":
                    denied[key] = denied.get(key, frozenset()) | values
        yield Term(allowed, denied)


MAX_PARTS = 50_000
"""Mappings, lists and values of one object that are looked at."""
_SKIPPED: tuple[str, ...] = ("metadata", "status")


class FoundPods(Struct, frozen=True):
    """The pods of an object.

    ``complete`` is False: the object has more than `MAX_PARTS` parts; the rest was not searched.
    """

    pods: Iterable[Pod]
    complete: bool = True


class _Part(Struct, frozen=True):
    where: str
    value: Any
    outer: dict[str, Any] = {}
    annotations: dict[str, str] = {}


def find_pods(document: Mapping[str, Any], kind: PodKind, kinds: Kinds) -> FoundPods:
    """Return the pods that an object is or makes: where its kind says, or by search."""
    if kind.search:
        return search_pods(document, kinds)
    return FoundPods(pods_of(document, kind))


def unknown_kind(name: str) -> PodKind:
    """Return a kind that no file names: its objects are searched."""
    return PodKind(kind=name, resource=name.lower(), search=True)


def search_pods(document: Mapping[str, Any], kinds: Kinds) -> FoundPods:
    """Return the parts of an object that have the shape of a pod, in the order of the object."""
    found: list[Pod] = []
    stack = [_Part("", document)]
    for _ in range(MAX_PARTS):
        if not stack:
            return FoundPods(found)
        part = stack.pop()
        if isinstance(part.value, dict):
            stack += reversed(_look_at(part, kinds, found))
        elif isinstance(part.value, list):
            items = enumerate(part.value[:MAX_PARTS])
            stack += reversed(
                [replace(part, where=f"{part.where}[{n}]", value=v) for n, v in items]
            )
    return FoundPods(found, not stack)


def _look_at(part: _Part, kinds: Kinds, found: list[Pod]) -> list[_Part]:
    """Add the pod that a mapping is, if it is one; return the parts that are still to be seen."""
    value, where = part.value, part.where
    if where and (known := _known_kind(value, kinds)):
        found += [replace(pod, path=f"{where}.{pod.path}") for pod in pods_of(value, known)]
        return []
    stated = read_labels(read_mapping(value.get("metadata")).get("annotations"))
    annotations = {**part.annotations, **stated, **read_labels(value.get("annotations"))}
    skipped = _SKIPPED
    if any(
        isinstance(item, dict) and ("image" in item or "resources" in item)
        for item in read_list(value.get("containers"))
    ):
        found.append(Pod(where, annotations, value))
        skipped = (*_SKIPPED, "initContainers", "containers", "ephemeralContainers")
    elif any(
        isinstance(read_mapping(value.get(field)).get(part), dict)
        for field in kinds.resource_fields
        for part in ("limits", "requests")
    ):
        beside = [v for v in value.values() if isinstance(v, dict)]
        spec = {**part.outer, **inherited(beside), **value}
        found.append(Pod(where, annotations, spec, itself=True))
    outer = {**part.outer, **inherited([value])}
    return [
        _Part(f"{where}.{key}" if where else key, item, outer, annotations)
        for key, item in value.items()
        if key not in skipped and isinstance(item, dict | list)
    ]


def _known_kind(value: Mapping[str, Any], kinds: Kinds) -> PodKind | None:
    name, version = read_text(value.get("kind")), read_text(value.get("apiVersion"))
    if not name or not version:
        return None
    known = kinds.of(version.rpartition("/")[0], name)
    return known if known and not known.search else None
