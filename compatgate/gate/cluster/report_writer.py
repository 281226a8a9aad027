"""Reports written into a cluster: made, brought up to date, and removed; only our own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from compatgate.errors import CompatgateError, Conflict, NotFound, Unavailable
from compatgate.gate.cluster.connect import Api
from compatgate.gate.cluster.policy_report import (
    GROUP,
    NAME,
    VERSION,
    is_ours,
    says_the_same,
    with_known_times,
)
from compatgate.kubernetes.errors import Missing, Taken

_TRIES = 5
_SELECTOR = f"app.kubernetes.io/managed-by={NAME}"
_CRD = "kubernetes-sigs/wg-policy-prototypes, policy-report/crd"


class Written(Struct, frozen=True):
    """What became of reports: how many, and why those that could not be written were not."""

    made: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: tuple[str, ...] = ()


class ReportWriter:
    """Writes the reports of one kind.

    Args:
        api: of the cluster.
        cluster_wide: ClusterPolicyReports, instead of those of namespaces.
    """

    def __init__(self, api: Api, *, cluster_wide: bool = False) -> None:
        self._api = api
        self._plural = "clusterpolicyreports" if cluster_wide else "policyreports"
        self._scope = "cluster" if cluster_wide else "namespaced"

    def ours(self, namespace: str | None = None) -> set[str]:
        """Namespaces that have a report of ours (empty text: the cluster).

        Args:
            namespace: only this one.

        Raises:
            NotFound: the cluster does not know policy reports.
        """

        def keep(body: dict[str, Any]) -> str | None:
            metadata = body.get("metadata") or {}
            return metadata.get("namespace", "") if metadata.get("name") == NAME else None

        try:
            if namespace is None:
                found = self._api.listed(
                    "custom", "list_cluster_custom_object", GROUP, VERSION, self._plural,
                    keep=keep, label_selector=_SELECTOR,
                )  # fmt: skip
            else:
                found = self._api.listed(
                    "custom", "list_namespaced_custom_object", GROUP, VERSION, namespace,
                    self._plural, keep=keep, label_selector=_SELECTOR,
                )  # fmt: skip
        except Missing as error:
            hint = f"install the CRDs of {_CRD}"
            what = f"the cluster has no {self._plural}.{GROUP}: {error.problem}"
            raise NotFound(what, field="--write", hint=hint) from None
        return set(found)

    def write(self, report: dict[str, Any]) -> Written:
        """Make a report, or bring it up to date; one that says the same already is left as it is.

        Raises:
            Conflict: a report of that name is somebody else's, or is written by others all the
                time.
        """
        namespace = report["metadata"].get("namespace")
        for _ in range(_TRIES):
            try:
                old = self._ask("get", namespace, NAME)
            except Missing:
                old = None
            try:
                if old is None:
                    self._ask("create", namespace, report)
                    return Written(made=1)
                return self._replace(namespace, report, old)
            except (Taken, Missing):
                continue
        where = namespace or "the cluster"
        raise Conflict(f"the policy report {NAME} of {where} is written by others all the time")

    def remove(self, namespace: str | None) -> Written:
        """Remove our report, if it is there."""
        try:
            if not is_ours(self._ask("get", namespace, NAME)):
                return Written()
            self._ask("delete", namespace, NAME)
        except Missing:
            return Written()
        return Written(removed=1)

    def _replace(
        self, namespace: str | None, report: dict[str, Any], old: Mapping[str, Any]
    ) -> Written:
        if not is_ours(old):
            where = namespace or "the cluster"
            hint = f"rename it, or label it {_SELECTOR.replace('=', ': ')}"
            raise Conflict(f"{where} has a policy report {NAME} of somebody else", hint=hint)
        new = with_known_times(report, old)
        if says_the_same(new, old):
            return Written(unchanged=1)
        version = (old.get("metadata") or {}).get("resourceVersion", "")
        metadata = {**new["metadata"], "resourceVersion": version}
        self._ask("replace", namespace, NAME, {**new, "metadata": metadata})
        return Written(changed=1)

    def _ask(self, verb: str, namespace: str | None, *args: Any) -> dict[str, Any]:
        where = (namespace,) if self._scope == "namespaced" else ()
        operation = f"{verb}_{self._scope}_custom_object"
        return self._api.ask("custom", operation, GROUP, VERSION, *where, self._plural, *args)


def write_all(
    reports: Iterable[tuple[ReportWriter, dict[str, Any]]],
    outdated: Iterable[tuple[ReportWriter, str]],
) -> Written:
    """Write reports and remove others; one that cannot be keeps no other from it.

    Raises:
        Unavailable: the cluster does not answer.
    """
    parts = [_tried(partial(writer.write, report)) for writer, report in reports]
    parts += [_tried(partial(writer.remove, namespace)) for writer, namespace in outdated]
    counts = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("made", "changed", "unchanged", "removed")
    }
    return Written(**counts, failed=tuple(why for part in parts for why in part.failed))


def _tried(act: Callable[[], Written]) -> Written:
    try:
        return act()
    except Unavailable:
        raise
    except CompatgateError as error:
        return Written(failed=(error.detail,))
