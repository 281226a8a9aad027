"""Render verdicts for a terminal: the answer, the reasons, the fixes.

Other formats share its phrases for the question, the answer and the command that tries a fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters, digits

from compatgate.core.components import label_of
from compatgate.core.rule import REFUSING, fix_value
from compatgate.documents.quantities import describe_seconds
from compatgate.formats.reports import Answer, Json, View, find_worst
from compatgate.kit.cli.output import paint, strip_controls, wrap, wrap_beside

MAX_ARCHES = 6
_MARKS = {
    "fail": ("FAIL", "red"),
    "unknown": ("UNKNOWN", "yellow"),
    "warn": ("WARN", "yellow"),
    "waived": ("WAIVED", "cyan"),
}
_LABEL = 8
"""Columns of the labels have, need, fix, source."""
_PLAIN = frozenset(ascii_letters + digits + "=,._+-")


def headline(verdict: Json) -> tuple[str, str]:
    """Return the answer as text, with its colour."""
    outcome, allowed = verdict["verdict"], verdict["allowed"]
    if not allowed:
        return ("NO DECISION", "yellow") if outcome == "unknown" else ("DENIED", "red")
    if outcome in REFUSING:
        what = "it fails" if outcome == "fail" else "it is not known whether it works"
        return f"ALLOWED by {format_permission(verdict)}, although {what}", "yellow"
    if outcome == "warn":
        return "ALLOWED, with warnings", "yellow"
    return "ALLOWED", "green"


def format_permission(verdict: Json) -> str:
    """Return the setting of the policy that lets a failing or unknown stack pass."""
    mode = verdict["mode"]
    return "onUnknown of the policy" if mode == "enforce" else f"mode '{mode}'"


def format_place(verdict: Json) -> str:
    """Return the target or the pools as text."""
    pools = verdict["pools"]
    if verdict["target"]:
        return f"target {verdict['target']}"
    if not pools:
        return str(verdict.get("subject", ""))
    shown = [format_pool(pool) for pool in pools[:3]]
    more = f" and {len(pools) - 3} more pools" if len(pools) > 3 else ""
    return "; ".join(shown) + more


def subject(verdict: Json) -> str:
    """Return the stack and its target or pools as text; or what was not judged."""
    if "subject" in verdict:
        where = f" on {format_place(verdict)}" if verdict["target"] else ""
        return f"{verdict['subject']}{where}"
    return f"{format_stack(verdict['stack'])} on {format_place(verdict)}"


def format_pool(pool: Json) -> str:
    """Return a pool as text, ``A100-SXM4-80GB, driver 535.104.05``."""
    system = "" if pool["os"] == "linux" else f", {pool['os']}"
    node = pool.get("node") or {}
    release = next((f"{name} {node[name]}" for name in ("l4t", "jetpack") if name in node), "")
    driver = f"driver {pool['driver'] or 'unknown'}" if pool["driver"] or not release else release
    return f"{pool['gpu'] or 'unknown GPU'}, {driver}{system}"


def format_stack(stack: Json) -> str:
    """Return a stack as text, ``CUDA 12.1, cuDNN 8.9.7, PyTorch 2.4.1, sm_80``."""
    parts = [f"{label_of(name)} {value}" for name, value in stack.items() if isinstance(value, str)]
    arch = stack.get("arch")
    if arch is not None:
        more = f" and {len(arch) - MAX_ARCHES} more" if len(arch) > MAX_ARCHES else ""
        parts.append("+".join(arch[:MAX_ARCHES]) + more if arch else "no GPU code")
    if needs := stack.get("needs"):
        parts.append(f"needs {'+'.join(needs)}")
    return ", ".join(parts) or "an empty stack"


def fix_option(change: Json) -> str:
    """Return the option that tries a fix: ``--set driver=525.60.13,cuda-compat=``."""
    value = ",".join(f"{name}={fix_value(value)}" for name, value in change.items())
    if set(value) <= _PLAIN:
        return f"--set {value}"
    quoted = strip_controls(value).replace("'", "'\\''")
    return f"--set '{quoted}'"


def format_source(source: Json | None) -> str:
    """Return title and address of a source, the first one of several; empty without a source."""
    if not source:
        return ""
    title = str(source["title"])
    if "also" not in source:  # older gates join several sources
        title = title.partition(";")[0].strip()
    if len(title) > 160:
        title = title[:157].rpartition(" ")[0] + "..."
    return f"{title} - {source['url']}" if source["url"] else title


def describe_finding(finding: Json, *labels: str) -> str:
    """Return the message of a finding, and a line for each detail of ``labels`` that it has."""
    details = {
        "have": [finding["have"]],
        "need": [finding["need"]],
        "pools": [", ".join(finding["pools"])],
        "fix": [f"{fix['message']} ({fix_option(fix['set'])})" for fix in finding["fixes"]],
        "source": [format_source(finding["source"])],
    }
    lines = [f"{label}: {text}" for label in labels for text in details[label.lower()] if text]
    return "\n".join([finding["message"], *lines])


def provenance(verdict: Json) -> str:
    """Return the basis of the verdict on one line."""
    if "subject" in verdict:
        return "no stack was judged"
    algorithm, _, digest = str(verdict["facts"]).partition(":")
    held = len(verdict["checked"]["passed"])
    parts = [f"{held} rules passed", f"facts {algorithm}:{digest[:12]}"]
    if verdict["overlays"]:
        parts.append(f"overlays {', '.join(verdict['overlays'])}")
    if verdict["target"]:
        parts.append(f"matrix revision {verdict['matrix_revision']}")
        parts.append(f"evidence {', '.join(verdict['evidence']) or 'none'}")
    if verdict["valid_until"]:
        parts.append(f"valid until {verdict['valid_until'][:10]}")
    parts.append(str(verdict["id"]))
    return " · ".join(parts)


def degraded_note(verdict: Json) -> str:
    """Return a sentence about a gate that decided on its last good snapshot; empty otherwise."""
    degraded = verdict.get("degraded")
    if not degraded:
        return ""
    age = describe_seconds(float(degraded["snapshot_age_s"]))
    return (
        f"degraded: the gate decided on its last good snapshot, which is {age} old"
        f" ({degraded['reason']})"
    )


def shows_pools(verdict: Json) -> bool:
    """Tell whether findings must name their pools."""
    return len(verdict["pools"]) > 1


def findings_of(verdict: Json, *outcomes: str) -> list[Json]:
    """Return the findings with these outcomes, in the verdict's order."""
    return [finding for finding in verdict["findings"] if finding["outcome"] in outcomes]


