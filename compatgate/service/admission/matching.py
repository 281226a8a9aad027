"""Match a pod to targets, by namespace and node labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice, product
from typing import Any, Literal

from msgspec import Struct

from compatgate.documents.specs import MatchSpec
from compatgate.kit.kubernetes import read_labels, read_list, read_mapping, read_text

TARGET = "compatgate.dev/target"
"""Annotation: the target's name. On a pod it chooses among those that the pod is bound for."""
MatchKind = Literal["match", "possible"]
TermMatch = Literal["named", "open", "excluded"]
_MAX_TERMS = 256
"""Maximum number of expanded placement terms."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class MatchedTarget(Struct, frozen=True):
    """The targets that a pod may run on.

    Attributes:
        targets: names; several where no one of them fits better.
        how: ``possible``: nothing in the pod says that it runs there, nor that it does not.
        open: where there are no targets, those that are for no namespace and that nothing in the
            pod excludes: only an annotation leads there.
    """

    targets: tuple[str, ...]
    how: MatchKind = "match"
    open: tuple[str, ...] = ()


def match_targets(
    namespace: str, spec: Mapping[str, Any], matches: Iterable[tuple[str, MatchSpec]]
) -> MatchedTarget:
    """Return the targets of a pod.

    Everything that a target's ``match`` states must hold: one of its namespaces, and node labels
    that the pod's node selector or required affinity names; of several targets those that state
    most. Where there are none, a pod that may run on a target's nodes by default, since it names no
    such label at all, is taken to be bound for it. The scheduler may take any alternative and any
    value of an affinity: each is looked at by itself.

    Args:
        namespace: of the object.
        spec: of the pod.
        matches: of each target, by name.
    """
    every = list(matches)
    here = [(name, match) for name, match in every if is_in_namespace(match, namespace)]
    stated: dict[str, set[str]] = {}
    for _, match in here:
        for key, value in match.node_labels.items():
            stated.setdefault(key, set()).add(value)
    ways = list(islice(_expand_terms(spec, stated), _MAX_TERMS + 1))
    found: dict[str, MatchKind] = {}
    for way in ways[:_MAX_TERMS]:
        targets, how = _targets_of_term(way, here)
        found |= {name: how for name in targets if found.get(name) != "match"}
    if len(ways) > _MAX_TERMS:  # more than can be told apart: whatever it may come to run on
        possible = {name for name, match in here if _reaches(terms_of(spec), match)}
        found |= dict.fromkeys(possible - found.keys(), "possible")
    if not found:
        return MatchedTarget((), open=_open_targets(terms_of(spec), every))
    return MatchedTarget(tuple(sorted(found)), "match" if "match" in found.values() else "possible")


def _open_targets(
    terms: Iterable[Term], matches: Iterable[tuple[str, MatchSpec]]
) -> tuple[str, ...]:
    """Return the targets that state no namespace and no label that the pod excludes."""
    ways = list(terms)
    return tuple(
        sorted(
            name
            for name, match in matches
            if not match.namespaces
            and any(way.standing(match.node_labels) != "excluded" for way in ways)
        )
    )


def is_in_namespace(match: MatchSpec, namespace: str) -> bool:
    """Return whether a match is for a namespace; one without namespaces is, if it has labels."""
    if not match.namespaces:
        return bool(match.node_labels)
    return any(fnmatchcase(namespace, glob) for glob in match.namespaces)


def _targets_of_term(
    way: Term, matches: Iterable[tuple[str, MatchSpec]]
) -> tuple[list[str], MatchKind]:
    """Return the targets of one placement term, and how they match."""
    full: dict[str, tuple[int, bool]] = {}
    possible: list[str] = []
    for name, match in matches:
        standing = way.standing(match.node_labels) if match.node_labels else "named"
        if standing == "named":
            full[name] = (len(match.node_labels), bool(match.namespaces))
        elif standing == "open" and match.namespaces:
            possible.append(name)
    if not full:
        return possible, "possible"
    best = max(full.values())
    return [name for name, rank in full.items() if rank == best], "match"


def _reaches(terms: Iterable[Term], match: MatchSpec) -> bool:
    standings = {term.standing(match.node_labels) for term in terms}
    return "named" in standings or ("open" in standings and bool(match.namespaces))


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


def _expand_terms(spec: Mapping[str, Any], stated: Mapping[str, Collection[str]]) -> Iterator[Term]:
    """Yield the terms, expanded to one value for each label with several allowed values.

    Args:
        spec: of the pod.
        stated: values by label that targets state; all others are alike.
    """
    for term in terms_of(spec):
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
