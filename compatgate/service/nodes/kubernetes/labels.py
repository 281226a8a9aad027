"""Label and taint nodes whose driver is not blessed, and print the changes.

An annotation records what compatgate has set. Nothing else is ever changed or removed: a label or
taint that somebody else has set stays, even under compatgate's own name.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from compatgate.core.request import DriverState
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.kubernetes import ClusterApi, ObjectExists, ObjectMissing
from compatgate.service.nodes.kubernetes.connection import ClusterNode, node_of

LABEL = "compatgate.dev/driver"
TAINT = "compatgate.dev/driver-not-blessed"
SET_ANNOTATION = "compatgate.dev/driver-set"
"""Annotation with the values that compatgate has set, ``label=not-blessed taint=550.54.15``."""
EFFECT = "NoSchedule"
_SHARE = re.compile(r"(\d{1,3})%|(\d{1,6})")


class NodeDecision(Struct, frozen=True):
    """The decision of the matrix about a node."""

    state: DriverState
    why: str
    driver: str | None
    targets: tuple[str, ...]


class Plan(Struct, frozen=True):
    """The planned change of a node.

    Attributes:
        label: value to set; None: the label stays.
        taint: value of compatgate's taint after the change; None: no taint.
        had: present value of compatgate's taint.
        tainted: the node has a taint of this name after the change, from any source.
    """

    node: ClusterNode
    decided: NodeDecision
    label: str | None
    taint: str | None
    had: str | None
    tainted: bool
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Return whether the plan changes the node."""
        return self.label is not None or self.taint != self.had

    @property
    def adds_taint(self) -> bool:
        """Return whether the plan adds a taint that keeps pods away."""
        return self.taint is not None and self.had is None

    @property
    def remembered(self) -> str:
        """Return the value of the annotation after the change."""
        label = self.label or _recorded_values(self.node).get("label")
        parts = {"label": label, "taint": self.taint}
        return " ".join(f"{key}={value}" for key, value in parts.items() if value)


def plan_change(node: ClusterNode, decided: NodeDecision) -> Plan:
    """Plan the change of a node.

    A driver that became unknown keeps compatgate's taint: a missing report does not bless a
    driver.
    """
    ours, notes = _recorded_values(node), []
    label: str | None = decided.state
    there = node.labels.get(LABEL)
    if there == decided.state:
        label = None
    elif there is not None and there != ours.get("label"):
        label = None
        notes.append(f"the label {LABEL}={there} was not set by compatgate, and stays")
    standing = [t for t in node.taints if (t.get("key"), t.get("effect")) == (TAINT, EFFECT)]
    values = [str(taint.get("value") or "") for taint in standing]
    had = ours.get("taint") if ours.get("taint") in values else None
    foreign = [value for value in values if value != had]
    taint = had
    if foreign:
        notes.append(f"the taint {TAINT}={foreign[0]} was not set by compatgate, and stays")
    elif decided.state != "unknown":
        taint = decided.driver if decided.state == "not-blessed" else None
    return Plan(node, decided, label, taint, had, bool(foreign or taint), tuple(notes))


def json_patch(plan: Plan) -> list[dict[str, Any]]:
    """Return the change as a JSON patch, which the API server refuses for a changed node."""
    node = plan.node
    annotations = {**node.annotations, SET_ANNOTATION: plan.remembered}
    labels = {**node.labels, **({LABEL: plan.label} if plan.label else {})}
    taints = [dict(t) for t in node.taints if not _is_ours(t, plan.had)]
    if plan.taint is not None:
        taints.append({"key": TAINT, "value": plan.taint, "effect": EFFECT})
    ops: list[dict[str, Any]] = []
    if node.version:
        version = {"op": "replace", "path": "/metadata/resourceVersion", "value": node.version}
        ops.append(version)
    ops.append(_member("annotations", SET_ANNOTATION, annotations, node.annotations))
    if plan.label:
        ops.append(_member("labels", LABEL, labels, node.labels))
    if plan.taint != plan.had:
        ops.append({"op": "add", "path": "/spec/taints", "value": taints})
    return ops


def kubectl_commands(plan: Plan) -> list[str]:
    """Return the change as commands of kubectl, for a shell."""
    taint = plan.taint != plan.had
    actions = [
        ("annotate", f"{SET_ANNOTATION}={plan.remembered}", True),
        ("label", f"{LABEL}={plan.label}" if plan.label else "", True),
        ("taint", f"{TAINT}={plan.had}:{EFFECT}-" if plan.had is not None and taint else "", False),
        (
            "taint",
            f"{TAINT}={plan.taint}:{EFFECT}" if plan.taint is not None and taint else "",
            False,
        ),
    ]
    return [
        shlex.join(["kubectl", verb, "node", plan.node.name, what, *["--overwrite"][: bool(over)]])
        for verb, what, over in actions
        if what
    ]


class TaintLimit(Struct, frozen=True):
    """The limit of tainted nodes of one target: a share, or a number."""

    text: str
    percent: int | None = None
    count: int = 0

    def of(self, nodes: int) -> int:
        """Return the limit for a number of nodes."""
        return self.count if self.percent is None else nodes * self.percent // 100


