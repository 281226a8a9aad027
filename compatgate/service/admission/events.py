"""Write Kubernetes events about denials, in the background.

An answer waits for no event: a denial goes into a bounded queue, and one thread writes. Equal
denials of an object are one event, which counts them. What does not fit is dropped and counted.

Sources: Kubernetes API, ``events.k8s.io/v1`` (Event); its validation (``ValidateEventCreate``:
lengths, namespaces, a series of two and more); client-go ``tools/events`` (series, names).
"""

from __future__ import annotations

import atexit
import logging
import re
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from compatgate.errors import CompatgateError, quote_error
from compatgate.kit import clock
from compatgate.kit.cluster_api import ClusterApi
from compatgate.kit.kubernetes import (
    ClusterAccess,
    ObjectMissing,
    read_list,
    read_mapping,
    read_text,
    to_one_line,
)
from compatgate.service.admission.outcome import EventResult, ReviewOutcome
from compatgate.service.admission.review import Review

CONTROLLER = "compatgate.dev/gate"
DENIED, WOULD_DENY = "CompatgateDenied", "CompatgateWouldDeny"
_REASONS = {"denied": DENIED, "would_deny": WOULD_DENY}
_ACTIONS = {DENIED: "Deny", WOULD_DENY: "Admit"}
_LONGEST_NOTE = 1024
"""Bytes."""
_LONGEST_INSTANCE = 128
_LONGEST_SUBJECT = 230
_MAX_WAITING = 1000
"""Different events that wait; another one is dropped."""
_MAX_KNOWN = 2000
_PAUSE_S = 0.1
"""Between two requests: ten a second at most."""
_REPEAT_S = 60.0
"""After which an event is brought up to date; until then its repetitions add up."""
_SERIES_S = 6 * 60.0
"""After which a repetition is a new event; as client-go does."""
_COMPLAIN_S = 300.0
_FLUSH_S = 2.0
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_VERSION = re.compile(r"([a-z0-9.-]{1,253}/)?v[a-z0-9]{1,62}")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_UID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_log = logging.getLogger("compatgate.gate")


class Subject(Struct, frozen=True):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str


class Denial(Struct, frozen=True):
    """An event to write; equal ones are one event with a count.

    Attributes:
        reason: `DENIED` or `WOULD_DENY`.
        note: one line, at most 1024 bytes.
    """

    subject: Subject
    reason: str
    note: str


class _Written(Struct):
    """An event in the cluster: its name, when it was last written, and how often it happened."""

    name: str
    at: float
    count: int


def denial_of(review: Review, outcome: ReviewOutcome) -> tuple[Denial, str] | None:
    """Return the event about a review, and the uid of its subject; None: no event is due.

    The subject is the controller that makes the object, which outlives a denied pod, else the
    object. A dry run leaves nothing behind.
    """
    reason = _REASONS.get(outcome.result)
    if reason is None or review.dry_run or not _NAMESPACE.fullmatch(review.namespace):
        return None
    subject, uid = _subject(review)
    said = to_one_line(outcome.reason.removeprefix("compatgate: "), _LONGEST_NOTE)
    note = said.encode()[:_LONGEST_NOTE]
    return Denial(subject, reason, note.decode(errors="ignore")), uid


def _subject(review: Review) -> tuple[Subject, str]:
    document = review.document or {}
    metadata = read_mapping(document.get("metadata"))
    owners = map(read_mapping, read_list(metadata.get("ownerReferences")))
    owner = next((one for one in owners if one.get("controller") is True), None)
    if owner and (found := _read_subject(owner, owner, review.namespace)):
        return found
    named = {"apiVersion": document.get("apiVersion"), "kind": review.kind}
    if found := _read_subject(named, metadata, review.namespace):
        return found
    return Subject("v1", "Namespace", review.namespace, review.namespace), ""


def _read_subject(
    typed: Mapping[str, Any], named: Mapping[str, Any], namespace: str
) -> tuple[Subject, str] | None:
    """Return an object and its uid if the API server accepts an event about it."""
    version, kind = read_text(typed.get("apiVersion")), read_text(typed.get("kind"))
    name, uid = read_text(named.get("name")), read_text(named.get("uid"))
    if _VERSION.fullmatch(version) and _KIND.fullmatch(kind) and _NAME.fullmatch(name):
        return Subject(version, kind, namespace, name), uid if _UID.fullmatch(uid) else ""
    return None


