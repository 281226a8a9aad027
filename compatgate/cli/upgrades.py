"""Run ``compatgate upgrade``: propose upgrades, start their waves, stop and roll back."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from compatgate.cli.commands import Body, Group, Row, columns, format_rows
from compatgate.kit.cli.options import AUTHOR
from compatgate.kit.cli.output import format_json_time
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.sections import shorten

EXIT = {"start": 0, "done": 0, "roll back": 1, "wait": 3}
"""Exit status by answer; ``done`` of a wave means that nothing is left to do."""
_WAVES = columns(
    *("wave: number", "answer", "nodes", "upgraded", "excluded: left_out"),
    ("domains", lambda wave: shorten([one["name"] for one in wave["domains"]], 2)),
    *("started: started_at", "finished: finished_at"),
)


def _list_lines(upgrade: Body) -> Iterator[str]:
    state = f"{upgrade['state']}: {upgrade['why']}" if upgrade["why"] else upgrade["state"]
    yield f"{upgrade['name']}: driver {upgrade['driver']} on {upgrade['target']}, {state}"
    yield f"proposed by {upgrade['author']}: {upgrade['reason']}"
    yield upgrade["plan"]["summary"]
    if not upgrade["health"]:
        yield "without health reports: GPU errors on upgraded nodes go unnoticed"
    waves = upgrade["wave_list"]
    yield format_rows(waves, _WAVES)
    for wave in waves:
        if wave["answer"] in ("wait", "roll back"):
            for reason in wave["reasons"]:
                yield f"wave {wave['number']}, {wave['answer']}: {reason}"
    for need in upgrade["needs"]:
        yield f"{'required' if need['required'] else 'advised'}: {need['text']}"
    for rate in upgrade["rates"]:
        yield f"{'ALARM ' if rate['alarm'] else ''}{rate['text']}"
    for event in upgrade["events"]:
        which = f" wave {event['wave']}" if event["wave"] else ""
        text = f": {event['text']}" if event["text"] else ""
        what = f"{event['actor'] or 'compatgate'}: {event['action']}{which}{text}"
        yield f"{format_json_time(event['at'])}  {what}"


def _format_upgrade(upgrade: Body) -> str:
    return strip_controls("\n".join(_list_lines(upgrade)))


def _format_answer(answer: Body) -> str:
    lines = [f"{answer['answer'].upper()}: {reason}" for reason in answer["reasons"]]
    if answer["answer"] == "start":
        lines += answer["nodes"]
        if answer["held_until"]:
            until = format_json_time(answer["held_until"])
            lines.append(f"held for {answer['holder']} until {until}; ask again before")
    if good := answer["known_good"]:
        drivers = ", ".join(f"{pool} {driver}" for pool, driver in good["drivers"].items())
        lines.append(f"known good: revision {good['revision']}, drivers {drivers}")
    return strip_controls("\n".join(lines))


_UPGRADES = columns(
    *("upgrade: name", "target", "driver", "state"),
    ("waves", lambda one: f"{one['finished']}/{one['waves']}"),
    *("nodes", "author", "made: made_at", "why"),
)


def _make_body(args: argparse.Namespace) -> Body:
    return {
        "upgrade": {
            **{name: getattr(args, name) for name in ("name", "target", "driver", "pool", "soak")},
            "health": not args.without_health,
            "accepts": args.accept,
            "rack_labels": args.rack_label,
        }
    }


_NAME = "name: UPGRADE\n"


def _change(operation: str, usage: str = _NAME) -> Row:
    action = operation.rpartition("_")[0].replace("_", "-")
    return Row(operation, usage, text=_format_upgrade, reason=f"upgrade {action} {{name}}")


run = Group(
    {
        "list": Row("list_upgrades", columns=_UPGRADES),
        "show": Row("show_upgrade", _NAME, text=_format_upgrade),
        "may-start": Row(
            "may_start",
            f"{_NAME}{AUTHOR}--wave N\n--by NAME\n--dry-run",
            text=_format_answer,
            status=lambda answer, _: EXIT[answer["answer"]],
        ),
        "approve": Row("approve_upgrade", _NAME + AUTHOR, text=_format_upgrade),
        "retract": Row("retract_upgrade", _NAME + AUTHOR, text=_format_upgrade),
        "stop": _change("stop_upgrade"),
        "resume": _change("resume_upgrade"),
        "roll-back": _change("roll_back_upgrade"),
        "leave-out": _change(
            "leave_out_nodes", _NAME + "nodes: NODE ...  CLUSTER/NAME, or a unique name"
        ),
        "create": Row(
            "create_upgrade",
            """\
name: UPGRADE             name of the upgrade
--target NAME (required)  target to upgrade
--driver VERSION (required)  driver release, or a branch for its newest release
--pool NAME               only this pool (default: every pool)
--soak DURATION = 24h     time between waves
--without-health          do not wait for health reports of upgraded nodes; GPU errors go unnoticed
--accept ENTRY ...        entry that the upgrade may retire
--rack-label LABEL ...    node label whose value names a rack (default: known topology labels)
""",
            text=_format_upgrade,
            reason="upgrade {target} to driver {driver}",
            values=_make_body,
        ),
    },
    epilog="""\
exit status of may-start: 0 start (or done: nothing is left of the wave), 1 roll back, 2 bad input,
3 wait, or no answer.
""",
)