def parse_taint_limit(text: str, field: str) -> TaintLimit:
    """Read ``10%`` or ``3``."""
    found = _SHARE.fullmatch(text) if text.isascii() else None
    if found and found[1] and int(found[1]) <= 100:
        return TaintLimit(text, percent=int(found[1]))
    if found and found[2]:
        return TaintLimit(text, count=int(found[2]))
    raise BadInput(
        f"{text!r} is not a number of nodes", field=field, value=text, hint="for example 10% or 3"
    )


def exceeded_limits(plans: Sequence[Plan], cap: TaintLimit) -> list[str]:
    """Return a sentence for each target whose taint limit would be exceeded.

    Only new taints count: existing taints stay, and may be removed.
    """
    names = sorted({name for one in plans for name in one.decided.targets})
    said = []
    for name in names:
        nodes = [one for one in plans if name in one.decided.targets]
        tainted = sum(one.tainted for one in nodes)
        most = cap.of(len(nodes))
        if tainted > most and any(one.adds_taint for one in nodes):
            said.append(
                f"{tainted} of {len(nodes)} GPU nodes of {name} would be tainted, "
                f"the limit is {most} (--max-tainted {cap.text})"
            )
    return said


def _recorded_values(node: ClusterNode) -> dict[str, str]:
    """Return the values that compatgate has set, from the annotation."""
    parts = (part.partition("=") for part in node.annotations.get(SET_ANNOTATION, "").split())
    return {key: value for key, _, value in parts}


def _is_ours(taint: Mapping[str, Any], value: str | None) -> bool:
    is_it = (taint.get("key"), taint.get("effect")) == (TAINT, EFFECT)
    return is_it and value is not None and (taint.get("value") or "") == value


def _member(
    part: str, key: str, whole: Mapping[str, str], before: Mapping[str, str]
) -> dict[str, Any]:
    """Set one key; create the map if it is missing."""
    if not before:
        return {"op": "add", "path": f"/metadata/{part}", "value": dict(whole)}
    escaped = key.replace("~", "~0").replace("/", "~1")
    return {"op": "add", "path": f"/metadata/{part}/{escaped}", "value": whole[key]}


def count_states(plans: Iterable[Plan]) -> dict[str, int]:
    """Count nodes by state."""
    counts: dict[str, int] = {}
    for one in plans:
        counts[one.decided.state] = counts.get(one.decided.state, 0) + 1
    return dict(sorted(counts.items()))


MANAGER = "compatgate"
"""Field manager of compatgate's changes."""
_TRIES = 5


class ApplyOutcome(Struct, frozen=True):
    """The result for a node."""

    plan: Plan
    done: Literal["changed", "gone", "failed"]
    why: str = ""


def apply_plans(api: ClusterApi, plans: Iterable[Plan]) -> Iterator[ApplyOutcome]:
    """Apply the planned changes; a failed node does not stop the others."""
    for one in plans:
        if one.changes:
            yield _apply_plan(api, one)


def _apply_plan(api: ClusterApi, wanted: Plan) -> ApplyOutcome:
    try:
        for _ in range(_TRIES):
            try:
                body = json_patch(wanted)
                api.ask("core", "patch_node", wanted.node.name, body, field_manager=MANAGER)
                return ApplyOutcome(wanted, "changed")
            except ObjectExists:  # the kubelet writes to its node all the time
                found = node_of(api.ask("core", "read_node", wanted.node.name))
                if found is None:
                    return ApplyOutcome(wanted, "gone")
                wanted = plan_change(found, wanted.decided)
                if not wanted.changes:
                    return ApplyOutcome(wanted, "changed")
    except ObjectMissing:
        return ApplyOutcome(wanted, "gone")
    except CompatgateError as error:
        return ApplyOutcome(wanted, "failed", error.detail)
    return ApplyOutcome(wanted, "failed", "other writers keep changing it")


def print_plans(plans: Sequence[Plan], cap: TaintLimit, form: str) -> int:
    """Print the planned changes, as kubectl commands or as JSON patches.

    Returns:
        The exit status: 1 if the taint limit is exceeded; no command is printed then.
    """
    refused = exceeded_limits(plans, cap)
    changing = [one for one in plans if one.changes]
    if form == "json":
        print_json({
            "refused": refused,
            "nodes": [] if refused else [_plan_json(one) for one in changing],
        })  # fmt: skip
    elif not refused:
        for one in changing:
            print(f"# {strip_controls(one.node.name)}: {strip_controls(one.decided.why)}")
            for command in kubectl_commands(one):
                print(command)
    print_summary(plans, refused)
    return 1 if refused else 0


def print_summary(plans: Sequence[Plan], refused: Sequence[str]) -> None:
    """Print counts, notes and refusals on standard error."""
    counts = ", ".join(f"{count} {state}" for state, count in count_states(plans).items())
    changing = sum(one.changes for one in plans)
    print(f"{len(plans)} GPU nodes ({counts or 'none'}), {changing} to change", file=sys.stderr)
    for one in plans:
        for note in one.notes:
            print(strip_controls(f"note: {one.node.name}: {note}"), file=sys.stderr)
    for why in refused:
        print(strip_controls(f"error: {why}"), file=sys.stderr)
    if refused:
        hint = "check the entries and 'compatgate nodes list' first"
        print(f"nothing is changed, not even labels: {hint}", file=sys.stderr)


def _plan_json(one: Plan) -> dict[str, Any]:
    return {
        "node": one.node.name,
        "driver": one.decided.driver,
        "driver_state": one.decided.state,
        "why": one.decided.why,
        "patch": json_patch(one),
    }