class DenialEvents:
    """The events of this process; safe for any number of threads.

    Args:
        access: of the cluster.
        count: called with what became of an event.
        pause_s: between two requests.
        repeat_s: after which an event is brought up to date.

    Raises:
        BadInput: the way to the cluster does not exist.
    """

    def __init__(
        self,
        access: ClusterAccess,
        count: Callable[[EventResult], None],
        *,
        pause_s: float = _PAUSE_S,
        repeat_s: float = _REPEAT_S,
    ) -> None:
        self._count = count
        self._pause_s, self._repeat_s = pause_s, repeat_s
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._waiting: dict[Denial, tuple[int, str]] = {}
        self._known: OrderedDict[Denial, _Written] = OrderedDict()
        self._complained = float("-inf")
        self._instance = socket.gethostname()[:_LONGEST_INSTANCE] or "gate"
        self._api = ClusterApi(access, self._sleep)
        self._api.connect()
        self._thread = threading.Thread(target=self._run, name="kubernetes-events", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def tell(self, review: Review, outcome: ReviewOutcome) -> None:
        """Queue the event about a review, if one is due; never wait, never raise."""
        found = denial_of(review, outcome)
        if found is None:
            return
        denial, uid = found
        with self._changed:
            count, known_uid = self._waiting.get(denial, (0, uid))
            if not count and len(self._waiting) >= _MAX_WAITING:
                self._count("dropped")
                return
            self._waiting[denial] = (count + 1, known_uid)
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, for two seconds at most, and stop."""
        self._stopping.set()
        with self._changed:
            self._changed.notify()
        self._thread.join(_FLUSH_S)
        self._api.close()

    def _sleep(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._changed:
                due = self._due()
                if due is None:
                    self._changed.wait(self._repeat_s / 10 if self._waiting else None)
                    continue
                count, uid = self._waiting.pop(due)
            self._write(due, count, uid)
            self._sleep(self._pause_s)
        end = time.monotonic() + _FLUSH_S
        while self._waiting and time.monotonic() < end:
            with self._changed:
                due, (count, uid) = self._waiting.popitem()
            self._write(due, count, uid)

    def _due(self) -> Denial | None:
        """Return the first event that is new, or whose last writing is long ago."""
        now = time.monotonic()
        for denial in self._waiting:
            known = self._known.get(denial)
            if known is None or now - known.at >= self._repeat_s:
                return denial
        return None

    def _write(self, denial: Denial, count: int, uid: str) -> None:
        try:
            known = self._known.pop(denial, None)
            if known is not None and time.monotonic() - known.at < _SERIES_S:
                known.count += count
                repeated = self._repeat(denial, known)
            else:
                repeated = False
            if not repeated:
                known = self._create(denial, count, uid)
            assert known is not None  # noqa: S101 - repeated, or created
            known.at = time.monotonic()
            self._known[denial] = known
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
            self._count("repeated" if repeated else "written")
        except CompatgateError as error:
            self._fail(error.detail, count)
        except Exception as error:  # of the client's library: the thread goes on
            self._fail(f"{type(error).__name__}: {quote_error(error)}", count)

    def _create(self, denial: Denial, count: int, uid: str) -> _Written:
        name = event_name(denial.subject.name)
        body = event_body(denial, name, self._instance, uid, count, clock.now())
        namespace = denial.subject.namespace
        self._api.ask("events", "create_namespaced_event", namespace, body)
        return _Written(name, 0.0, count)

    def _repeat(self, denial: Denial, known: _Written) -> bool:
        """Count repetitions in the event; return False if the cluster has forgotten it."""
        series = _series(known.count, clock.now())
        patch = [{"op": "add", "path": "/series", "value": series}]
        try:
            self._api.ask(
                "events", "patch_namespaced_event", known.name, denial.subject.namespace, patch
            )
        except ObjectMissing:
            return False
        return True

    def _fail(self, why: str, count: int) -> None:
        self._count("failed")
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN_S:
            self._complained = now
            _log.warning("no Kubernetes event was written about %d denials: %s", count, why)


def event_name(subject: str) -> str:
    """Return a new name for an event, as client-go makes them."""
    return f"{subject[:_LONGEST_SUBJECT].rstrip('.-')}.{time.time_ns():x}"


def event_body(
    denial: Denial, name: str, instance: str, uid: str, count: int, now: datetime
) -> dict[str, Any]:
    """Return the Event.

    Args:
        denial: about what.
        name: of the event.
        instance: of the gate.
        uid: of the subject; empty: unknown.
        count: how often it happened.
        now: when it last happened.
    """
    subject = denial.subject
    regarding = {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.name,
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": subject.namespace},
        "eventTime": _moment(now),
        "type": "Warning",
        "reason": denial.reason,
        "action": _ACTIONS[denial.reason],
        "note": denial.note,
        "regarding": {**regarding, "uid": uid} if uid else regarding,
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
        **({"series": _series(count, now)} if count > 1 else {}),
    }


def _series(count: int, now: datetime) -> dict[str, Any]:
    return {"count": count, "lastObservedTime": _moment(now)}


def _moment(now: datetime) -> str:
    """Return a ``MicroTime`` of Kubernetes.

    It needs six digits of a second, and the official client leaves out those of a whole one.
    """
    return f"{now.replace(microsecond=now.microsecond or 1):%Y-%m-%dT%H:%M:%S.%f}Z"


def event_access(name: str, namespace: str) -> list[dict[str, Any]]:
    """Return the role for writing events, and its binding.

    Args:
        name: of the gate's service account.
        namespace: of the gate.
    """
    rbac = "rbac.authorization.k8s.io"
    role = f"{name}-events"
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": name}
    rule = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}
    return [
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role, "labels": labels},
            "rules": [rule],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role, "labels": labels},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]
