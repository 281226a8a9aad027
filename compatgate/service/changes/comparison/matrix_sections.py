"""Arrange backtests, dependents, the packages report and differences of facts for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from compatgate.core.compare.differences import count_things
from compatgate.core.rule import EXIT_ALLOWED, EXIT_DENIED, EXIT_NO_DECISION
from compatgate.kit.cli.output import format_json_time
from compatgate.kit.sections import Item, Section, shorten
from compatgate.service.changes.comparison.sections import Body, Report

_EFFECTS = {
    "newly_denied": "Newly denied",
    "newly_unknown": "Newly stopped, because something is not known",
    "newly_allowed": "Newly allowed",
    "changed": "Another verdict, treated as before",
}
_CAUSES = {
    "facts": "the vendors' facts",
    "matrix": "the matrix",
    "evidence": "missing evidence",
    "policy": "the policy, with the same findings",
    "target": "the target",
}
_HUES = {"newly_denied": "red", "newly_unknown": "yellow", "newly_allowed": "green"}
_LOST = {True: "lost", False: "kept", None: "not known"}
_SIGNS = {"add": "+", "change": "~", "remove": "-"}
_MAX_NAMES = 5
_MAX_EXAMPLES = 5
_MAX_PARTS = 6
_MAX_LINES = 40
_LONGEST_VALUE = 60


# --- backtests -------------------------------------------------------------------------------


def backtest_status(answer: Body) -> int:
    """Return the exit status of a backtest: newly unknown or undecided questions give 3."""
    counts = answer["counts"]
    if counts["newly_denied"]["questions"]:
        return EXIT_DENIED
    if counts["newly_unknown"]["questions"] or not answer["complete"]:
        return EXIT_NO_DECISION
    return EXIT_ALLOWED


def report_backtest(answer: Body) -> Report:
    """Return a `BacktestBody` in JSON form as a report."""
    sections = []
    for effect, title in _EFFECTS.items():
        groups = [group for group in answer["groups"] if group["effect"] == effect]
        title = f"{title}: {_count(answer['counts'][effect])}"
        sections.append(Section(title, tuple(map(_describe_group, groups))))
    sections.append(Section("Left out", tuple(map(Item, answer["remarks"]))))
    count = answer["decisions"]
    basis = (
        f"{count} decision{'' if count == 1 else 's'} of {answer['days']} days on matrix revision "
        f"{answer['matrix_revision']}; no decision was changed"
    )
    hue = next((_HUES[e] for e in _HUES if answer["counts"][e]["questions"]), "green")
    return Report(answer["summary"], tuple(sections), basis, hue, label="Backtest")


def _describe_group(group: Body) -> Item:
    rule = f"{group['rule']} {group['name']}" if group["rule"] else "the target"
    because = "" if group["cause"] == "target" else f" ({_CAUSES[group['cause']]})"
    details = [
        f"{_count(group)} on {shorten(group['targets'], _MAX_NAMES)};"
        f" last {_format_moment(group['last'])};"
        f" asked by {shorten(group['asked_by'], _MAX_NAMES) or 'nobody'}"
    ]
    for one in group["examples"][:_MAX_EXAMPLES]:
        stack = []
        for name, value in one["stack"].items():
            if isinstance(value, list) and all(isinstance(part, str) for part in value):
                value = "+".join(value)
            stack.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
        verdicts = f"{one['before'] or 'no answer'} -> {one['after'] or 'no answer'}"
        image = f" ({one['image']})" if one["image"] else ""
        details.append(f"{shorten(stack, _MAX_PARTS)}{image}: {verdicts}, {one['verdict_id']}")
    more = group["questions"] - min(len(group["examples"]), _MAX_EXAMPLES)
    if more and group["examples"]:
        details.append(f"and {more} more")
    return Item(f"{rule}{because}: {group['message']}", tuple(details))


def _count(counts: Body) -> str:
    return ", ".join(
        f"{counts[name]} {name.removesuffix('s') if counts[name] == 1 else name}"
        for name in ("questions", "decisions", "nodes")
    )


def _format_moment(moment: Any) -> str:
    return format_json_time(moment if isinstance(moment, str) else moment.isoformat()) or "-"


# --- dependents ------------------------------------------------------------------------------


def report_dependents(answer: Body) -> Report:
    """Return a `DependentsBody` in JSON form as a report."""
    targets = [
        (
            one["target"],
            one["owner"] or "",
            one["mode"],
            "yes" if one["stops"] else "no",
            ", ".join(one["pools"]),
            str(one["declared_nodes"]),
            str(one["reported_nodes"]),
        )
        for one in answer["targets"]
    ]
    stacks = [
        (
            one["target"],
            one["image"] or ", ".join(f"{n} {v}" for n, v in one["stack"].items()),
            str(one["decisions"]),
            _format_moment(one["last"]),
            _LOST[one["lost"]],
        )
        for one in answer["stacks"]
    ]
    head = ("target", "owner", "mode", "requires it", "pools", "declared nodes", "reported nodes")
    counts = (
        f"{len(targets)} targets, {answer['decisions']} decisions about {len(stacks)} stacks since "
        f"{answer['since'][:10]}, {count_things(answer['node_count'], 'node')}"
    )
    lost = f"without it {answer['lost']} stacks are not allowed"
    return Report(
        f"{answer['entry']} ({answer['status']}): {counts}; {lost}",
        (
            Section("Targets", head=head, rows=tuple(targets)),
            Section(
                "Recorded stacks",
                head=("target", "stack", "decisions", "last", "without the entry"),
                rows=tuple(stacks),
            ),
        ),
        f"matrix revision {answer['matrix_revision']}",
        remarks=[*answer["left_out"], *(f"replaces {name}" for name in answer["replaces"])],
    )


# --- packages --------------------------------------------------------------------------------


def packages_status(answer: Body) -> int:
    """Return the exit status of the packages report: what was not checked gives 3."""
    targets = answer["targets"]
    if any(target["stopped"] or target["stopped_entries"] for target in targets):
        return EXIT_DENIED
    checked = all(not one["open"] and (one["decisions"] or one["entries"]) for one in targets)
    return EXIT_ALLOWED if checked and answer["complete"] else EXIT_NO_DECISION


def report_packages(answer: Body) -> Report:
    """Return a `PackagesReport` with targets, in JSON form, as a report."""
    which = "every decision" if answer["complete"] else "the newest decisions, not every one,"
    since = _format_moment(answer["since"])
    sections: list[Section] = []
    for target in answer["targets"]:
        items = [Item(f"not checked: {reason}") for reason in target["open"]]
        items += map(_describe_package, target["packages"])
        sections.append(Section(_describe_packages(target), tuple(items)))
    title = f"{len(sections)} targets audit packages"
    if len(sections) == 1:
        title, sections[0] = sections[0].title, Section("Open packages", sections[0].items)
    return Report(
        title,
        tuple(sections),
        f"{which} since {since}; matrix revision {answer['matrix_revision']}",
        {EXIT_ALLOWED: "green", EXIT_DENIED: "red"}.get(packages_status(answer), "yellow"),
    )


def _describe_packages(target: Body) -> str:
    head = f"{target['target']} (mode {target['mode']})"
    if not (target["decisions"] or target["entries"]):
        return f"{head}: no decisions and no entries to check"
    entries = f"{len(target['stopped_entries'])} of {count_things(target['entries'], 'entry')}"
    decisions = f"{target['stopped']} of {target['decisions']} decisions"
    return f"{head}: enforce would stop {decisions} and {entries}"


def _describe_package(package: Body) -> Item:
    count = f"{package['decisions']}, of which enforce would stop {package['stopped']}"
    rows = [
        ("decisions", count),
        ("first seen", package["first"] and _format_moment(package["first"])),
        ("last seen", package["last"] and _format_moment(package["last"])),
        ("verdicts", ", ".join(package["verdicts"])),
        ("entries", ", ".join(package["entries"])),
    ]
    details = [package["message"], *(f"{name}: {value}" for name, value in rows if value)]
    details += [f"to do: {way}" for way in package["todo"]]
    name = f"{package['package']} {package['version']}"
    return Item(f"{name} ({', '.join(package['rules'])})", tuple(details))


# --- differences of facts --------------------------------------------------------------------


def report_facts(answer: Body) -> list[Section]:
    """Return the sections of what ``facts diff --format json`` prints."""
    records, entries, decisions = answer["records"], answer["entries"], answer["decisions"]
    count = len(records)
    title = "1 record differs" if count == 1 else f"{count or 'no'} records differ"
    sections = [Section(f"facts: {title}", tuple(_limit(list(map(_describe_record, records)))))]
    if entries is not None:
        changed, unusable = entries["changed"], entries["unusable"].items()
        items = [item for entry in changed for item in _describe_entry(entry)]
        items += [Item(f"{target} could not be evaluated: {why}") for target, why in unusable]
        title = f"matrix: {len(changed) or 'none'} of {entries['judged']} entries in use change"
        sections.append(Section(f"{title} on {entries['targets']} targets", tuple(items)))
    if decisions is not None:
        changed, failed = decisions["changed"], decisions["not_asked"].items()
        items = [*_limit(list(map(_describe_decision, changed)))]
        items += [Item(f"{name} could not be re-evaluated: {why}") for name, why in failed]
        title = f"decisions: {len(changed) or 'none'} of {decisions['verdicts']} verdicts change"
        sections.append(Section(f"{title} ({decisions['read']} decisions)", tuple(items)))
    return sections


def _limit(items: Sequence[Item]) -> Iterator[Item]:
    yield from items[:_MAX_LINES]
    if len(items) > _MAX_LINES:
        yield Item(f"and {len(items) - _MAX_LINES} more (--format json)")


def _describe_record(change: Body) -> Item:
    name = " ".join(filter(None, (change["facts"], change["part"], change["key"])))
    fields = [
        f"{field['path']}: {_shorten(field['before'])} -> {_shorten(field['after'])}"
        for field in change["fields"]
    ]
    return Item(f"{_SIGNS[change['action']]} {name}", tuple(fields))


def _shorten(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _describe_entry(entry: Body) -> Iterator[Item]:
    for pool in entry["pools"]:
        if pool["change"] != "same" or pool["before"] != pool["after"]:
            verdicts = f"{pool['before']} -> {pool['after']} ({pool['change']})"
            lost = tuple(f"{f['rule']} {f['message']}" for f in pool["lost"][:3])
            yield Item(f"{entry['target']} {entry['entry']} on {pool['pool']}: {verdicts}", lost)


def _describe_decision(change: Body) -> Item:
    names = ",".join(f"{name}={value}" for name, value in list(change["stack"].items())[:4])
    rules = f" by {', '.join(change['rules'])}" if change["rules"] else ""
    stops = {True: "allowed", False: "stopped"}
    return Item(
        f"{change['verdict_id']} {change['target'] or 'a pool'} {names}: "
        f"{change['before']} ({stops[change['allowed_before']]}) -> "
        f"{change['after']} ({stops[change['allowed_after']]}){rules}, {change['times']} times"
    )
