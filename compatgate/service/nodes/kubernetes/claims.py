"""Read the claims that a pod names from its cluster, when they are asked for.

A claim that cannot be read is not known, and so is taken for a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from compatgate.errors import CompatgateError
from compatgate.kit.cluster_api import ClusterApi
from compatgate.kit.kubernetes import ClusterAccess, ObjectMissing
from compatgate.service.cluster.admission.claims import (
    CLAIM,
    GROUP,
    TEMPLATE,
    KnownClaims,
    Requests,
    read_requests,
)

_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
_PLURALS = {CLAIM: "resourceclaims", TEMPLATE: "resourceclaimtemplates"}
_TIMEOUT_S = (1.0, 1.0)
_MOST = 16
"""Claims that are read for one object; more are not known."""
_log = logging.getLogger("compatgate.gate")


class ClusterClaims:
    """The claims of a cluster; safe for any number of threads.

    A specification cannot change, but a claim can be made anew under its name: nothing is kept.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._versions: tuple[str, ...] = _VERSIONS
        self._failing = False

    @classmethod
    def connect(cls, access: ClusterAccess) -> ClusterClaims:
        """Return the claims of a cluster that is asked while its API server waits."""
        return cls(ClusterApi(access, pauses=(), timeout_s=_TIMEOUT_S))

    def of(self, namespace: str) -> KnownClaims:
        """Return the claims of a namespace; each is read when it is asked for."""
        return _NamespaceClaims(self, namespace)

    def read(self, namespace: str, kind: str, name: str) -> Requests | None:
        """Return the requests of a claim or template; None: there is none."""
        for version in self._versions:
            try:
                found = self._api.ask(
                    "custom",
                    "get_namespaced_custom_object",
                    GROUP,
                    version,
                    namespace,
                    _PLURALS[kind],
                    name,
                )
            except ObjectMissing:
                continue
            if version != self._versions[0]:
                self._versions = (version, *(one for one in _VERSIONS if one != version))
            return read_requests({**found, "kind": kind})
        return None

    def note(self, error: CompatgateError | None) -> None:
        """Log the first of several failures."""
        if error is not None and not self._failing:
            _log.warning("claims cannot be read, and count as GPUs: %s", error.detail)
        self._failing = error is not None


class _NamespaceClaims(Mapping[tuple[str, str], Requests]):
    """The claims of a namespace for one object, by kind and name."""

    def __init__(self, claims: ClusterClaims, namespace: str) -> None:
        self._claims = claims
        self._namespace = namespace
        self._found: dict[tuple[str, str], Requests | None] = {}
        self._ended = False

    def __getitem__(self, key: tuple[str, str]) -> Requests:
        if key not in self._found and not self._ended and len(self._found) < _MOST:
            self._found[key] = self._read(*key)
        found = self._found.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def _read(self, kind: str, name: str) -> Requests | None:
        try:
            found = self._claims.read(self._namespace, kind, name)
        except CompatgateError as error:
            self._ended = True  # do not wait again for the same object
            self._claims.note(error)
            return None
        self._claims.note(None)
        return found

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (key for key, found in self._found.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