def outcome(answers: Sequence[Answer]) -> dict[str, str]:
    """Return the worst answer for programs: ``verdict``, ``allowed`` and ``id``.

    Without an answer the verdict is ``none``.
    """
    if not answers:
        return {"verdict": "none", "allowed": "true", "id": ""}
    worst = find_worst(answer.verdict for answer in answers)
    allowed = "true" if worst["allowed"] else "false"
    return {"verdict": str(worst["verdict"]), "allowed": allowed, "id": str(worst["id"])}


def render(answers: Sequence[Answer], view: View) -> str:
    """Render text of at most ``view.width`` columns, without breaking addresses and commands."""
    parts = []
    for answer in answers:
        text = _render_verdict(answer.verdict, view)
        if title := answer.heading or answer.file:
            text = f"{paint(strip_controls(title), 'bold', colour=view.colour)}\n{text}"
        parts.append(text)
    return "\n\n".join(parts)


def _render_verdict(verdict: Json, view: View) -> str:
    lines = _head(verdict, view)
    pools = shows_pools(verdict)
    for finding in findings_of(verdict, "fail", "unknown"):
        lines += ["", *_finding_lines(finding, view, pools=pools)]
    for finding in findings_of(verdict, "warn", "waived"):
        lines += ["", *_finding_lines(finding, view, pools=pools, brief=True)]
    if skipped := findings_of(verdict, "not-checked"):
        lines.append("")
    for finding in skipped:
        text = f"not checked: {finding['rule']} {finding['name']}: {finding['message']}"
        first, *rest = wrap(text, view.width - 2)
        lines += [_paint_dim(line, view) for line in (first, *(f"  {line}" for line in rest))]
    if note := degraded_note(verdict):
        lines.append("")
        lines += [paint(line, "yellow", colour=view.colour) for line in wrap(note, view.width)]
    lines.append("")
    lines += [_paint_dim(line, view) for line in wrap(provenance(verdict), view.width)]
    return "\n".join(lines)


def _head(verdict: Json, view: View) -> list[str]:
    answer, colour = headline(verdict)
    text = f"{answer}: {subject(verdict)}"
    first, *rest = wrap(text, view.width)
    marked = paint(answer, "bold", colour, colour=view.colour) + first.removeprefix(answer)
    lines = [marked if first.startswith(answer) else first, *rest]
    if verdict["target"] and len(verdict["pools"]) <= 4:
        pools = [f"  {p['name']}: {format_pool(p)}" for p in verdict["pools"]]
        lines += map(strip_controls, pools)
    return lines


def _finding_lines(finding: Json, view: View, *, pools: bool, brief: bool = False) -> list[str]:
    """Return outcome, rule, message and details; a brief one has only its first fix."""
    mark, colour = _MARKS[finding["outcome"]]
    name = strip_controls(f"{finding['rule']} {finding['name']}")
    names = strip_controls(", ".join(finding["pools"]))
    lines = [f"{paint(f'{mark:<7}', 'bold', colour, colour=view.colour)} {name}"]
    if pools and len(name) + len(names) + 12 <= view.width:
        lines[0] += f"  {_paint_dim(f'[{names}]', view)}"
    elif pools:
        lines += _label_lines("pools", names, view)
    lines += [f"  {line}" for line in wrap(finding["message"], view.width - 2)]
    if brief:
        for fix in finding["fixes"][:1]:
            lines += _label_lines("fix", f"{fix['message']}: {fix_option(fix['set'])}", view)
        return lines
    if finding["have"]:
        lines += _label_lines("have", f"{finding['component']} {finding['have']}", view)
    if finding["need"]:
        lines += _label_lines("need", finding["need"], view)
    for fix in finding["fixes"]:
        lines += _label_lines("fix", fix["message"], view)
        lines.append(f"  {'':<{_LABEL}}{paint(fix_option(fix['set']), 'bold', colour=view.colour)}")
    if source := format_source(finding["source"]):
        lines += [_paint_dim(line, view) for line in _label_lines("source", source, view)]
    return lines


def _label_lines(label: str, text: str, view: View) -> list[str]:
    return wrap_beside(f"  {label:<{_LABEL}}", text, view.width)


def _paint_dim(text: str, view: View) -> str:
    return paint(text, "dim", colour=view.colour)
