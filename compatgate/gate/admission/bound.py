"""The targets that a pod is bound for: by annotation, else by namespace and node labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct

from compatgate.documents.specs import MatchSpec
from compatgate.gate.admission.loose import items, mapping, text, texts

TARGET = "compatgate.dev/target"
"""Annotation: the target's name."""
How = Literal["annotation", "match", "possible"]
Standing = Literal["named", "open", "excluded"]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Bound(Struct, frozen=True):
    """Where a pod may come to run.

    Attributes:
        targets: names; several where no one of them fits better.
        how: ``possible``: nothing in the pod says that it runs there, nor that it does not.
    """

    targets: tuple[str, ...]
    how: How = "match"


def bound_for(
    annotations: Mapping[str, str],
    namespace: str,
    spec: Mapping[str, Any],
    matches: Iterable[tuple[str, MatchSpec]],
) -> Bound:
    """The targets of a pod.

    An annotation decides. Else everything that a target's ``match`` states must hold: one of its
    namespaces, and node labels that the pod's node selector or required affinity names; of several
    targets those that state most. Where there are none, a pod that may run on a target's nodes by
    default, since it names no such label at all, is taken to be bound for it.

    Args:
        annotations: of the object and the template.
        namespace: of the object.
        spec: of the pod.
        matches: of each target, by name.
    """
    if named := annotations.get(TARGET, "").strip():
        return Bound((named,), "annotation")
    terms = tuple(_terms(spec))
    full: dict[str, tuple[int, bool]] = {}
    possible: dict[str, tuple[int, bool]] = {}
    for name, match in matches:
        if not (match.namespaces or match.node_labels):
            continue
        if match.namespaces and not any(fnmatchcase(namespace, g) for g in match.namespaces):
            continue
        rank = (len(match.node_labels), bool(match.namespaces))
        standing = _standing(terms, match.node_labels) if match.node_labels else "named"
        if standing == "named":
            full[name] = rank
        elif standing == "open" and match.namespaces:
            possible[name] = rank
    if full:
        best = max(full.values())
        return Bound(tuple(sorted(name for name, rank in full.items() if rank == best)))
    return Bound(tuple(sorted(possible)), "possible" if possible else "match")


class _Term(Struct, frozen=True):
    """Nodes by their labels: the values that each may have, and those that it may not.

    ``allowed`` of a label that only has to exist, or to be missing, says no value.
    """

    allowed: dict[str, frozenset[str]]
    denied: dict[str, frozenset[str]]

    def standing(self, labels: Mapping[str, str]) -> Standing:
        """Whether nodes with these labels are named, left open, or excluded."""
        for key, value in labels.items():
            if value not in self.allowed.get(key, {value}) or value in self.denied.get(key, ()):
                return "excluded"
        return "named" if all(key in self.allowed for key in labels) else "open"


def _standing(terms: Iterable[_Term], labels: Mapping[str, str]) -> Standing:
    found = {term.standing(labels) for term in terms}
    return "named" if "named" in found else "open" if "open" in found else "excluded"


def _terms(spec: Mapping[str, Any]) -> Iterator[_Term]:
    """One term for each alternative of the required affinity, the node selector in each."""
    selector = {key: frozenset((v,)) for key, v in texts(spec.get("nodeSelector")).items()}
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    stated = items(mapping(affinity.get(_REQUIRED)).get("nodeSelectorTerms"))
    for alternative in stated or [{}]:
        allowed, denied = dict(selector), dict[str, frozenset[str]]()
        for raw in items(mapping(alternative).get("matchExpressions")):
            expression = mapping(raw)
            key = text(expression.get("key"))
            values = frozenset(v for v in items(expression.get("values")) if isinstance(v, str))
            match expression.get("operator"):
                case "In":
                    allowed[key] = allowed.get(key, values) & values
                case "DoesNotExist":
                    allowed[key] = frozenset()
                case "NotIn":
                    denied[key] = denied.get(key, frozenset()) | values
        yield _Term(allowed, denied)
