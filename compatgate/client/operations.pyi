"""The types of the client's methods; made by scripts/operations.py."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Literal

from compatgate.canary.history import MetricHistory
from compatgate.client.request import Moment, Request, listing, single, stream
from compatgate.core.compare.packages import PackagesReport
from compatgate.kit.http.schemas import Page
from compatgate.service.access.schemas import (
    CallerBody,
    NewSessionBody,
    NewTokenBody,
    SessionBody,
    SignInBody,
    TokenBody,
)
from compatgate.service.attention.schemas import IncidentBody, TargetReportBody
from compatgate.service.audit.schemas import AuditBody, ChainBody, EnvelopeBody, KeySetBody
from compatgate.service.changes.comparison.schemas import (
    BacktestRequest,
    DependentsBody,
    PlanBody,
    PlanRequest,
    WhatIfBody,
    WhatIfRequest,
)
from compatgate.service.changes.upgrades.schemas import (
    MayStartBody,
    UpgradeBody,
    UpgradeRequest,
    UpgradeSummary,
)
from compatgate.service.cluster.schemas import (
    AdmissionReview,
    AdmissionReviewAnswer,
    ManifestCheckBody,
)
from compatgate.service.gate.advice.schemas import (
    FactRecord,
    FactsBody,
    RuleBody,
    SolveBody,
    SolveRequest,
    TriageBody,
)
from compatgate.service.gate.far.schemas import DeliveryBody, DeliveryRequest
from compatgate.service.gate.questions.remedies import Resolution
from compatgate.service.gate.questions.schemas import (
    BundleBody,
    DecisionBody,
    GateRequest,
    PoolQuestion,
    VerdictBody,
)
from compatgate.service.matrix.documents.evidence_schemas import EvidenceBody
from compatgate.service.matrix.documents.schemas import (
    Changes,
    EntryBody,
    EntryChange,
    ImportBody,
    Made,
    PoolRowBody,
    RevisionBody,
    RevisionDetail,
    SyncBody,
    TargetBody,
    TargetChange,
    WaiverBody,
    WaiverChange,
)
from compatgate.service.matrix.proposals.schemas import (
    BacktestBody,
    ProposalBody,
    ProposalRequest,
    ProposalSummary,
    RevertBody,
)
from compatgate.service.nodes.schemas import (
    DriftBody,
    HealthReport,
    HealthStored,
    NodeBody,
    NodeReport,
    NodesReported,
)
from compatgate.service.runs.evidence.schemas import BaselineBody, BaselineDetailBody
from compatgate.service.runs.queue.schemas import (
    HostBody,
    RunBody,
    RunDetailBody,
    RunsMade,
    SamplesBody,
    SuiteBody,
    WorkloadBody,
)
from compatgate.service.runs.work.schemas import (
    ApprovedBody,
    BaselineOffer,
    EvidenceClaim,
    HostDeclaration,
    LeaseBody,
    OrderBody,
    PairsDocument,
    PastBody,
    RunIds,
    StepResultsBody,
)
from compatgate.web.deploy_hooks.schemas import (
    DeployAnswer,
    DeployQuestion,
    DriverAnswer,
    DriverQuestion,
    FlaggerPayload,
)

class Operations:
    """The operations, by name."""

    @single
    @staticmethod
    def show_attestation(id: str) -> Request[EnvelopeBody]:
        """Sign a verdict."""
    @single
    @staticmethod
    def list_keys() -> Request[KeySetBody]:
        """List the public keys of attestations."""
    @single
    @staticmethod
    def what_if(body: WhatIfRequest | Mapping[str, Any]) -> Request[WhatIfBody]:
        """Predict how another driver, GPU or CUDA would affect every entry in use on a target."""
    @single
    @staticmethod
    def check_manifest(
        object: Mapping[str, Any],
        *,
        namespace: str | None = None,
        claims: Sequence[Mapping[str, Any]] | None = None,
        timeout: str | None = None,
    ) -> Request[ManifestCheckBody]:
        """Check a Kubernetes object before a cluster sees it, as admission would decide now."""
    @single
    @staticmethod
    def solve(body: SolveRequest | Mapping[str, Any]) -> Request[SolveBody]:
        """Find the newest whole stacks that pass on a target, or on every one of several."""
    @single
    @staticmethod
    def triage(
        text: str,
        *,
        target: str | None = None,
        pools: Sequence[str] | None = None,
        pool: PoolQuestion | Mapping[str, Any] | None = None,
        stack: Mapping[
            str, str | int | bool | Sequence[str] | Mapping[str, Mapping[str, Any] | str] | None
        ]
        | None = None,
        image: str | None = None,
        command: Sequence[str] | None = None,
        mounts: Sequence[str] | None = None,
        set: Mapping[
            str, str | int | bool | Sequence[str] | Mapping[str, Mapping[str, Any] | str] | None
        ]
        | None = None,
    ) -> Request[TriageBody]:
        """Find the causes of an error text."""
    @single
    @staticmethod
    def preview(
        question: GateRequest | Mapping[str, Any] | None = None,
        *,
        target: str | None = None,
        pools: Sequence[str] | None = None,
        pool: PoolQuestion | Mapping[str, Any] | None = None,
        stack: Mapping[
            str, str | int | bool | Sequence[str] | Mapping[str, Mapping[str, Any] | str] | None
        ]
        | None = None,
        image: str | None = None,
        command: Sequence[str] | None = None,
        mounts: Sequence[str] | None = None,
        set: Mapping[
            str, str | int | bool | Sequence[str] | Mapping[str, Mapping[str, Any] | str] | None
        ]
        | None = None,
        at: str | None = None,
    ) -> Request[VerdictBody]:
        """Decide a question without logging it, now or with an older matrix."""
    @single
    @staticmethod
    def show_bundle() -> Request[BundleBody]:
        """Return the signed bundle: matrix, evidence and overlay facts, to decide elsewhere."""
    @single
    @staticmethod
    def show_verdict(id: str) -> Request[VerdictBody]:
        """Show a verdict by its id."""
    @single
    @staticmethod
    def show_resolution(id: str) -> Request[Resolution]:
        """Show what turns a stored denial into an allowed stack, evaluated on the matrix of now."""
    @single
    @staticmethod
    def ask(
        question: GateRequest | Mapping[str, Any] | None = None,
        *,
        target: str | None = None,
        pools: Sequence[str] | None = None,
        pool: PoolQuestion | Mapping[str, Any] | None = None,
        stack: Mapping[
            str, str | int | bool | Sequence[str] | Mapping[str, Mapping[str, Any] | str] | None
        ]
        | None = None,
        image: str | None = None,
        command: Sequence[str] | None = None,
        mounts: Sequence[str] | None = None,
        set: Mapping[
            str, str | int | bool | Sequence[str] | Mapping[str, Mapping[str, Any] | str] | None
        ]
        | None = None,
    ) -> Request[VerdictBody]:
        """Decide whether a stack may run on a target or pool."""
    @single
    @staticmethod
    def openapi() -> Request[dict[str, Any]]:
        """Describe this API (OpenAPI 3.1)."""
    @single
    @staticmethod
    def report(
        name: str, *, since: Moment | None = None, until: Moment | None = None
    ) -> Request[TargetReportBody]:
        """Report changes, questions, canary runs and node events of a target."""
    @single
    @staticmethod
    def report_all(
        *, since: Moment | None = None, until: Moment | None = None
    ) -> Request[TargetReportBody]:
        """Report changes, questions, canary runs and node events of all targets, as of one target."""
    @single
    @staticmethod
    def plan(name: str, body: PlanRequest | Mapping[str, Any]) -> Request[PlanBody]:
        """Plan an upgrade of driver or CUDA on a target."""
    @listing
    @staticmethod
    def list_targets(
        *,
        label: str | None = None,
        owner: str | None = None,
        gpu: str | None = None,
        driver: str | None = None,
        search: str | None = None,
    ) -> Request[Page[TargetBody]]:
        """List targets by name."""
    @single
    @staticmethod
    def create_target(
        target: TargetChange | Mapping[str, Any], *, reason: str, force: bool | None = None
    ) -> Request[TargetBody]:
        """Create the target in the request."""
    @single
    @staticmethod
    def show_target(name: str) -> Request[TargetBody]:
        """Show the target with this name."""
    @single
    @staticmethod
    def change_target(
        name: str,
        target: TargetChange | Mapping[str, Any],
        *,
        reason: str,
        force: bool | None = None,
        if_match: str | int | None = None,
    ) -> Request[TargetBody]:
        """Replace the target with the document in the request."""
    @single
    @staticmethod
    def delete_target(
        name: str, *, reason: str, if_match: str | int | None = None
    ) -> Request[Made]:
        """Delete the target; its history stays."""
    @listing
    @staticmethod
    def list_target_pools(name: str) -> Request[Page[PoolRowBody]]:
        """List the pools of a target."""
    @listing
    @staticmethod
    def list_pools(
        *, target: str | None = None, gpu: str | None = None, driver: str | None = None
    ) -> Request[Page[PoolRowBody]]:
        """List the pools of all targets by target and name."""
    @single
    @staticmethod
    def list_dependents(name: str) -> Request[DependentsBody]:
        """List what depends on an entry: targets, recorded stacks, reported nodes and other entries."""
    @listing
    @staticmethod
    def list_entries(
        *,
        target: str | None = None,
        status: Literal["candidate", "blessed", "deprecated", "revoked"] | None = None,
        component: str | None = None,
        label: str | None = None,
        owner: str | None = None,
        search: str | None = None,
    ) -> Request[Page[EntryBody]]:
        """List entries by name, with warnings and promotion from canary runs."""
    @single
    @staticmethod
    def create_entry(entry: EntryChange | Mapping[str, Any], *, reason: str) -> Request[EntryBody]:
        """Create the entry in the request."""
    @single
    @staticmethod
    def show_entry(name: str) -> Request[EntryBody]:
        """Show the entry with this name."""
    @single
    @staticmethod
    def change_entry(
        name: str,
        entry: EntryChange | Mapping[str, Any],
        *,
        reason: str,
        if_match: str | int | None = None,
    ) -> Request[EntryBody]:
        """Replace the entry with the document in the request."""
    @single
    @staticmethod
    def delete_entry(name: str, *, reason: str, if_match: str | int | None = None) -> Request[Made]:
        """Delete the entry; its history stays."""
    @listing
    @staticmethod
    def list_waivers(
        *,
        target: str | None = None,
        owner: str | None = None,
        active_on: date | str | None = None,
        search: str | None = None,
    ) -> Request[Page[WaiverBody]]:
        """List waivers by name."""
    @single
    @staticmethod
    def create_waiver(
        waiver: WaiverChange | Mapping[str, Any], *, reason: str
    ) -> Request[WaiverBody]:
        """Create the waiver in the request."""
    @single
    @staticmethod
    def show_waiver(name: str) -> Request[WaiverBody]:
        """Show the waiver with this name."""
    @single
    @staticmethod
    def change_waiver(
        name: str,
        waiver: WaiverChange | Mapping[str, Any],
        *,
        reason: str,
        if_match: str | int | None = None,
    ) -> Request[WaiverBody]:
        """Replace the waiver with the document in the request."""
    @single
    @staticmethod
    def delete_waiver(
        name: str, *, reason: str, if_match: str | int | None = None
    ) -> Request[Made]:
        """Delete the waiver; its history stays."""
    @single
    @staticmethod
    def backtest(body: BacktestRequest | Mapping[str, Any]) -> Request[BacktestBody]:
        """Backtest a change of the matrix: decide recorded questions before and after it."""
    @single
    @staticmethod
    def packages_report(
        *, target: str | None = None, since: Moment | None = None, decisions: int | None = None
    ) -> Request[PackagesReport]:
        """Report what `packages: enforce` would stop on the targets that audit packages."""
    @single
    @staticmethod
    def import_matrix(
        documents: str | Sequence[Mapping[str, Any]],
        *,
        reason: str,
        force: bool | None = None,
        dry_run: bool | None = None,
        file: str | None = None,
    ) -> Request[ImportBody]:
        """Import documents as one revision, or not at all."""
    @listing
    @staticmethod
    def list_revisions(
        *,
        author: str | None = None,
        kind: Literal["Target", "Entry", "Waiver"] | None = None,
        name: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Request[Page[RevisionBody]]:
        """List revisions of the matrix, newest first."""
    @single
    @staticmethod
    def show_revision(number: int) -> Request[RevisionDetail]:
        """Show a revision and its changes."""
    @single
    @staticmethod
    def diff_revisions(number: int, *, older: int | None = None) -> Request[Changes]:
        """Compare a revision with an older one."""
    @single
    @staticmethod
    def sync_matrix(
        documents: str | Sequence[Mapping[str, Any]],
        *,
        reason: str,
        force: bool | None = None,
        name: str | None = None,
        prune: bool | None = None,
        take_over: bool | None = None,
        dry_run: bool | None = None,
        file: str | None = None,
    ) -> Request[SyncBody]:
        """Make the stored matrix equal to the documents of the body, as one revision or not at all."""
    @single
    @staticmethod
    def export_matrix(*, revision: int | None = None) -> Request[list[dict[str, Any]]]:
        """Export the matrix, now or at an older revision: targets, entries, waivers."""
    @listing
    @staticmethod
    def list_proposals(
        *,
        state: Literal["open", "approved", "conflicted", "merged", "closed"] | None = None,
        target: str | None = None,
        author: str | None = None,
    ) -> Request[Page[ProposalSummary]]:
        """List proposals, newest first."""
    @single
    @staticmethod
    def create_proposal(
        edits: ProposalRequest | Mapping[str, Any], *, reason: str, force: bool | None = None
    ) -> Request[ProposalBody]:
        """Propose a change of the matrix."""
    @single
    @staticmethod
    def show_proposal(id: str) -> Request[ProposalBody]:
        """Show a proposal: diff, requirements with their state, and history."""
    @single
    @staticmethod
    def change_proposal(
        id: str,
        edits: ProposalRequest | Mapping[str, Any],
        *,
        reason: str,
        force: bool | None = None,
    ) -> Request[ProposalBody]:
        """Replace the edits of your own proposal, based on the current matrix."""
    @single
    @staticmethod
    def approve_proposal(id: str, *, digest: str | None = None) -> Request[ProposalBody]:
        """Approve the edits of another person's proposal."""
    @single
    @staticmethod
    def retract_approval(id: str) -> Request[ProposalBody]:
        """Withdraw your approval of an open proposal."""
    @single
    @staticmethod
    def merge_proposal(
        id: str, *, digest: str | None = None, override: str | None = None
    ) -> Request[ProposalBody]:
        """Merge a proposal: apply its edits as one revision."""
    @single
    @staticmethod
    def backtest_proposal(id: str, *, days: int | None = None) -> Request[ProposalBody]:
        """Backtest a proposal, and store the result with it."""
    @single
    @staticmethod
    def close_proposal(id: str, *, comment: str | None = None) -> Request[ProposalBody]:
        """Close a proposal without merging it."""
    @single
    @staticmethod
    def revert_revision(
        number: int, *, propose: bool | None = None, reason: str
    ) -> Request[RevertBody]:
        """Revert a revision: restore the documents that it changed, as a new revision."""
    @single
    @staticmethod
    def list_tables() -> Request[FactsBody]:
        """List the tables of facts."""
    @listing
    @staticmethod
    def list_facts(
        table: str, *, part: str | None = None, search: str | None = None
    ) -> Request[Page[FactRecord]]:
        """List the records of a table (`gpus`, `cudnn`, `torch`), each with its sources."""
    @single
    @staticmethod
    def show_fact(table: str, key: str) -> Request[dict[str, list[dict[str, Any]]]]:
        """Show the records of a key: a version, a series, or any spelling of a GPU."""
    @listing
    @staticmethod
    def list_rules() -> Request[Page[RuleBody]]:
        """List the rules, each with its documentation."""
    @single
    @staticmethod
    def show_rule(id: str) -> Request[RuleBody]:
        """Show what a rule checks, why, and how to fix its findings."""
    @listing
    @staticmethod
    def list_runs(
        *,
        state: Literal["queued", "leased", "preparing", "running", "judging"]
        | Literal["passed", "failed", "inconclusive", "error", "timeout", "cancelled"]
        | Literal["active", "ended"]
        | None = None,
        target: str | None = None,
        suite: str | None = None,
        entry: str | None = None,
        host: str | None = None,
        asked_by: str | None = None,
        purpose: Literal["request", "verification", "import"] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Request[Page[RunBody]]:
        """List canary runs, newest first."""
    @single
    @staticmethod
    def submit_runs(
        suite: str,
        *,
        target: str | None = None,
        pool: str | None = None,
        stack: Mapping[
            str, str | int | bool | Sequence[str] | Mapping[str, Mapping[str, Any] | str] | None
        ]
        | None = None,
        image: str | None = None,
        entry: str | None = None,
        host: str | None = None,
        priority: int | None = None,
        against: str | None = None,
        explained: str | None = None,
    ) -> Request[RunsMade]:
        """Queue a suite: one run for each SKU and driver of the target."""
    @single
    @staticmethod
    def import_report(
        content: str,
        source: str,
        *,
        format: Literal["dcgm", "nccl-tests", "jsonl"] | Literal["auto"] | None = None,
        file: str | None = None,
        target: str | None = None,
        pool: str | None = None,
        sku: str | None = None,
        driver: str | None = None,
        host: str | None = None,
        stack: Mapping[
            str, str | int | bool | Sequence[str] | Mapping[str, Mapping[str, Any] | str] | None
        ]
        | None = None,
        measured_at: Moment | None = None,
    ) -> Request[RunsMade]:
        """Import a report of DCGM or nccl-tests, or results as JSON lines, with their source."""
    @single
    @staticmethod
    def show_run(id: str) -> Request[RunDetailBody]:
        """Show a run with the results of its steps."""
    @single
    @staticmethod
    def cancel_run(id: str) -> Request[RunBody]:
        """Cancel a run: at once if it waits, else within seconds, with the worker's next report."""
    @single
    @staticmethod
    def discard_run(id: str, *, reason: str) -> Request[RunDetailBody]:
        """Discard a judged run: its result no longer counts."""
    @single
    @staticmethod
    def rerun(id: str) -> Request[RunsMade]:
        """Requeue a finished run, for the current state of its target."""
    @single
    @staticmethod
    def take_samples(id: str, *, step: str | None = None) -> Request[SamplesBody]:
        """Return the measurements of a run as JSON lines, one file for each step."""
    @stream
    @staticmethod
    def show_logs(
        id: str, *, follow: bool | None = None, step: str | None = None, after: int | None = None
    ) -> Request[str]:
        """Show the log of a run; 410 says when and by whom it was removed."""
    @listing
    @staticmethod
    def list_hosts(*, gpu: str | None = None) -> Request[Page[HostBody]]:
        """List the staging hosts that workers serve, by name."""
    @listing
    @staticmethod
    def list_suites() -> Request[Page[SuiteBody]]:
        """List the suites by name."""
    @listing
    @staticmethod
    def list_workloads() -> Request[Page[WorkloadBody]]:
        """List the workloads, by name."""
    @single
    @staticmethod
    def declare_host(name: str, body: HostDeclaration | Mapping[str, Any]) -> Request[HostBody]:
        """Declare a staging host, and the suites of its worker."""
    @single
    @staticmethod
    def report_host(name: str, *, away: str | None = None) -> Request[HostBody]:
        """Report whether a host answers its worker."""
    @single
    @staticmethod
    def lease_run(name: str, body: HostDeclaration | Mapping[str, Any]) -> Request[LeaseBody]:
        """Lease the next run that the host can run now."""
    @single
    @staticmethod
    def find_ended_runs(name: str, runs: Sequence[str]) -> Request[RunIds]:
        """Say which of the runs that a host has leftovers of have ended."""
    @single
    @staticmethod
    def queue_verifications(name: str, worker: str, every_s: int) -> Request[RunIds]:
        """Queue the runs that blessed entries depend on, where they are due again."""
    @single
    @staticmethod
    def list_approved_baselines(
        name: str, *, workload: str | None = None, sku: str | None = None, family: str | None = None
    ) -> Request[ApprovedBody]:
        """Return the approved baselines of a workload, for a worker to judge by."""
    @single
    @staticmethod
    def offer_baselines(name: str, body: BaselineOffer | Mapping[str, Any]) -> Request[OrderBody]:
        """Offer the values of a sound step to learn a baseline from; a person approves it."""
    @single
    @staticmethod
    def renew_lease(
        run: str,
        attempt: int,
        *,
        lease_s: float | None = None,
        state: Literal["preparing", "running", "judging"] | None = None,
        doing: str | None = None,
        progress: float | None = None,
        left_s: float | None = None,
    ) -> Request[OrderBody]:
        """Renew a lease, and state what has changed of the run."""
    @single
    @staticmethod
    def write_output(run: str, attempt: int, step: str, data: bytes) -> Request[OrderBody]:
        """Append to the log of a step."""
    @single
    @staticmethod
    def list_recorded_steps(run: str, attempt: int) -> Request[StepResultsBody]:
        """Return the steps that earlier attempts completed on this host."""
    @single
    @staticmethod
    def record_step(run: str, attempt: int, result: Mapping[str, Any]) -> Request[OrderBody]:
        """Record the result of a step; it replaces the step's result of this attempt."""
    @single
    @staticmethod
    def show_past(
        run: str,
        attempt: int,
        *,
        steps: str | None = None,
        hung: str | None = None,
        digest: str | None = None,
    ) -> Request[PastBody]:
        """Return what earlier runs showed of the same steps: their lengths, and one in time."""
    @single
    @staticmethod
    def list_earlier_pairs(run: str, attempt: int) -> Request[PairsDocument]:
        """Return the pairs of earlier runs of the suite on the same SKU, newest first."""
    @single
    @staticmethod
    def store_pairs(
        run: str, attempt: int, pairs: Sequence[Mapping[str, Any]]
    ) -> Request[OrderBody]:
        """Store how the pairs of a run stand."""
    @single
    @staticmethod
    def end_run(
        run: str,
        attempt: int,
        outcome: Literal["passed", "failed", "inconclusive", "error", "timeout", "cancelled"]
        | Literal["again"],
        why: str,
        *,
        evidence: EvidenceClaim | Mapping[str, Any] | None = None,
        pause_s: float | None = None,
    ) -> Request[OrderBody]:
        """End a run with its evidence, or hand it back."""
    @listing
    @staticmethod
    def list_baselines(
        *,
        workload: str | None = None,
        sku: str | None = None,
        family: str | None = None,
        metric: str | None = None,
        state: Literal["proposed", "approved", "replaced", "refused"] | None = None,
    ) -> Request[Page[BaselineBody]]:
        """List versions of baselines, newest first."""
    @single
    @staticmethod
    def show_baseline(id: int) -> Request[BaselineDetailBody]:
        """Show a version of a baseline with its distribution."""
    @single
    @staticmethod
    def approve_baseline(id: int) -> Request[BaselineDetailBody]:
        """Approve a proposed baseline for future runs."""
    @single
    @staticmethod
    def refuse_baseline(id: int) -> Request[BaselineDetailBody]:
        """Refuse a proposed baseline, or retire an approved one."""
    @listing
    @staticmethod
    def list_evidence(
        *,
        suite: str | None = None,
        sku: str | None = None,
        run: str | None = None,
        outcome: Literal["passed", "failed"] | None = None,
        content: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Request[Page[EvidenceBody]]:
        """List judged runs that count as evidence, newest first."""
    @listing
    @staticmethod
    def list_metric_histories(
        *,
        workload: str | None = None,
        gpu: str | None = None,
        metric: str | None = None,
        runs: int | None = None,
    ) -> Request[Page[MetricHistory]]:
        """Follow metrics over finished runs, and find changes of their level."""
    @listing
    @staticmethod
    def list_nodes(
        *,
        search: str | None = None,
        cluster: str | None = None,
        target: str | None = None,
        gpu: str | None = None,
        driver: str | None = None,
        driver_state: Literal["blessed", "not-blessed", "unknown"] | None = None,
        disagrees: bool | None = None,
        stale: bool | None = None,
    ) -> Request[Page[NodeBody]]:
        """List nodes by cluster and name, each compared with the current matrix."""
    @single
    @staticmethod
    def report_nodes(
        nodes: Sequence[NodeReport | Mapping[str, Any]],
        *,
        cluster: str | None = None,
        dry_run: bool | None = None,
    ) -> Request[NodesReported]:
        """Report nodes: labels, the kubelet's resources, the node's own report."""
    @single
    @staticmethod
    def report_health(report: HealthReport | Mapping[str, Any]) -> Request[HealthStored]:
        """Report the GPU errors of nodes in a period; a period without errors is worth reporting, too."""
    @single
    @staticmethod
    def show_node(name: str, *, cluster: str | None = None) -> Request[NodeBody]:
        """Show a node with the report of each source."""
    @single
    @staticmethod
    def remove_node(name: str, *, reason: str, cluster: str | None = None) -> Request[NodeBody]:
        """Remove a node that no longer exists; it returns with its next report."""
    @listing
    @staticmethod
    def list_drift(
        *,
        cluster: str | None = None,
        target: str | None = None,
        what: Literal[
            "driver",
            "gpu",
            "platform",
            "kernel-modules",
            "gsp-firmware",
            "fabric-manager",
            "imex",
            "nvlsm",
            "container-toolkit",
            "container-mode",
            "dcgm",
            "gpu-operator",
            "kernel",
            "distribution",
            "secure-boot",
            "peer-memory",
            "ofed",
            "efa",
            "vbios",
            "persistence",
            "iommu",
            "acs",
            "l4t",
            "jetpack",
            "vgpu-manager",
        ]
        | None = None,
        gpu: str | None = None,
        stale: bool | None = None,
    ) -> Request[Page[DriftBody]]:
        """List nodes whose driver, GPUs, platform or parts differ from their target."""
    @listing
    @staticmethod
    def list_upgrades(
        *,
        state: Literal["proposed", "rolling", "stopped", "rolled back", "done"] | None = None,
        target: str | None = None,
    ) -> Request[Page[UpgradeSummary]]:
        """List upgrades, newest first."""
    @single
    @staticmethod
    def create_upgrade(
        upgrade: UpgradeRequest | Mapping[str, Any], *, reason: str
    ) -> Request[UpgradeBody]:
        """Propose a driver upgrade of a target, with waves from its plan."""
    @single
    @staticmethod
    def show_upgrade(name: str) -> Request[UpgradeBody]:
        """Show an upgrade: waves with their answers, requirements and their state."""
    @single
    @staticmethod
    def may_start(
        name: str, *, wave: int | None = None, by: str | None = None, dry_run: bool | None = None
    ) -> Request[MayStartBody]:
        """Start a wave if allowed, and hold it for the caller."""
    @single
    @staticmethod
    def approve_upgrade(name: str) -> Request[UpgradeBody]:
        """Approve another person's upgrade. The target's policy says how many people must agree."""
    @single
    @staticmethod
    def retract_upgrade(name: str) -> Request[UpgradeBody]:
        """Withdraw your approval of an upgrade. A wave that has started waits, too."""
    @single
    @staticmethod
    def stop_upgrade(name: str, *, reason: str) -> Request[UpgradeBody]:
        """Stop an upgrade: every wave waits until someone resumes it."""
    @single
    @staticmethod
    def resume_upgrade(name: str, *, reason: str) -> Request[UpgradeBody]:
        """Resume a stopped upgrade. A rolled-back upgrade cannot be resumed (409)."""
    @single
    @staticmethod
    def roll_back_upgrade(name: str, *, reason: str) -> Request[UpgradeBody]:
        """Roll an upgrade back: `may-start` then answers `roll back` for every wave."""
    @single
    @staticmethod
    def leave_out_nodes(name: str, nodes: Sequence[str], *, reason: str) -> Request[UpgradeBody]:
        """Exclude nodes: no wave waits for them, and their reports trigger no rollback."""
    @listing
    @staticmethod
    def list_incidents(
        *,
        kind: Literal[
            "target-unusable",
            "upgrade-rollback",
            "drift",
            "upgrade-held",
            "entry-contradicted",
            "entry-impossible",
            "entry-revoked",
            "verdict-flipped",
            "evidence",
            "run-failed",
            "evidence-ending",
            "waiver-ending",
            "driver-branch",
            "baseline-proposed",
        ]
        | None = None,
        state: Literal["open", "ended"] | None = None,
        snoozed: bool | None = None,
        owner: str | None = None,
    ) -> Request[Page[IncidentBody]]:
        """List incidents, newest first, grouped by cause."""
    @single
    @staticmethod
    def show_incident(id: int) -> Request[IncidentBody]:
        """Show an incident with every affected object."""
    @single
    @staticmethod
    def snooze_incident(
        id: int,
        *,
        duration: str | None = None,
        until: Moment | None = None,
        comment: str | None = None,
    ) -> Request[IncidentBody]:
        """Hide an open incident for a while; metrics and webhook leave it out until then."""
    @single
    @staticmethod
    def reopen_incident(id: int, *, comment: str | None = None) -> Request[IncidentBody]:
        """Reopen a snoozed incident."""
    @listing
    @staticmethod
    def list_decisions(
        *,
        target: str | None = None,
        verdict: Literal["pass", "warn", "unknown", "fail"] | None = None,
        verdict_id: str | None = None,
        allowed: bool | None = None,
        asked_by: str | None = None,
        source: str | None = None,
        image: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Request[Page[DecisionBody]]:
        """List decisions, newest first."""
    @single
    @staticmethod
    def show_decision(id: int) -> Request[DecisionBody]:
        """Show a decision; `verdict_id` names its verdict."""
    @single
    @staticmethod
    def deliver_decisions(body: DeliveryRequest | Mapping[str, Any]) -> Request[DeliveryBody]:
        """Deliver batches of decisions that a far gate has recorded."""
    @listing
    @staticmethod
    def list_audit(
        *,
        action: str | None = None,
        actor: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Request[Page[AuditBody]]:
        """List changes and batches of decisions, newest first."""
    @single
    @staticmethod
    def verify_audit(*, head: str | None = None, full: bool | None = None) -> Request[ChainBody]:
        """Recompute the hash chain, and compare the logs, tokens and the matrix with it."""
    @listing
    @staticmethod
    def list_tokens(*, active: bool | None = None) -> Request[Page[TokenBody]]:
        """List tokens by name, without secrets."""
    @single
    @staticmethod
    def create_token(
        name: str,
        scopes: Sequence[
            Literal[
                "read",
                "admission",
                "gate",
                "plan",
                "deliver",
                "work",
                "propose",
                "approve",
                "upgrade",
                "operate",
                "bless",
                "admin",
            ]
        ],
        *,
        expires: str | None = None,
        targets: Sequence[str] | None = None,
        person: str | None = None,
    ) -> Request[NewTokenBody]:
        """Create a token."""
    @single
    @staticmethod
    def rotate_token(
        name: str, *, overlap: str | None = None, expires: str | None = None
    ) -> Request[NewTokenBody]:
        """Give a token a new secret; name, id, scopes and targets stay the same."""
    @single
    @staticmethod
    def revoke_token(name: str) -> Request[TokenBody]:
        """Revoke a token by its name or id."""
    @single
    @staticmethod
    def describe_sign_in() -> Request[SignInBody]:
        """Describe how people sign in on the command line."""
    @single
    @staticmethod
    def open_session(id_token: str, *, access_token: str | None = None) -> Request[NewSessionBody]:
        """Exchange a fresh ID token of the command line's client for a session."""
    @listing
    @staticmethod
    def list_sessions() -> Request[Page[SessionBody]]:
        """List the sessions of people that have not ended, without secrets."""
    @single
    @staticmethod
    def end_session(id: str) -> Request[SessionBody]:
        """End the session of a person."""
    @single
    @staticmethod
    def end_own_session() -> Request[SessionBody]:
        """End the session of this request."""
    @single
    @staticmethod
    def show_caller() -> Request[CallerBody]:
        """Show who the caller is: name, kind and scopes."""
    @single
    @staticmethod
    def stack_badge(target: str, stack: str) -> Request[str]:
        """Draw the current verdict on a stack and a target."""
    @single
    @staticmethod
    def entry_badge(target: str, entry: str) -> Request[str]:
        """Draw the status of an entry of the matrix on a target."""
    @single
    @staticmethod
    def validate_kubernetes(
        review: AdmissionReview | Mapping[str, Any], *, timeout: str | None = None
    ) -> Request[AdmissionReviewAnswer]:
        """Decide about a Kubernetes object, as a validating admission webhook."""
    @single
    @staticmethod
    def ask_generic(
        question: DeployQuestion | Mapping[str, Any],
        *,
        status: Literal["decision", "200"] | None = None,
        timeout: str | None = None,
    ) -> Request[DeployAnswer]:
        """Decide about a deployment, for any tool that can send a request."""
    @single
    @staticmethod
    def poll_generic(
        *,
        status: Literal["decision", "200"] | None = None,
        timeout: str | None = None,
        target: str | None = None,
        pool: str | None = None,
        stack: str | None = None,
        image: str | None = None,
        set: str | None = None,
    ) -> Request[DeployAnswer]:
        """Decide about a deployment, for a tool that polls; the question is in the query."""
    @single
    @staticmethod
    def ask_argo_rollouts(
        question: DeployQuestion | Mapping[str, Any], *, timeout: str | None = None
    ) -> Request[DeployAnswer]:
        """Decide about a rollout, as the web metric of an Argo Rollouts analysis."""
    @single
    @staticmethod
    def ask_flagger(
        payload: FlaggerPayload | Mapping[str, Any],
        *,
        type: str | None = None,
        timeout: str | None = None,
    ) -> Request[str]:
        """Decide about a canary, as a webhook of Flagger."""
    @single
    @staticmethod
    def ask_driver_rollout(
        question: DriverQuestion | Mapping[str, Any],
        *,
        driver: str | None = None,
        target: str | None = None,
        pool: str | None = None,
        status: Literal["decision", "200"] | None = None,
    ) -> Request[DriverAnswer]:
        """Decide whether a node, pool or target may get a driver."""
