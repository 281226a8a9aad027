"""A command derives from an operation: its options, what it sends, and what it prints."""

from __future__ import annotations

import argparse
import re
from typing import Any

import pytest

from compatgate.cli.commands import Group, Row, columns, name_option, print_row, values_of
from compatgate.errors import BadInput
from compatgate.kit.cli.parser import Parser
from compatgate.kit.principal import SCOPES

CREATE = Row("create_token", "--name NAME\nscopes: --scope SCOPES")
NODES = Row("list_nodes")
RUNS = Row("list_runs", columns=columns("id", "queued: queued_at"))


def parsed(row: Row, *words: str) -> argparse.Namespace:
    parser = Parser(prog="compatgate thing")
    Group({"act": row}).add_arguments(parser)
    return parser.parse_args(["act", *words])


def values(row: Row, *words: str) -> dict[str, Any]:
    found = values_of(parsed(row, *words), row)
    return {name: value for name, value in found.items() if value is not None}


def test_an_option_sends_the_argument_that_it_names() -> None:
    assert values(CREATE, "--name", "ci", "--scope", "read, gate") == {
        "name": "ci",
        "scopes": ["read", "gate"],
    }


def test_without_a_table_of_options_each_argument_is_one() -> None:
    assert values(NODES, "--driver-state", "blessed", "--disagrees") == {
        "driver_state": "blessed",
        "disagrees": True,
    }


def test_what_the_operation_requires_the_command_requires(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parsed(CREATE, "--name", "ci")
    assert "required: --scope" in capsys.readouterr().err


def test_a_choice_that_the_api_does_not_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(NODES, "--driver-state", "new")
    assert "blessed" in capsys.readouterr().err
    for scopes, problem in (("read,root", "is unknown"), (",", "names nothing")):
        with pytest.raises(BadInput, match=f"--scope: .*{problem}") as refused:
            values(CREATE, "--name", "ci", "--scope", scopes)
        assert refused.value.hint == f"of {', '.join(SCOPES)}"


@pytest.mark.parametrize(
    ("words", "sent"),
    [((), {}), (("--stale", "yes"), {"stale": True}), (("--stale", "no"), {"stale": False})],
)
def test_a_truth_value_is_given_as_yes_or_no(words: tuple[str, ...], sent: dict[str, bool]) -> None:
    row = NODES._replace(usage="--stale {yes,no}  only nodes without a report")
    assert values(row, *words) == sent


def test_an_argument_may_need_more_than_an_option() -> None:
    row = Row("list_tokens", "--all  include revoked tokens")
    row = row._replace(values=lambda args: {"active": None if args.all else True})
    assert values(row) == {"active": True}
    assert values(row, "--all") == {}


def test_the_end_of_a_time_is_the_end_of_its_day() -> None:
    found = values(RUNS, "--since", "2026-11-03", "--until", "2026-11-03")
    assert (found["since"].hour, found["until"].hour) == (0, 23)
    with pytest.raises(BadInput, match="--since"):
        values(RUNS, "--since", "soon")


def test_an_error_about_an_argument_names_its_option() -> None:
    for field, option in (("scopes[1]", "--scope[1]"), ("name", "--name"), ("matrix", "matrix")):
        error = BadInput("is wrong", field=field)
        name_option(error, CREATE)
        assert error.field == option


def test_a_list_is_a_table_and_an_answer_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    run = {"id": "r1", "queued_at": "2026-11-03T09:30:00.5Z"}
    print_row("text", RUNS, [run])
    assert capsys.readouterr().out == "ID  QUEUED\nr1  2026-11-03 09:30:00Z\n"
    print_row("text", RUNS, [])
    assert capsys.readouterr().out == "no runs\n"
    print_row("text", CREATE._replace(text=lambda made: made["secret"]), {"secret": "cg_1"})
    assert capsys.readouterr().out == "cg_1\n"
    print_row("json", RUNS, [run])
    assert capsys.readouterr().out.startswith("[\n  {")


def test_a_row_states_only_what_it_says_better_than_the_api() -> None:
    row = Row("list_nodes", "--stale {yes,no}\n...")
    assert values(row, "--stale", "no", "--cluster", "east") == {"stale": False, "cluster": "east"}
    (stale, *_, disagrees) = row.options()
    assert (stale.flag, disagrees.flag) == ("--stale", "--disagrees")


def test_an_argument_that_the_api_does_not_describe_is_described_by_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for row, texts in (
        (Row("show_node"), ("name of the node", "--cluster")),
        (Row("list_upgrades"), ("only this state", "only this target")),
        (Row("approve_baseline"), ("id of the baseline",)),
    ):
        with pytest.raises(SystemExit):
            parsed(row, "--help")
        shown = capsys.readouterr().out
        assert all(text in shown for text in texts)


def test_a_text_may_be_a_template(capsys: pytest.CaptureFixture[str]) -> None:
    print_row(
        "text", Row("show_node", text="removed {cluster}/{name}"), {"cluster": "a", "name": "b"}
    )
    assert capsys.readouterr().out == "removed a/b\n"


class Gate:
    """Answers operations with their path."""

    def send(self, request: Any) -> Any:
        return {"path": request.url, "runs": [request.url]}


def test_a_row_asks_for_one_where_its_option_is_stated() -> None:
    row = Row("list_revisions", "[number: REVISION]", show="show_revision")
    args = parsed(row, "42")
    assert row.ask(args, Gate())["path"] == "/api/v1/revisions/42"


def test_a_row_asks_for_each_of_several_and_shows_the_member_that_it_names() -> None:
    cancel = Row("cancel_run", "id: ID ...")
    asked = cancel.ask(parsed(cancel, "run_1", "run_2"), Gate())
    assert [one["path"] for one in asked] == [f"/api/v1/runs/run_{n}/cancel" for n in (1, 2)]
    rerun = Row("rerun", member="runs")
    assert rerun.ask(parsed(rerun, "run_1"), Gate()) == ["/api/v1/runs/run_1/rerun"]


def test_a_column_shows_a_member_by_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    shown = columns("name: metadata.name", "spec.targets", "by: votes.by", "limits", "asked_by")
    one = {
        "metadata": {"name": "a"},
        "spec": {"targets": ["t", "u"]},
        "votes": [{"by": "ada"}, {"by": "bob"}],
        "limits": {"cuda": "12.*"},
        "asked_by": None,
    }
    print_row("text", Row("list_runs", columns=shown), [one])
    head, row = (re.split("  +", line) for line in capsys.readouterr().out.splitlines())
    assert head == ["NAME", "TARGETS", "BY", "LIMITS", "ASKED BY"]
    assert row == ["a", "t, u", "ada, bob", "cuda 12.*", "-"]
