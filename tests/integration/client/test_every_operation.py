"""Every operation of the API, asked of a running service by the client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from canary_runs import GPU, evidence, host

from compatgate.canary.engine import BaselineKey, Lease
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import StepResult
from compatgate.canary.workload import MetricSpec
from compatgate.client.operations import Operations
from compatgate.documents.specs import (
    EntrySpec,
    MatchSpec,
    Metadata,
    PolicySpec,
    PoolSpec,
    TargetMetadata,
    TargetSpec,
)
from compatgate.errors import (
    BadInput,
    Conflict,
    Forbidden,
    ManyProblems,
    NotFound,
    PreconditionFailed,
)
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.cluster.schemas import REVIEW_EXAMPLES
from compatgate.service.gate.decisions.batch_store import Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.far.gate import make_requests
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.gate.questions.schemas import GateRequest
from compatgate.service.matrix.documents.schemas import WAIVER, EntryChange, TargetChange
from compatgate.service.matrix.proposals.schemas import ProposalRequest, ProposedPool
from compatgate.service.nodes.schemas import DriverReport, NodeReport, SeenGpus

Call = Callable[..., Any]
_NONE = "0" * 12
STACK: dict[str, Any] = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
OPERATIONS = {name for name in vars(Operations) if not name.startswith("_")}
_driven: set[str] = set()


@pytest.fixture
def call(call: Call) -> Call:
    """As the one of all tests; remembers what was called."""

    def calling(operation: str, /, *args: Any, **named: Any) -> Any:
        _driven.add(operation)
        return call(operation, *args, **named)

    return calling


@pytest.fixture
def lease(call: Call, worker: Rooms) -> Iterator[Lease]:
    """A run that a worker has."""
    worker.runs.queue.register("w1", [host()])
    call("submit_runs", "smoke", target="prod-a100", stack=STACK, image="registry.example/app:1")
    found = worker.runs.queue.lease("w1", [host()])
    assert found
    yield found
    if worker.runs.show(found.run.id).run.state == "leased":  # a run that measures has its host
        worker.runs.queue.finish(found, "cancelled", "", None)
    for run in worker.runs.list(state="active").items:
        worker.runs.cancel(run.id, by="tester")


def test_asking(call: Call) -> None:
    verdict = call("ask", target="prod-a100", stack=STACK)
    assert (verdict.verdict, verdict.allowed) == ("warn", True)
    assert verdict.findings[0].fixes is not None
    again = call("ask", GateRequest(target="prod-a100", stack=STACK))
    assert again.id == verdict.id
    assert call("show_verdict", verdict.id).id == verdict.id
    denied = call("ask", target="prod-a100", stack={"torch": "2.9.1+cu130"})
    assert call("show_resolution", denied.id).remedies
    older = call("preview", at=1, target="prod-a100", stack={"cuda": "12.4"})
    assert older.matrix_revision == 1
    assert call("preview", {"pool": {"gpu": "L4", "driver": "550.54.15"}, "stack": STACK}).pools
    decisions = call("list_decisions", target="prod-a100", verdict_id=verdict.id)
    assert {d.outcome for d in decisions} == {"warn"}
    assert call("show_decision", decisions[0].id) == decisions[0]
    assert call("openapi")["openapi"] == "3.1.0"


def test_delivering_the_decisions_of_a_far_gate(call: Call) -> None:
    name = call("show_caller").name
    asked_by = f"{uuid4().hex}@{name}"
    verdict = call("ask", target="prod-a100", stack=STACK)
    decision = NewDecision(
        verdict.id, datetime.now(UTC), "prod-a100", verdict.verdict, verdict.allowed,
        verdict.matrix_revision, None, asked_by, "rest", 90,
    )  # fmt: skip
    (body,) = make_requests([Delivery(WriterChain(name).make([decision], {}), {}, late=True)])
    assert call("deliver_decisions", body).stored == 1
    found = call("deliver_decisions", body)
    assert (found.writer, found.sequence, found.stored, found.known) == (body["writer"], 1, 0, 1)
    (decided,) = call("list_decisions", asked_by=asked_by)
    assert decided.verdict_id == verdict.id


def test_working_for_a_host(call: Call, lease: Lease) -> None:
    name, held = lease.host, (lease.run.id, lease.attempt)
    declared = {"worker": "w2", "at": datetime.now(UTC).isoformat(), "executor": "docker"}
    assert call("declare_host", name, {**declared, "gpu": GPU, "slots": 4}).worker == "w2"
    assert call("report_host", name, away="no answer").away_why == "no answer"
    assert call("report_host", name).away_why is None
    assert call("lease_run", name, {**declared, "gpu": GPU, "slots": 4}).lease is None
    assert call("find_ended_runs", name, ["run_none", lease.run.id]).runs == []
    assert call("queue_verifications", name, "w2", 86400).runs == []
    key = {"workload": "gemm@0", "sku": GPU, "family": "none"}
    assert call("list_approved_baselines", name, **key).baselines == {}
    offer = {**key, "run": f"{lease.run.id}:gemm-0", "metrics": {}, "found": []}
    assert call("offer_baselines", name, offer).order == "go"
    assert call("renew_lease", *held, state="running", doing="running gemm-0").order == "go"
    assert call("write_output", *held, "gemm-0", b"began\n").order == "go"
    step = {"name": "gemm-0", "workload": "gemm", "seed": 0, "outcome": "passed"}
    assert call("record_step", *held, step).order == "go"
    assert [one["name"] for one in call("list_recorded_steps", *held).steps] == ["gemm-0"]
    assert call("show_past", *held, steps="gemm-0", hung="gemm-0", digest="0").in_time == ""
    assert call("store_pairs", *held, [{}]).order == "go"
    assert call("list_earlier_pairs", *held).pairs is not None
    assert call("end_run", *held, "inconclusive", "nothing was measured").order == "go"
    with pytest.raises(Conflict, match="does not have the run"):
        call("renew_lease", *held)


def test_naming_the_cause_of_an_error(call: Call) -> None:
    text = "CUDA driver version is insufficient for CUDA runtime version"
    (plain,) = call("triage", text).causes
    assert (plain.id, plain.confidence, plain.here) == ("driver-too-old", "likely", None)
    pool = {"gpu": "A100-SXM4-80GB", "driver": "450.80.02"}
    (cause,) = call("triage", text, pool=pool, stack={"cuda": "12.4"}).causes
    assert cause.here.outcome == "fails"
    assert cause.fixes[0].verified
    assert call("triage", "fatal: not a git repository").causes == []


def test_signed_verdicts_and_badges(call: Call) -> None:
    verdict = call("ask", target="prod-a100", stack=STACK)
    (key,) = call("list_keys").keys
    signed = call("show_attestation", verdict.id)
    assert [signature.keyid for signature in signed.signatures] == [key.kid]
    assert [signature.keyid for signature in call("show_bundle").signatures] == [key.kid]
    assert call("stack_badge", "prod-a100", "cuda=12.4,cudnn=9.1.0").startswith("<svg")
    assert "blessed" in call("entry_badge", "prod-a100", "torch24-cu124")


def test_checking_a_manifest(call: Call) -> None:
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"compatgate.dev/stack": "cuda=12.4"}},
        "spec": {"containers": [{"name": "c", "image": "i:1", "resources": resources}]},
    }
    answer = call("check_manifest", pod, namespace="ml-train", timeout="9s")
    assert answer.uses_gpus
    assert answer.results[0].paths == ("spec.containers[0]",)
    assert not call("check_manifest", {**pod, "kind": "Service"}).uses_gpus or answer.warnings == ()


def test_what_if(call: Call) -> None:
    found = call("what_if", {"target": "prod-a100", "set": {"driver": "580.95.05"}})
    assert found.target == "prod-a100"
    assert {entry.entry for entry in found.entries} >= {"torch24-cu124"}


def test_solve(call: Call) -> None:
    found = call("solve", {"target": "prod-a100", "want": {"torch": "*"}, "limit": 1})
    assert found.found
    again = call("preview", target="prod-a100", stack=found.stacks[0].stack)
    assert again.id == found.stacks[0].verdicts[0].id


def test_syncing_documents(call: Call) -> None:
    name = "synced-one"
    document = {"apiVersion": "compatgate.dev/v1", "kind": "Waiver", "metadata": {"name": name}}
    document["spec"] = {**WAIVER["spec"], "expires": str(date.today() + timedelta(days=7))}
    made = call("sync_matrix", [document], reason="from Git", name="git-one")
    assert (made.changes[0].action, made.left) == ("create", [])
    again = call("sync_matrix", [document], reason="from Git", name="git-one", dry_run=True)
    assert (again.changes, again.unchanged) == ([], 1)


def test_backtest(call: Call) -> None:
    call("ask", target="prod-a100", stack=STACK)
    found = call("backtest", {"delete": [{"kind": "Entry", "name": "torch24-cu124"}]})
    assert found.counts.newly_denied.questions >= 1
    assert {group.rule for group in found.groups} == {"CG801"}


def test_plan(call: Call) -> None:
    found = call("plan", "prod-a100", {"upgrade": ["driver=580"]})
    assert found.set["driver"].startswith("580.")
    assert "torch24-cu124" in found.entries_yaml
    assert {edit.entry for edit in found.edits} >= {"torch24-cu124"}


def test_dependents(call: Call) -> None:
    found = call("list_dependents", "torch24-cu124")
    assert [one.target for one in found.targets] == ["prod-a100"]


def test_report(call: Call) -> None:
    found = call("report", "prod-a100", since="2026-01-01")
    assert found.target == "prod-a100"
    assert {change.name for change in found.changes} >= {"torch24-cu124"}
    everywhere = call("report_all", since="2026-01-01")
    assert all(change in everywhere.changes for change in found.changes)


def test_targets(call: Call) -> None:
    name = "lab-one"
    spec = TargetSpec((PoolSpec("l4", "L4", "550.54.15"),))
    made = call("create_target", TargetChange(metadata=TargetMetadata(name), spec=spec), reason="+")
    assert made.spec == spec
    with pytest.raises(ManyProblems, match="pools is missing") as wrong:
        call("create_target", {"metadata": {"name": "other"}, "spec": {}}, reason="+")
    assert wrong.value.problems[0].field == "spec"
    with pytest.raises(Conflict, match="exists"):
        call("create_target", made_with(made, labels={}), reason="again")
    changed = call("change_target", name, made_with(made, labels={"tier": "lab"}), reason="label",
                   if_match=made.revision)  # fmt: skip
    assert changed.metadata.labels == {"tier": "lab"}
    with pytest.raises(PreconditionFailed) as refused:
        call("delete_target", name, reason="old", if_match=made.revision)
    assert (refused.value.status, refused.value.field) == (412, "If-Match")
    assert call("show_target", name) == changed
    assert [t.metadata.name for t in call("list_targets", label="tier=lab", search="lab")] == [name]
    assert call("list_targets", owner="nobody") == []
    assert [p.name for p in call("list_target_pools", name)] == ["l4"]
    assert name in {p.target for p in call("list_pools", gpu="L4", driver="550.54.15")}
    revision = call("delete_target", name, reason="gone", if_match=f'"r{changed.revision}"')
    assert revision.revision > changed.revision
    with pytest.raises(NotFound, match=f"target '{name}' does not exist"):
        call("show_target", name)


def made_with(target: Any, labels: dict[str, str]) -> TargetChange:
    return TargetChange(
        metadata=TargetMetadata(target.metadata.name, labels=labels), spec=target.spec
    )


def test_entries(call: Call) -> None:
    name = "torch-one"
    spec = EntrySpec(("prod-a100",), {"cuda": "12.4.*"}, "candidate")
    made = call("create_entry", EntryChange(metadata=Metadata(name), spec=spec), reason="try")
    assert call("show_entry", name).promotion.state == "waiting"
    found = call("list_entries", target="prod-a100", status="candidate", component="cuda")
    assert name in {e.metadata.name for e in found}
    assert call("list_entries", label="tier=lab", owner="nobody") == []
    blessed = {"metadata": {"name": name}, "spec": {"targets": ["prod-a100"],
               "components": {"cuda": "12.4.*"}, "status": "blessed"}}  # fmt: skip
    assert call("change_entry", name, blessed, reason="bless").spec.status == "blessed"
    assert call("delete_entry", name, reason="gone").revision > made.revision


def test_waivers(call: Call) -> None:
    name = "ocr-one"
    body = {"metadata": {"name": name}, "spec": WAIVER["spec"]}
    made = call("create_waiver", body, reason="until it moved")
    assert call("show_waiver", name) == made
    assert call("change_waiver", name, body, reason="the same").revision == made.revision
    found = call("list_waivers", owner="team-ocr", active_on=date(2027, 1, 1))
    assert name in {w.metadata.name for w in found}
    call("delete_waiver", name, reason="moved")


def test_the_matrix_and_its_history(call: Call) -> None:
    documents = call("export_matrix")
    assert {d["kind"] for d in documents} == {"Target", "Entry", "Waiver"}
    same = call("import_matrix", documents, reason="again", dry_run=True)
    assert (same.changes, same.unchanged, same.revision) == ([], len(documents), None)
    text = (
        "apiVersion: compatgate.dev/v1\nkind: Entry\n"
        "metadata: {name: yaml-one}\n"
        'spec: {targets: ["*"], components: {cuda: "11.8.*"}, status: candidate}\n'
    )
    made = call("import_matrix", text, reason="größer\nnext line", file="entry.yaml")
    assert [c.name for c in made.changes] == ["yaml-one"]
    since = datetime.now(UTC) - timedelta(days=1)
    (revision,) = call("list_revisions", name="yaml-one", kind="Entry", since=since)
    assert (revision.number, revision.reason) == (made.revision, "größer\nnext line")
    assert call("list_revisions", until=datetime(2020, 1, 1)) == []
    assert call("show_revision", revision.number).changes[0].name == "yaml-one"
    assert call("diff_revisions", revision.number).older == revision.number - 1
    assert call("diff_revisions", revision.number, older=0).changes[0].kind == "Target"
    assert len(call("export_matrix", revision=revision.number)) == len(documents) + 1


def test_what_enforcing_packages_would_stop(call: Call) -> None:
    pool = PoolSpec("l4", "L4", "550.54.15")
    spec = TargetSpec((pool,), policy=PolicySpec(packages="audit"))
    name = "old-one"
    call("create_target", TargetChange(metadata=TargetMetadata(name), spec=spec), reason="+")
    call("ask", target=name, stack={**STACK, "xformers": "0.0.99"})
    (found,) = call("packages_report", target=name, since=date(2026, 1, 1), decisions=5).targets
    assert [(p.package, p.stopped) for p in found.packages] == [("xformers", 1)]
    call("delete_target", name, reason="gone")


def test_facts_and_rules(call: Call) -> None:
    assert "gpus" in {table.name for table in call("list_tables").tables}
    (record,) = call("list_facts", "gpus", search="A100-SXM4-80GB")
    assert record.record["name"] == "A100-SXM4-80GB"
    assert call("show_fact", "gpus", "a100 sxm4 80gb")["gpus"]
    rules = call("list_rules")
    assert call("show_rule", "CG101") in rules


def test_runs(call: Call, lease: Lease, worker: Rooms) -> None:
    queue = worker.runs.queue
    queue.write(lease, "gemm-0", "größe\x85one\u2028line\ntwo".encode())
    queue.record(lease, StepResult("gemm-0", "gemm", 0, "passed", exit_code=0))
    assert call("show_logs", lease.run.id) == [
        "==> gemm-0, attempt 1 <==\n",
        "größe\x85one\u2028line\n",
        "two",
    ]
    queue.finish(lease, "passed", "", evidence(lease))
    events = call("follow_run", lease.run.id)
    assert [e.name for e in events] == ["state", "output", "end"]
    assert events[1].data["text"].endswith("two")
    assert call("show_run", lease.run.id).steps[0].outcome == "passed"
    taken = call("take_samples", lease.run.id, step="gemm-0")
    assert (taken.samples, taken.refused[0].step) == ([], "gemm-0")
    (kept,) = call("list_evidence", run=lease.run.id, outcome="passed")
    assert kept.sku == GPU
    gone = call("discard_run", lease.run.id, reason="the host's PSU failed").evidence
    assert (gone.pool.judged, gone.discarded.reason) == (0, "the host's PSU failed")
    (again,) = call("rerun", lease.run.id).runs
    assert again.id in {run.id for run in call("list_runs", state="queued", target="prod-a100")}
    assert call("cancel_run", again.id).state == "cancelled"


def test_what_runs_are_made_of(call: Call, lease: Lease) -> None:
    assert [h.name for h in call("list_hosts", gpu=GPU)] == ["a100-1"]
    assert "hello" in {suite.name for suite in call("list_suites")}
    assert "hello-cpu" in {workload.name for workload in call("list_workloads")}
    assert call("list_metric_histories", workload="hello-cpu", runs=10) == []


def test_imported_reports(call: Call) -> None:
    lines = ({"type": "env", "host": "one"}, {"type": "check", "name": "finished", "ok": True})
    report = "".join(json.dumps(line) + "\n" for line in lines)
    about = {"sku": GPU, "driver": "535.183.01", "measured_at": datetime(2026, 1, 2, tzinfo=UTC)}
    source = call("show_caller").name
    with pytest.raises(Forbidden, match="is not the source lab"):
        call("import_report", report, "lab", **about)
    (made,) = call("import_report", report, source, **about).runs
    assert (made.source, made.state, made.on_host) == (f"jsonl@{source}", "passed", "one")
    (step,) = call("show_run", made.id).steps
    assert (step.imported.trust, step.imported.source) == ("stated", source)
    with pytest.raises(BadInput, match="no JSON of dcgmi") as refused:
        call("import_report", "{}", source, format="dcgm", file="report.json", **about)
    assert refused.value.field == "file"


def test_baselines(call: Call, worker: Rooms) -> None:
    ground = BaselineKey("gemm@one", GPU, "cuda-12.4")
    spec = {"latency": MetricSpec("ms", "lower", repetitions=2)}
    for run in ("run_1", "run_2", "run_3"):
        worker.baselines.offer(ground, spec, run, [Samples("latency", "ms", ((1.0, 1.1),))])
    (proposed,) = call("list_baselines", workload="gemm@one", state="proposed")
    assert call("show_baseline", proposed.id).unit == "ms"
    assert call("approve_baseline", proposed.id).state == "approved"
    assert call("refuse_baseline", proposed.id).state == "refused"


def test_approvals(call: Call, worker: Rooms) -> None:
    name = "two-one"
    spec = TargetSpec((PoolSpec("l4", "L4", "550.54.15"),), policy=PolicySpec(approvals=2))
    call("create_target", TargetChange(metadata=TargetMetadata(name), spec=spec), reason="+")
    with pytest.raises(Conflict, match="requires two people") as mine:
        call("delete_target", name, reason="gone")
    number = mine.value.value
    assert call("show_proposal", number).changes[0].action == "delete"
    assert call("close_proposal", number).state == "closed"
    with pytest.raises(Conflict) as theirs:
        worker.matrix.delete("Target", name, Authorship("somebody else", "gone"))
    read = call("show_proposal", theirs.value.value)
    assert call("approve_proposal", read.id, digest=read.digest).revision is not None
    with pytest.raises(NotFound):
        call("show_target", name)


def test_proposals(call: Call, worker: Rooms) -> None:
    name = "proposed-one"
    spec = TargetSpec((PoolSpec("l4", "L4", "550.54.15"),))
    call("create_target", TargetChange(metadata=TargetMetadata(name), spec=spec), reason="+")
    edits = {"pools": [{"target": name, "set": {"driver": "570.86.15"}}]}
    made = call("create_proposal", edits, reason="newer")
    assert [one.id for one in call("list_proposals", target=name)] == [made.id]
    newest = ProposalRequest(pools=[ProposedPool(name, {"driver": "580.95.05"})])
    changed = call("change_proposal", made.id, newest, reason="the newest")
    assert changed.summary[0].endswith("change driver of pool l4 from 550.54.15 to 580.95.05")
    with pytest.raises(Forbidden, match="another person approves it"):
        call("approve_proposal", made.id, digest=changed.digest)
    with pytest.raises(Conflict, match="has not approved"):
        call("retract_approval", made.id)
    assert call("backtest_proposal", made.id, days=7).backtest.counts
    merged = call("merge_proposal", made.id, digest=changed.digest)
    assert call("show_proposal", made.id).state == "merged"
    back = call("revert_revision", merged.revision, reason="jobs fail", propose=True)
    assert call("close_proposal", back.proposal, comment="they do not").state == "closed"
    assert call("revert_revision", merged.revision, reason="they do").revision
    (pool,) = call("list_target_pools", name)
    assert pool.driver == "550.54.15"
    assert made.id in {one.id for one in call("list_proposals", state="merged")}


def test_upgrades(call: Call, worker: Rooms) -> None:
    name, now = "roll-one", datetime.now(UTC)
    spec = TargetSpec(
        (PoolSpec("l4", "L4", "550.54.15"),), match=MatchSpec(node_labels={"fleet": name})
    )
    call("create_target", TargetChange(metadata=TargetMetadata(name), spec=spec), reason="+")
    labels = {
        "fleet": name,
        "nvidia.com/gpu.product": "NVIDIA-L4",
        "nvidia.com/cuda.driver-version.full": "550.54.15",
    }
    nodes = [{"name": f"one-{number}", "labels": labels} for number in (1, 2)]
    call("report_nodes", nodes, cluster="roll")
    period = {"name": "one-1", "since": now - timedelta(hours=1)}
    report = {"cluster": "roll", "nodes": [{**period, "driver": "550.54.15"}]}
    watched = call("report_health", report)
    assert watched.nodes[0].seconds == pytest.approx(3600, abs=60)
    asked = {"name": name, "target": name, "driver": "580.95.05", "soak": "1h"}
    made = call("create_upgrade", asked, reason="newer")
    assert (made.state, made.waves) == ("proposed", 2)
    assert name in {one.name for one in call("list_upgrades", target=name, state="proposed")}
    with pytest.raises(Forbidden, match="another person approves it"):
        call("approve_upgrade", name)
    with pytest.raises(Conflict, match="has not approved"):
        call("retract_upgrade", name)
    assert call("may_start", name, wave=1, dry_run=True).answer == "start"
    found = call("may_start", name, wave=1, by="argo")
    assert (found.answer, found.holder) == ("start", "argo")
    assert call("leave_out_nodes", name, ["one-2"], reason="repair").left_out
    assert call("stop_upgrade", name, reason="pager").state == "stopped"
    assert call("resume_upgrade", name, reason="quiet").state == "rolling"
    assert call("roll_back_upgrade", name, reason="slow").state == "rolled back"
    assert call("show_upgrade", name).decision.answer == "roll back"


def test_incidents(call: Call, worker: Rooms) -> None:
    worker.incidents.survey()
    found = call("list_incidents", kind="driver-branch", state="open", snoozed=False)[0]
    assert call("show_incident", found.id).members
    assert call("snooze_incident", found.id, duration="2h", comment="Monday").snoozed
    assert not call("reopen_incident", found.id).snoozed


def test_tokens_and_the_audit_log(call: Call) -> None:
    made = call("create_token", "ci-one", ["read"], expires="90d")
    assert made.secret.startswith("cg_")
    assert made.token in call("list_tokens", active=True)
    limited = call("create_token", "team-one", ["read"], targets=["prod-*"])
    assert limited.token.targets == ["prod-*"]
    turned = call("rotate_token", "ci-one", overlap="24h")
    assert turned.secret != made.secret
    assert turned.token.previous_expires_at is not None
    assert call("revoke_token", "ci-one").revoked_at is not None
    (link, *_) = call("list_audit", action="token.revoke")
    assert link.action == "token.revoke"
    assert call("verify_audit").ok


def test_people_and_callers(call: Call) -> None:
    caller = call("show_caller")
    assert (caller.kind, caller.scopes, caller.targets) == ("token", ["admin"], None)
    assert list(call("list_sessions")) == []
    with pytest.raises(NotFound, match="session 'is_none' does not exist"):
        call("end_session", "is_none")
    with pytest.raises(NotFound, match="without a session"):
        call("end_own_session")
    for operation, *args in (("describe_sign_in",), ("open_session", "eyJ")):
        with pytest.raises(NotFound, match="people cannot sign in here"):
            call(operation, *args)


def test_nodes(call: Call) -> None:
    own = DriverReport("550.54.15", gpus=(SeenGpus("A100-SXM4-80GB", 8),))
    node = NodeReport(name="n1", target="prod-a100", labels={}, probe=own)
    answer = call("report_nodes", [node, {"name": "n2"}], cluster="one")
    assert [found.name for found in answer.nodes] == ["n1", "n2"]
    assert call("report_nodes", [node], cluster="one", dry_run=True).nodes[0].driver == "550.54.15"
    assert [found.name for found in call("list_nodes", cluster="one")] == ["n1", "n2"]
    (drifted,) = call("list_drift", cluster="one", what="driver", stale=False)
    assert drifted.differences[0].declared == ["535.183.01"]
    assert call("show_node", "n1", cluster="one").driver_state == "not-blessed"
    assert call("remove_node", "n1", cluster="one", reason="scrapped").name == "n1"
    with pytest.raises(NotFound):
        call("show_node", "n1", cluster="one")


def test_a_hook(call: Call) -> None:
    review = REVIEW_EXAMPLES["pod"]
    answer = call("validate_kubernetes", review, timeout="5s")
    assert answer.response.uid == review["request"]["uid"]
    refused = call("validate_kubernetes", {"kind": "AdmissionReview"})
    assert not refused.response.allowed


def test_deploy_hooks(call: Call) -> None:
    asked = {"target": "prod-a100", "stack": "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"}
    assert call("ask_generic", asked, timeout="5s").decision == "allow"
    denied = call("ask_generic", {**asked, "set": "driver=470.57.02"})
    assert (denied.decision, denied.allowed) == ("deny", False)
    assert call("ask_generic", {"target": "prd"}, status="200").decision == "error"
    assert call("poll_generic", **asked).id == call("ask_argo_rollouts", asked).id
    payload = {"name": "a", "namespace": "b", "metadata": asked}
    assert call("ask_flagger", payload, type="rollback").startswith("no rollback: allowed")
    may = call("ask_driver_rollout", {"target": "prod-a100"}, driver="470.256.02")
    assert (may.decision, len(may.breaks)) == ("deny", 4)


def test_a_refusal_is_the_gates_own_error(url: str, call: Call) -> None:
    with pytest.raises(NotFound) as missing:
        call("ask", target="prod-a10", stack={"cuda": "12.4"})
    error = missing.value
    assert (error.status, error.field, error.value) == (404, "target", "prod-a10")
    assert error.hint == "did you mean prod-a100?"
    assert error.problem == "target 'prod-a10' does not exist"
    assert error.__notes__[0].startswith("request ")


def test_every_operation_was_asked() -> None:
    """Runs last; a test of a part of this file cannot know."""
    if len(_driven) < len(OPERATIONS) // 2:
        pytest.skip("only a part of this file was run")
    assert OPERATIONS - _driven == set()
