"""Events about denials: in the cluster, bounded, and never in the way of an answer."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from api_objects import VERSIONS, Fault, Objects
from api_server import kubeconfig, serving
from cluster_events import event_problems

from compatgate.errors import BadInput
from compatgate.kit import clock, cluster_api
from compatgate.kit.kubernetes import ClusterAccess
from compatgate.service.admission import events
from compatgate.service.admission.events import DenialEvents, denial_of, event_access, event_body
from compatgate.service.admission.outcome import ReviewOutcome
from compatgate.service.admission.review import Review

OUTCOME = ReviewOutcome("denied", reason="container app may not run on prod-a100: CG201 no code")
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4", "uid": "u-2"}


def review(name: str = "trainer", *, dry_run: bool = False, **metadata: Any) -> Review:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}}
    return Review("u", "CREATE", "", "Pod", "", "ml-train", dry_run, document, None)


@pytest.fixture
def objects() -> Iterator[Objects]:
    with serving(Objects()) as running:
        yield running


@pytest.fixture
def counted() -> Counter[str]:
    return Counter()


@pytest.fixture
def written(
    objects: Objects,
    counted: Counter[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., DenialEvents]]:
    """Makes writers of events to the cluster."""
    monkeypatch.setattr(cluster_api, "_PAUSES", (0.01,))
    access = ClusterAccess(kubeconfig(tmp_path, objects.url))
    made: list[DenialEvents] = []

    def make(**options: float) -> DenialEvents:
        options = {"pause_s": 0.0, "repeat_s": 0.05, **options}
        made.append(DenialEvents(access, lambda result: counted.update([result]), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def stored(objects: Objects) -> list[dict[str, Any]]:
    return [body for (kind, _, _), body in objects.stored.items() if kind == "events"]


def test_equal_denials_are_one_event_in_the_cluster_with_their_number(
    objects: Objects, counted: Counter[str], written: Callable[..., DenialEvents]
) -> None:
    teller = written()
    teller.tell(review(), OUTCOME)
    until(lambda: counted["written"] == 1)
    for _ in range(4):
        teller.tell(review(), OUTCOME)
    until(lambda: sum(e.get("series", {}).get("count", 1) for e in stored(objects)) == 5)
    teller.tell(review(), ReviewOutcome("would_deny", reason="compatgate: would be denied"))
    teller.tell(review(dry_run=True), ReviewOutcome("denied", reason="not for a dry run"))
    for result in ("allowed", "warned", "exempt", "unmatched", "failed"):
        teller.tell(review(), ReviewOutcome(result))
    until(lambda: len(stored(objects)) == 2)
    denied, would_deny = stored(objects)
    assert (denied["reason"], denied["action"]) == ("CompatgateDenied", "Deny")
    assert denied["note"] == OUTCOME.reason
    assert denied["regarding"]["name"] == "trainer"
    assert (would_deny["reason"], would_deny["action"]) == ("CompatgateWouldDeny", "Admit")
    assert would_deny["note"] == "would be denied"


def test_an_event_that_the_cluster_has_forgotten_is_written_anew(
    objects: Objects, counted: Counter[str], written: Callable[..., DenialEvents]
) -> None:
    teller = written()
    teller.tell(review(), OUTCOME)
    until(lambda: counted["written"] == 1)
    with objects.changed:
        objects.stored.clear()
    teller.tell(review(), OUTCOME)
    until(lambda: counted["written"] == 2)
    assert len(stored(objects)) == 1


@pytest.mark.parametrize(
    ("status", "counts"),
    [(403, {"failed": 1, "written": 1}), (404, {"failed": 1, "written": 1}), (503, {"written": 2})],
)
def test_a_cluster_that_refuses_costs_the_event_and_one_that_is_busy_is_asked_again(
    objects: Objects,
    counted: Counter[str],
    written: Callable[..., DenialEvents],
    status: int,
    counts: dict[str, int],
) -> None:
    objects.faults.append(Fault("POST", "/events", status))
    teller = written()
    teller.tell(review("first"), OUTCOME)
    until(lambda: counted.total() == 1)
    teller.tell(review("second"), OUTCOME)
    until(lambda: counted.total() == 2)
    assert counted == counts


def test_a_stalled_cluster_holds_up_nobody_and_what_does_not_fit_is_counted(
    counted: Counter[str], written: Callable[..., DenialEvents], monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled = threading.Event()
    monkeypatch.setattr(events, "_MAX_WAITING", 3)
    monkeypatch.setattr(cluster_api.ClusterApi, "ask", lambda *_, **__: stalled.wait(30))
    teller = written()
    teller.tell(review("first"), OUTCOME)
    until(lambda: not teller._waiting)
    began = time.monotonic()
    for number in range(100):
        teller.tell(review(f"p{number}"), OUTCOME)
    assert time.monotonic() - began < 5
    assert counted == {"dropped": 97}
    stalled.set()
    until(lambda: counted["written"] == 4)


_LABEL = "a" * 63
SUBJECTS: list[tuple[str, dict[str, Any], str, tuple[str, str, str]]] = [
    ("a pod", {"uid": "u-1"}, "trainer", ("Pod", "trainer", "u-1")),
    ("its controller", {"ownerReferences": [{**OWNER, "controller": True}]}, "web-6d4-x",
     ("ReplicaSet", "web-6d4", "u-2")),
    ("an owner that is no controller", {"ownerReferences": [OWNER]}, "x", ("Pod", "x", "")),
    ("no name", {"generateName": "x-"}, "", ("Namespace", "ml-train", "")),
    ("a hostile name", {}, "../../x", ("Namespace", "ml-train", "")),
    ("a hostile owner", {"ownerReferences": [{"controller": True, "kind": "a b", "name": 1}]}, "x",
     ("Pod", "x", "")),
    ("a long name", {}, f"{_LABEL}.{_LABEL}.{_LABEL}.{_LABEL[:61]}",
     ("Pod", f"{_LABEL}.{_LABEL}.{_LABEL}.{_LABEL[:61]}", "")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("metadata", "name", "subject"), [pytest.param(*c[1:], id=c[0]) for c in SUBJECTS]
)
def test_the_subject_outlives_the_pod_and_the_event_is_valid(
    metadata: dict[str, Any], name: str, subject: tuple[str, str, str]
) -> None:
    long = ReviewOutcome("denied", reason="compatgate: a\nb\x00\ud800 " + "ü" * 2000)
    found = denial_of(review(name, **metadata), long)
    assert found is not None
    denial, uid = found
    assert (denial.subject.kind, denial.subject.name, uid) == subject
    assert denial.note.startswith("a b ü")
    for count in (1, 7):
        made = events.event_name(denial.subject.name)
        body = event_body(denial, made, "gate-0", uid, count, clock.now())
        assert event_problems(body) == []
        for version in VERSIONS:
            kubernetes_validate.validate(body, version, strict=True)


def test_an_object_without_a_namespace_has_no_event() -> None:
    assert denial_of(Review("u", "CREATE", "", "Pod", "", "", False, {}, None), OUTCOME) is None
    odd = Review("u", "CREATE", "", "Pod", "", "../kube-system", False, {}, None)
    assert denial_of(odd, OUTCOME) is None


def test_the_role_is_valid_and_may_write_events_and_nothing_else() -> None:
    role, binding = event_access("compatgate", "gate")
    for version in VERSIONS:
        kubernetes_validate.validate(role, version, strict=True)
        kubernetes_validate.validate(binding, version, strict=True)
    assert role["rules"] == [
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}
    ]


def test_without_a_way_to_the_cluster_the_start_fails(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        DenialEvents(ClusterAccess(str(tmp_path / "none")), lambda _: None)


def test_a_whole_second_is_sent_with_its_six_digits(
    objects: Objects, written: Callable[..., DenialEvents], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = clock.now().replace(microsecond=0)
    monkeypatch.setattr(clock, "now", lambda: whole)
    written().tell(review(), OUTCOME)
    until(lambda: len(stored(objects)) == 1)
