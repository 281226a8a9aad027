"""What an API server accepts of events beyond their schema.

As ``ValidateEventCreate`` and ``ValidateEventUpdate`` of ``k8s.io/kubernetes/pkg/apis/core`` do for
``events.k8s.io/v1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(rf"({_SUBDOMAIN.pattern}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
"""``RFC3339Micro``: six digits of a second, no fewer."""
_LONGEST = {"reportingInstance": 128, "action": 128, "reason": 128}
_LONGEST_NOTE = 1024
_FIXED = ("regarding", "reason", "note", "type", "eventTime", "action", "reportingController")


def event_problems(event: Object) -> list[str]:
    """What is wrong with a new event."""
    return list(_problems(event))


def event_update_problems(old: Object, new: Object) -> list[str]:
    """What is wrong with a changed event."""
    changed = [name for name in _FIXED if old.get(name) != new.get(name)]
    return [*(f"{name}: field is immutable" for name in changed), *_problems(new)]


def _problems(event: Object) -> Iterator[str]:
    metadata, regarding = event["metadata"], event.get("regarding", {})
    if len(metadata["name"]) > 253 or not _SUBDOMAIN.fullmatch(metadata["name"]):
        yield "metadata.name: a lowercase RFC 1123 subdomain"
    if regarding.get("namespace", "default") != metadata.get("namespace"):
        yield "regarding.namespace: does not match event.namespace"
    if not _MOMENT.fullmatch(event.get("eventTime", "")):
        yield "eventTime: required, in microseconds"
    if event.get("type") not in ("Normal", "Warning"):
        yield "type: has invalid value"
    if not _QUALIFIED.fullmatch(event.get("reportingController", "")):
        yield "reportingController: a qualified name"
    for name, most in _LONGEST.items():
        if not 0 < len(event.get(name, "").encode()) <= most:
            yield f"{name}: required, at most {most} bytes"
    if len(event.get("note", "").encode()) > _LONGEST_NOTE:
        yield f"note: at most {_LONGEST_NOTE} bytes"
    series = event.get("series")
    if series and series["count"] < 2:
        yield "series.count: should be at least 2"
    if series and not _MOMENT.fullmatch(series.get("lastObservedTime", "")):
        yield "series.lastObservedTime: required"
