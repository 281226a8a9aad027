"""The steps from a denial to an allowed stack."""

from __future__ import annotations

import shlex
from datetime import date
from typing import Any

import pytest
from flask.testing import FlaskClient

from compatgate.cli.main import parser_of
from compatgate.core.remedies import Remedy
from compatgate.documents.sources import Source
from compatgate.documents.text import to_yaml
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.gate.questions.remedies import Resolution, resolve_verdict
from compatgate.service.matrix.documents.waivers import parse_components, split_words
from compatgate.web.pages.next_steps import Step, StepPlace, list_steps

BY = Authorship("tester", "for the test")
PLACE = StepPlace("https://gate.example", "ml-platform")
EXPIRES = date(2026, 12, 31)
OTHER_CUDA = {"target": "prod-a100", "stack": {"cuda": "12.1", "torch": "2.4.1+cu121"}}
NO_CODE = {"target": "prod-a100", "stack": {"cuda": "12.4", "arch": ["sm_70"]}}
OLD_DRIVER = {"pool": {"driver": "450.80.02", "gpu": "A100-SXM4-80GB"}, "stack": {"cuda": "12.4"}}


def steps(rooms: Rooms, question: dict[str, Any]) -> list[Step]:
    shown = rooms.gate.preview(question).to_json()
    found = resolve_verdict(rooms.gate.snapshot(), shown)
    return list_steps(shown, PLACE, found)


def drafted(step: Step) -> Source:
    """Return the waiver that the form of a step makes."""
    fields = step.form.fields if step.form else {}
    spec = {
        "rules": split_words(fields["rules"]),
        "targets": [fields["targets"]],
        "match": {"components": parse_components(fields["components"])},
        "owner": "team-ml",
        "reason": "it must run",
        "expires": EXPIRES.isoformat(),
    }
    named = {"apiVersion": "compatgate.dev/v1", "kind": "Waiver", "metadata": {"name": "draft"}}
    return Source("waiver.yaml", to_yaml([{**named, "spec": spec}]))


def finding(rule: str, **more: Any) -> dict[str, Any]:
    shown = {"rule": rule, "name": "a-name", "outcome": "fail", "pools": [], "component": "canary"}
    given = {"have": None, "need": None, "message": "said so", "source": None, "fixes": []}
    return {**shown, **given, **more}


def verdict(*findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "vd_1",
        "verdict": "fail",
        "allowed": False,
        "target": "prod-a100",
        "image": None,
        "stack": {"cuda": "12.4", "torch": "2.4.1+cu124"},
        "pools": [],
        "findings": list(findings),
        **more,
    }


@pytest.mark.parametrize("question", [OTHER_CUDA, NO_CODE, OLD_DRIVER])
def test_every_command_is_one_that_the_program_takes(rooms, question):
    found = steps(rooms, question)
    commands = [command for step in found for command in step.commands]
    assert commands
    for command in commands:
        program, name, *arguments = shlex.split(command)
        assert program == "compatgate"
        parser_of(name).parse_args(arguments)


def test_a_missing_entry_is_proposed_with_the_versions_that_were_denied(rooms):
    step = next(step for step in steps(rooms, OTHER_CUDA) if step.title.startswith("Propose"))
    assert step.owner == "the owner of prod-a100, ml-platform"
    name, text = step.file or ("", "")
    assert f"compatgate matrix propose {name}" in step.commands[0]
    planned = rooms.matrix.import_documents([Source(name, text)], BY, dry_run=True)
    assert [change.action for change in planned.changes] == ["create"]
    assert rooms.gate.preview(OTHER_CUDA).verdict == "fail"
    rooms.matrix.import_documents([Source(name, text)], BY)
    after = rooms.gate.preview(OTHER_CUDA)
    assert "CG801" not in [one.rule for one in after.failing]


def test_where_evidence_is_missing_the_entry_is_a_candidate_until_the_canary_has_passed(rooms):
    missing = finding("CG811", need="a passed run of suite dl-core on staging")
    found = list_steps(verdict(finding("CG801"), missing), PLACE)
    titles = [step.title for step in found]
    assert titles[:3] == [
        "Propose an entry for the stack as it is",
        "Run suite dl-core on staging",
        "Have the entry torch-2-4-1-cu124 blessed",
    ]
    name, text = found[0].file or ("", "")
    assert "status: candidate" in text
    rooms.matrix.import_documents([Source(name, text)], BY)
    assert "--bless torch-2-4-1-cu124" in found[2].commands[0]


def test_the_draft_of_a_waiver_is_valid_and_narrow(rooms):
    step = next(step for step in steps(rooms, OTHER_CUDA) if "waiver" in step.title)
    assert step.form is not None
    assert step.form.scope == "bless"
    assert "everything" not in step.form.fields["components"]
    assert "torch ==2.4.1+cu121" in step.form.fields["components"]
    rooms.matrix.import_documents([drafted(step)], BY, dry_run=True)


def test_changes_of_the_stack_are_yours_and_changes_of_the_pools_are_the_owners():
    stack, pools = (
        Remedy({"cuda": "12.1"}, "use CUDA 12.1", 0),
        Remedy({"driver": "580.95.05"}, "use driver 580.95.05", 2),
    )
    found = list_steps(verdict(finding("CG101")), PLACE, Resolution(remedies=(stack, pools)))
    lowered, raised = found[:2]
    assert (lowered.title, lowered.owner) == ("Use CUDA 12.1", "you")
    assert "--set cuda=12.1" in lowered.commands[0]
    assert raised.owner == "the owner of prod-a100, ml-platform"
    assert raised.commands[1].startswith("compatgate plan --target prod-a100 --set driver=580")
    assert raised.why == "Evaluated: it ends in allowed, with 2 warnings."


