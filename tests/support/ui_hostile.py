"""A gate that somebody hostile has written to, wherever it takes text from others."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml
from ui_runs import Runs

from compatgate.canary.engine import BaselineKey, Lease
from compatgate.canary.hosts import Host
from compatgate.canary.judge.result import Samples
from compatgate.canary.judge.workload import judge_reports
from compatgate.canary.run import Check, Device, Env, Metric, Report, StepResult
from compatgate.canary.workload import MetricSpec
from compatgate.documents.sources import Source
from compatgate.errors import CompatgateError, Conflict
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.audit import chain as audit
from compatgate.service.changes.upgrades.schemas import UpgradeRequest
from compatgate.service.matrix.proposals.repository import add_event, find_proposal
from compatgate.service.nodes.schemas import Report as NodesReport

LINE = (
    "hostile<script>hostile()</script>\"'><img src=x onerror=hostile()><hostile hostile=1>"
    "</textarea></title></pre><!-- --><svg/onload=hostile()>{{7*191}}${7*191}{%7%}&lt;b&gt;"
    "javascript:hostile() \u202eesrever\u202c \u2028 \u00a0\uff1chostile\uff1e"
)
"""Of what a single line may be made; no component of it may become part of a page."""
TEXT = f'{LINE}\n=HYPERLINK("http://hostile")\r\n\x1b[31m\x01\x7f {"w" * 5000}'
FORMULA = "=cmd|' /C hostile'!A0"
SHORT = "<hostile onload=1>\"'{{7*191}}"
_SCRIPT = "javascript:hostile()//https://"
BY = Authorship(LINE, TEXT)
STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": "sm_80"}
RUN_HOST = f"{LINE[:200]}"


def fill_hostile(database: str, folder: Path) -> tuple[Rooms, dict[str, str]]:
    """Write hostile text into an empty database, in every field that takes it.

    Args:
        database: URL.
        folder: to write fact files and workloads into.

    Returns:
        The gate, and names for `ui_marks.place`.
    """
    rooms = open_rooms(database, overlays=[_facts(folder)])
    _matrix(rooms)
    names = {
        "proposals/id": _approval(rooms),
        "targets/name": "prod",
        "entries/name": "torch24",
        "waivers/name": "excepted",
        "revisions/number": "1",
        "facts/table": "known_issues",
        "facts/name": "KI-H",
        "rules/id": "CG701",
        "suites/name": "hello",
        "workloads/name": "conv-forward",
        "rest": "x",
        "<path:rest>/rest": LINE,
    }
    names["verdicts/verdict_id"] = rooms.gate.decide(
        {"target": "prod", "stack": STACK, "image": LINE}, asked_by=LINE, source=LINE
    ).id
    rooms.gate.decide(
        {"target": "prod", "stack": {"cuda": "99.9"}}, asked_by=FORMULA, source=FORMULA
    )
    packages = {"cuda": "12.4", "hostile-gpu": "1.0"}
    rooms.gate.decide({"target": "prod", "stack": packages}, asked_by=LINE, source=LINE)
    names |= _runs(rooms, folder)
    names |= _nodes(rooms)
    names["incidents/id"] = _incident(rooms)
    names["upgrades/name"] = _upgrade(rooms)
    with rooms.gate.database.writing() as session:
        for action in (LINE, FORMULA):
            audit.append(
                session, at=clock.now(), actor=action, action=action, subject=action,
                detail={LINE: TEXT, "list": [LINE, {LINE: LINE}], "revision": LINE},
            )  # fmt: skip
    return rooms, names


def _facts(folder: Path) -> str:
    """An overlay by somebody who may edit facts, which is much; its addresses run nothing."""
    issue = {
        "id": "KI-H",
        "title": LINE,
        "components": {"cuda": ">=12"},
        "outcome": "warn",
        "message": TEXT.replace("\x1b", "").replace("\x01", "").replace("\x7f", ""),
        "source": f"{LINE} - {_SCRIPT}hostile.example",
        "confidence": "published",
    }
    path = folder / "hostile.yaml"
    path.write_text(yaml.safe_dump({"schema": "facts/known_issues/v1", "issues": [issue]}))
    return str(path)


def _approval(rooms: Rooms) -> str:
    """Ask for a change that waits for a second person, with a comment of an earlier release."""
    pool = {"name": "a100", "gpu": "A100-SXM4-80GB", "driver": "535.183.01"}
    spec = {"pools": [pool], "policy": {"approvals": 2}}
    metadata = {"name": "two", "labels": {"hostile": "javascript:hostile"}}
    rooms.matrix.create("Target", {"metadata": metadata, "spec": spec}, Authorship(LINE, TEXT))
    with suppress(Conflict):
        rooms.matrix.delete("Target", "two", Authorship(LINE, TEXT))
    (asked,) = rooms.proposals.list().items
    with rooms.gate.database.writing() as session:
        row = find_proposal(session, asked.row.id)
        add_event(session, row, "comment", actor=LINE, identity="local:old", text=TEXT)
    return asked.row.id


def _matrix(rooms: Rooms) -> None:
    labels = {"hostile": "javascript:hostile"}
    pool = {"name": "a100", "gpu": "A100-SXM4-80GB", "driver": "535.183.01", "count": 4}
    target = {
        "pools": [pool],
        "match": {"namespaces": ["*"], "nodeLabels": {"kubernetes.io/os": "linux"}},
        "policy": {"canary": {"require": True, "suites": ["smoke"]}, "packages": "audit"},
    }
    entry = {
        "targets": ["prod"],
        "components": {"driver": ">=535", "cuda": "12.4.*", "torch": "~=2.4.0"},
        "status": "deprecated",
        "reason": TEXT,
        "replacement": LINE,
    }
    waiver = {
        "rules": ["CG803"],
        "targets": ["prod"],
        "owner": LINE,
        "reason": TEXT,
        "expires": (clock.today() + timedelta(days=3)).isoformat(),
        "match": {"image": LINE},
    }
    documents = (
        ("Target", "prod", {"labels": labels}, target),
        ("Target", "strange", {}, {"pools": [{**pool, "gpu": LINE, "driver": LINE}]}),
        ("Entry", "torch24", {}, entry),
        (
            "Entry",
            "told",
            {},
            {**entry, "status": "blessed", "replacement": FORMULA, "evidenceOverride": LINE},
        ),
        ("Waiver", "excepted", {}, waiver),
        ("Waiver", "formula", {}, {**waiver, "owner": FORMULA, "reason": FORMULA}),
    )
    for kind, name, more, spec in documents:
        try:
            rooms.matrix.create(kind, {"metadata": {"name": name, **more}, "spec": spec}, BY)
        except CompatgateError as error:
            assert name == "strange", error  # noqa: PT017 - what is refused is told in its words
    rooms.matrix.import_documents(
        [Source("again.yaml", yaml.safe_dump({"apiVersion": "compatgate.dev/v1", "kind": "Entry",
         "metadata": {"name": "third"}, "spec": {**entry, "reason": FORMULA}}))],
        Authorship(FORMULA, FORMULA),
    )  # fmt: skip


def _incident(rooms: Rooms) -> str:
    """Return a snoozed incident."""
    rooms.incidents.survey()
    number = rooms.incidents.list(kind="waiver-ending").items[0].id
    rooms.incidents.snooze(number, clock.now() + timedelta(days=1), Authorship(LINE, TEXT))
    return str(number)


def _upgrade(rooms: Rooms) -> str:
    """Propose and stop an upgrade of a node."""
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/cuda.driver-version.full": "535.183.01",
        "topology.kubernetes.io/rack": "javascript-hostile",
    }
    node = {"name": "javascript-rolled", "target": "prod", "labels": labels}
    body = {"cluster": "javascript", "nodes": [node]}
    rooms.nodes.report(msgspec.convert(body, NodesReport), by=LINE)
    accepts = list(rooms.gate.snapshot().entries)
    asked = UpgradeRequest("roll", "prod", "580.95.05", accepts=accepts)
    rooms.upgrades.propose(asked, BY)
    rooms.upgrades.stop("roll", BY)
    return "roll"


def _runs(rooms: Rooms, folder: Path) -> dict[str, str]:
    runs = Runs(rooms, folder / "workloads")
    host = Host(RUN_HOST, executor="process", gpu="A100-SXM4-80GB", driver="535.183.01", slots=9)
    bare = Host(FORMULA, executor="process", health="none", slots=9)
    rooms.runs.queue.register(LINE, [host, bare])
    ended = _run(runs, host)
    rooms.runs.queue.record(ended, _step())
    rooms.runs.queue.write(ended, LINE, TEXT.encode())
    rooms.runs.queue.finish(ended, "failed", TEXT, None)
    going = _run(runs, host)
    rooms.runs.queue.record(going, _step())
    rooms.runs.queue.write(going, LINE, TEXT.encode())
    rooms.runs.queue.say(going, LINE, 0.5)
    ground = BaselineKey(LINE[:200], SHORT, LINE[:200])
    spec = MetricSpec(SHORT, "lower")
    values = tuple(8 + i / 100 for i in range(40))
    for run in ("run_0", "run_a", "run_b"):
        rooms.baselines.offer(ground, {LINE: spec}, run, [Samples(LINE, SHORT, (values,))])
    newest = rooms.baselines.list().items[0].id
    rooms.baselines.approve(newest, by=LINE)
    rooms.baselines.offer(ground, {LINE: spec}, "run_c", [Samples(LINE, SHORT, (values,))])
    return {"runs/id": going.run.id, "runs/name": SHORT, "baselines/id": str(newest)}


def _run(runs: Runs, host: Host) -> Lease:
    rooms = runs.rooms
    asked: dict[str, Any] = {"target": "prod", "stack": STACK}
    run = runs.submit(**asked, host=host.name)
    lease = rooms.runs.queue.lease(LINE, [host])
    assert lease is not None
    assert lease.run.id == run
    rooms.runs.queue.enter(lease, "running")
    return lease


def _step() -> StepResult:
    values = tuple(8 + i / 100 for i in range(40))
    env = Env(
        driver=LINE,
        gpus=(Device(LINE, uuid=LINE, pci=LINE, mig=LINE, compute_capability=LINE),),
        versions={LINE: LINE, "cuda": LINE},
        paths={LINE: LINE},
        other={LINE: [LINE, {LINE: LINE}]},
    )
    report = Report(
        env, (Metric(LINE, LINE, values),), (Check(LINE, False, TEXT),), problems=(LINE,)
    )
    judged = judge_reports({LINE: MetricSpec(LINE, "lower")}, [], [report], {})
    return StepResult(
        SHORT, LINE, 0, "failed", LINE, image=LINE,
        report=msgspec.to_builtins(report), judgement=msgspec.to_builtins(judged),
    )  # fmt: skip


def _nodes(rooms: Rooms) -> dict[str, str]:
    line = "".join(c for c in LINE if " " <= c <= "~")[:120]
    node = {
        "name": "javascript-hostile",
        "target": "prod",
        "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "hostile": "javascript"},
        "allocatable": {"nvidia.com/gpu": 7},
        "probe": {"driver": line, "cuda": line, "gpus": [{"gpu": line, "count": 2}]},
    }
    body = {"cluster": "javascript", "nodes": [node]}
    rooms.nodes.report(msgspec.convert(body, NodesReport), by=LINE)
    return {"nodes/name": node["name"], "nodes/cluster": "javascript"}
