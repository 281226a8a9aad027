"""Names in a change of the matrix: suites and targets must exist, whichever way a change takes."""

from __future__ import annotations

from typing import Any

import pytest
from canary_runs import host
from flask.testing import FlaskClient

from compatgate.documents.sources import Source
from compatgate.documents.text import to_yaml
from compatgate.errors import ManyProblems
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.recovery.doctor import Subjects, examine

BY = Authorship("ann", "for the test")
FORCED = Authorship("ann", "for the test", force=True)
API = "/api/v1"
Body = dict[str, Any]


def target(name: str = "lab", *suites: str, soak: tuple[str, ...] = ()) -> Body:
    canary = {"require": True, "suites": list(suites or ("dl-cor",)), "soak": list(soak)}
    spec = {
        "pools": [{"name": "p", "gpu": "L4", "driver": "550.54.15"}],
        "policy": {"canary": canary},
    }
    head = {"apiVersion": "compatgate.dev/v1", "kind": "Target", "metadata": {"name": name}}
    return {**head, "spec": spec}


def files(*bodies: Body) -> list[Source]:
    return [Source("matrix.yaml", to_yaml(bodies))]


def test_an_import_refuses_a_misspelt_suite_with_the_nearest_name(rooms: Rooms) -> None:
    before = rooms.matrix.list_revisions().items[0].number
    with pytest.raises(ManyProblems) as error:
        rooms.matrix.import_documents(files(target("lab", "smoke", "dl-cor")), BY)
    (problem,) = error.value.problems
    assert problem.field == "spec.policy.canary.suites[1]"
    assert problem.value == "dl-cor"
    assert problem.hint.startswith("did you mean dl-core?")
    assert problem.where.startswith("matrix.yaml:")
    assert rooms.matrix.list_revisions().items[0].number == before


def test_a_suite_of_the_soak_is_checked_as_well(rooms: Rooms) -> None:
    with pytest.raises(ManyProblems, match=r"canary\.soak\[0\].*'soka'.*did you mean soak"):
        rooms.matrix.import_documents(files(target("lab", "smoke", soak=("soka",))), BY)


def test_a_workload_is_no_suite_and_the_hint_names_the_suites_with_it(rooms: Rooms) -> None:
    with pytest.raises(ManyProblems, match=r"that is a workload; suites with it: smoke, dl-core"):
        rooms.matrix.import_documents(files(target("lab", "gemm")), BY)


def test_a_suite_that_a_worker_has_registered_is_known(rooms: Rooms) -> None:
    queue = rooms.runs.open_queue(suites=["site-acceptance"])
    queue.register("w2", [host("b1")])
    rooms.matrix.import_documents(files(target("lab", "site-acceptance")), BY)
    with pytest.raises(ManyProblems, match="did you mean site-acceptance"):
        rooms.matrix.import_documents(files(target("other", "site-aceptance")), BY)


def test_force_takes_a_suite_that_a_worker_will_bring_and_warns(rooms: Rooms) -> None:
    result = rooms.matrix.import_documents(files(target("lab", "later")), FORCED)
    assert result.revision is not None
    (warning,) = result.warnings
    assert "nothing can run the suite 'later'" in warning
    assert result.to_json()["warnings"] == [warning]


def test_a_suite_with_imported_results_needs_nothing_that_runs_it(rooms: Rooms) -> None:
    fabric = target("lab", "smoke", "fabric")
    fabric["spec"]["policy"]["canary"]["imported"] = {"fabric": ["nccl-tests@acceptance"]}
    assert rooms.matrix.import_documents(files(fabric), BY).warnings == ()


def test_a_target_with_an_unknown_suite_is_loaded_and_decides_as_before(rooms: Rooms) -> None:
    rooms.matrix.import_documents(files(target("lab", "later")), FORCED)
    verdict = rooms.gate.decide(
        {"target": "lab", "stack": {"cuda": "12.4"}}, asked_by="t", source="t"
    )
    assert "CG811" in [finding.rule for finding in verdict.findings]


def test_force_takes_no_other_mistake(rooms: Rooms) -> None:
    entry = {**target(), "kind": "Entry"}
    entry["spec"] = {"targets": ["prod-a10"], "components": {"cuda": "12.*"}, "status": "blessed"}
    with pytest.raises(ManyProblems, match="did you mean prod-a100"):
        rooms.matrix.import_documents(files(entry), FORCED)


def test_what_is_stored_already_can_still_be_changed_elsewhere(rooms: Rooms) -> None:
    rooms.matrix.create("Target", target("lab", "later"), FORCED)
    newer = target("lab", "later")
    newer["spec"]["pools"][0]["driver"] = "580.95.05"
    rooms.matrix.change("Target", "lab", newer, BY)
    assert rooms.matrix.import_documents(files(newer), BY).unchanged == 1
    with pytest.raises(ManyProblems, match="'latter'"):
        rooms.matrix.change("Target", "lab", target("lab", "later", "latter"), BY)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "/targets", {**target(), "reason": "r"}),
        ("put", "/targets/prod-a100", {**target("prod-a100"), "reason": "r"}),
        ("post", "/matrix/import?reason=r", [target()]),
        ("post", "/matrix/sync?reason=r", [target()]),
        ("post", "/proposals", {"documents": [target()], "reason": "r"}),
    ],
)
def test_each_way_of_rest_refuses_a_misspelt_suite_and_takes_it_by_force(
    client: FlaskClient, method: str, path: str, body: Any
) -> None:
    refused = getattr(client, method)(f"{API}{path}", json=body)
    assert refused.status_code == 400, refused.text
    assert "did you mean dl-core" in refused.text
    forced = f"{path}{'&' if '?' in path else '?'}force=true"
    answer = getattr(client, method)(f"{API}{forced}", json=body)
    assert answer.status_code in (200, 201), answer.text
    (warning,) = answer.get_json()["warnings"]
    assert "'dl-cor'" in warning


def test_a_changed_proposal_is_checked_as_well(client: FlaskClient) -> None:
    body = {"documents": [target("lab", "smoke")], "reason": "r"}
    number = client.post(f"{API}/proposals", json=body).get_json()["id"]
    wrong = client.put(f"{API}/proposals/{number}", json={**body, "documents": [target()]})
    assert wrong.status_code == 400
    assert "did you mean dl-core" in wrong.text


@pytest.mark.parametrize("page", ["new-target", "import", "proposals/new"])
def test_each_form_refuses_a_misspelt_suite_and_takes_it_by_force(
    client: FlaskClient, page: str
) -> None:
    shown = client.get(f"/ui/{page}").text
    assert 'name="force"' in shown
    token = shown.partition('name="form_token" value="')[2].partition('"')[0]
    form = {"form_token": token, "documents": to_yaml([target()]), "reason": "r"}
    form["what"] = "import" if page == "import" else "create"
    refused = client.post(f"/ui/{page}", data=form)
    assert refused.status_code == 400, refused.text
    assert "did you mean dl-core" in refused.text
    answer = client.post(f"/ui/{page}", data={**form, "force": "yes"})
    assert answer.status_code == 303, answer.text


def test_doctor_names_stored_suites_that_nothing_can_run(rooms: Rooms) -> None:
    rooms.matrix.create("Target", target("lab", "dl-cor"), FORCED)
    subjects = Subjects(database=rooms.gate.database.url.render_as_string(hide_password=False))
    (check,) = [one for one in examine(subjects) if one.name == "suites"]
    assert check.state == "warn"
    assert "target lab names the suite 'dl-cor', which nothing can run" in check.message
    assert "did you mean dl-core" in check.message