@pytest.mark.parametrize("question", [OTHER_CUDA, NO_CODE, OLD_DRIVER])
def test_every_change_ends_in_allowed_and_the_smallest_comes_first(rooms, question):
    changes = [one.changes for one in steps(rooms, question) if one.changes]
    assert changes
    for change in changes:
        assert rooms.gate.preview({**question, "set": change}).allowed
    assert [len(one) for one in changes] == sorted(len(one) for one in changes)
    assert not [1 for a in changes for b in changes if a is not b and a.items() <= b.items()]


def test_a_change_mends_all_findings_together(rooms):
    two = {"target": "prod-a100", "stack": {"cuda": "12.4", "arch": ["sm_70"]}}
    assert len(rooms.gate.preview(two).failing) == 2
    change = steps(rooms, two)[0].changes or {}
    assert "sm_80" in (change["arch"] or "")
    assert change.keys() > {"arch"}


def test_what_is_allowed_by_now_is_asked_again(rooms):
    shown = rooms.gate.preview(OTHER_CUDA).to_json()
    name, text = next(one.file for one in steps(rooms, OTHER_CUDA) if one.file)
    rooms.matrix.import_documents([Source(name, text)], BY)
    found = resolve_verdict(rooms.gate.snapshot(), shown)
    assert [one.title for one in list_steps(shown, PLACE, found)] == ["It is allowed now"]


def test_a_waiver_covers_what_is_unknown_where_the_policy_stops_it(rooms):
    row = rooms.matrix.get("Target", "prod-a100")
    assert row.document["spec"]["policy"]["onUnknown"] == "fail"
    question = {"target": "prod-a100", "stack": {"cuda": "99.9", "arch": ["sm_70"]}}
    shown = rooms.gate.preview(question).to_json()
    outcomes = {f["outcome"]: f["rule"] for f in shown["findings"]}
    assert {"fail", "unknown"} <= outcomes.keys()
    waiver = next(one for one in steps(rooms, question) if "waiver" in one.title)
    rooms.matrix.import_documents([drafted(waiver)], BY)
    assert rooms.gate.preview(question).allowed


def test_a_waiver_says_what_it_cannot_cover():
    fields = {"rules": "CG201", "targets": "prod-a100", "components": "cuda ==12.4"}
    found = Resolution(waiver=fields, uncovered=("CG901 incomplete: the GPU code is not known",))
    step = list_steps(verdict(finding("CG201")), PLACE, found)[-1]
    assert step.title == "A waiver alone does not allow it"
    assert "CG901 incomplete" in step.why


def test_missing_evidence_asks_for_the_suite_and_a_failed_run_for_a_look_at_it():
    missing = finding("CG811", need="a passed run of suite dl-core on staging")
    failed = finding("CG813", have="run_0a", need="a passed run of suite smoke")
    first, second, *_ = list_steps(verdict(missing, failed), PLACE)
    assert "canary run --suite dl-core --target prod-a100" in first.commands[0]
    assert "--stack cuda=12.4,torch=2.4.1+cu124" in first.commands[0]
    assert second.commands[0].startswith("compatgate canary show run_0a")
    for command in (*first.commands, *second.commands):
        _, name, *arguments = shlex.split(command)
        parser_of(name).parse_args(arguments)


def test_a_candidate_is_blessed_not_proposed_again():
    found = list_steps(verdict(finding("CG801", have="torch24-cu124")), PLACE)
    assert "--bless torch24-cu124" in found[0].commands[0]
    assert found[0].file is None


def test_a_waiver_of_a_fact_says_that_the_fact_stays():
    fields = {"targets": "prod-a100", "components": "cuda ==12.4"}

    def why(rules: str) -> str:
        found = Resolution(waiver={**fields, "rules": rules})
        return list_steps(verdict(finding("CG201")), PLACE, found)[-1].why

    assert "What CG201 reports stays; the program may still fail." in why("CG201, CG801")
    assert "reports" not in why("CG801")


def test_what_no_waiver_covers_offers_none():
    unknown = finding("CG901", outcome="unknown", need="the GPU code (arch)")
    found = list_steps(verdict(unknown, verdict="unknown"), PLACE)
    assert found[0].title == "State what is missing: the GPU code (arch)"
    assert not [step for step in found if "waiver" in step.title]


def test_a_hostile_image_stays_one_word_of_the_command():
    hostile = "registry.example/a:1; rm -rf $HOME `id`"
    found = list_steps(
        verdict(finding("CG201"), image=hostile, stack={}), PLACE, Resolution(is_allowed=True)
    )
    words = shlex.split(found[-1].commands[0])
    assert words[words.index("--image") + 1] == hostile


def test_a_stack_that_passes_needs_no_steps():
    assert list_steps(verdict(verdict="pass", allowed=True), PLACE) == []
    assert list_steps(verdict(finding("CG102", outcome="warn"), verdict="warn"), PLACE) == []


def test_a_rule_of_another_version_is_explained_all_the_same():
    found = list_steps(verdict(finding("CG999")), PLACE)
    assert found[0].commands[0] == "compatgate explain CG999"


def test_the_page_of_a_denial_names_the_owner_of_the_target(client: FlaskClient, rooms: Rooms):
    row = rooms.matrix.get("Target", "prod-a100")
    named = {**row.document["metadata"], "owner": "ml-platform"}
    rooms.matrix.change("Target", "prod-a100", {**row.document, "metadata": named}, BY)
    verdict_id = client.post("/api/v1/gate", json=OTHER_CUDA).get_json()["id"]
    page = client.get(f"/ui/verdicts/{verdict_id}").text
    assert "The change that allows it" in page
    assert "the owner of prod-a100, ml-platform" in page
    assert f"http://localhost/v/{verdict_id}" in page
