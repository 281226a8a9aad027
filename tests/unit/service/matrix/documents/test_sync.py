"""A matrix that files own: sync, its plan, and what it deletes."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compatgate.documents.ownership import SYNC_LABEL
from compatgate.documents.sources import Source
from compatgate.documents.text import to_yaml
from compatgate.errors import BadInput, Conflict, ManyProblems
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.matrix.documents.imports import SyncOptions
from compatgate.service.matrix.documents.schemas import DocumentName, SyncBody

BY = Authorship("ci", "commit 0123abc")
Body = dict[str, Any]


def entry(name: str, *targets: str, torch: str = "~=2.4.0", **metadata: Any) -> Body:
    spec = {"targets": list(targets or ("prod-a100",)), "components": {"torch": torch},
            "status": "blessed"}  # fmt: skip
    return {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Entry",
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def target(name: str) -> Body:
    pool = {"name": "p", "gpu": "L4", "driver": "550.54.15"}
    head = {"apiVersion": "compatgate.dev/v1", "kind": "Target", "metadata": {"name": name}}
    return {**head, "spec": {"pools": [pool]}}


def sync(rooms: Rooms, *bodies: Body, dry_run: bool = False, **options: Any) -> SyncBody:
    source = Source("matrix.yaml", to_yaml(bodies))
    return rooms.matrix.sync([source], SyncOptions(**options), BY, dry_run=dry_run)


def names(result: SyncBody) -> list[tuple[str, str]]:
    return [(change.action, change.name) for change in result.changes]


def stored(rooms: Rooms, name: str) -> Body:
    return rooms.matrix.get("Entry", name).document


def test_a_sync_makes_one_revision_and_then_finds_no_difference(rooms: Rooms) -> None:
    before = rooms.matrix.list_revisions().items[0].number
    made = sync(rooms, target("t"), entry("a", "t"), name="fleet")
    assert names(made) == [("create", "t"), ("create", "a")]
    assert made.revision == before + 1
    row = rooms.matrix.list_revisions().items[0]
    assert (row.action, row.author, row.reason) == ("sync", "ci", "commit 0123abc")
    assert stored(rooms, "a")["metadata"]["labels"] == {SYNC_LABEL: "fleet"}
    again = sync(rooms, target("t"), entry("a", "t"), name="fleet")
    assert (again.changes, again.unchanged, again.revision) == ([], 2, None)


def test_a_plan_changes_nothing(rooms: Rooms) -> None:
    before = rooms.matrix.export()
    assert names(sync(rooms, entry("a"), dry_run=True)) == [("create", "a")]
    assert rooms.matrix.export() == before


def test_only_prune_deletes_and_only_what_the_sync_owns(rooms: Rooms) -> None:
    sync(rooms, entry("a"), entry("b"), name="fleet")
    sync(rooms, entry("other"), name="team")
    kept = sync(rooms, entry("a"), name="fleet")
    assert (names(kept), kept.left) == ([], [DocumentName("Entry", "b")])
    pruned = sync(rooms, entry("a"), name="fleet", prune=True)
    assert (names(pruned), pruned.left) == ([("delete", "b")], [])
    left = {body["metadata"]["name"] for body in rooms.matrix.export()}
    assert {"a", "other", "torch24-cu124", "legacy-ocr"} <= left


def test_a_document_without_a_sync_is_adopted_and_said(rooms: Rooms) -> None:
    body = stored(rooms, "torch24-cu124")
    made = sync(rooms, body, name="fleet")
    assert made.adopted == [DocumentName("Entry", "torch24-cu124")]
    assert [field.path for field in made.changes[0].fields] == ["metadata.labels"]


def test_a_document_of_another_sync_is_refused_unless_taken_over(rooms: Rooms) -> None:
    sync(rooms, entry("a"), name="fleet")
    with pytest.raises(ManyProblems, match="belongs to another sync") as told:
        sync(rooms, entry("a", torch="~=2.5.0"), name="team")
    assert "belongs to the sync 'fleet'" in told.value.problems[0].problem
    labelled = entry("new", labels={SYNC_LABEL: "fleet"})
    with pytest.raises(ManyProblems):
        sync(rooms, labelled, name="team")
    taken = sync(rooms, entry("a"), name="team", take_over=True)
    assert taken.adopted == [DocumentName("Entry", "a")]
    assert stored(rooms, "a")["metadata"]["labels"] == {SYNC_LABEL: "team"}


def test_a_sync_without_a_name_owns_nothing(rooms: Rooms) -> None:
    sync(rooms, entry("a"), entry("b"))
    assert "labels" not in stored(rooms, "a")["metadata"]
    with pytest.raises(BadInput, match="needs the name"):
        sync(rooms, entry("a"), prune=True)
    assert sync(rooms, entry("a"), name="fleet").adopted == [DocumentName("Entry", "a")]
    with pytest.raises(ManyProblems, match="another sync"):
        sync(rooms, entry("a", torch="~=2.5.0"))
    exported = stored(rooms, "a")
    assert sync(rooms, exported).changes == []


def test_a_target_that_something_names_is_not_pruned(rooms: Rooms) -> None:
    sync(rooms, target("t"), entry("a", "t"), name="fleet")
    rooms.matrix.create("Entry", entry("by-hand", "t"), BY)
    with pytest.raises(Conflict, match="by-hand"):
        sync(rooms, entry("other"), name="fleet", prune=True)
    with pytest.raises(Conflict, match="Entry a"):
        sync(rooms, entry("a", "t"), name="fleet", prune=True)
    rooms.matrix.delete("Entry", "by-hand", BY)
    made = sync(rooms, entry("other"), name="fleet", prune=True)
    assert names(made) == [("create", "other"), ("delete", "a"), ("delete", "t")]


def test_files_that_are_wrong_anywhere_change_nothing(rooms: Rooms) -> None:
    before = rooms.matrix.export()
    with pytest.raises((ManyProblems, BadInput)):
        sync(rooms, entry("a"), entry("b", torch="newest"))
    with pytest.raises(ManyProblems, match="nothing was changed"):
        sync(rooms, entry("a"), entry("a", torch="2.5.*"))
    assert rooms.matrix.export() == before


def test_the_api_syncs_yaml(client: FlaskClient) -> None:
    text = to_yaml([entry("a")])
    path = "/api/v1/matrix/sync?reason=x&name=fleet"
    answer = client.post(path, data=text, content_type="application/yaml").get_json()
    assert answer["name"] == "fleet"
    assert answer["revision"]
    planned = client.post(
        f"{path}&dry_run=true&prune=true", data=text, content_type="application/yaml"
    ).get_json()
    assert (planned["changes"], planned["revision"]) == ([], None)
    wrong = client.post(f"{path}&name=a+b", data=text, content_type="application/yaml")
    assert wrong.status_code == 400


_MATRICES = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["2.4.*", "2.5.*"]), min_size=1),
        st.sampled_from(["fleet", "team"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_MATRICES)
def test_after_any_syncs_files_and_matrix_agree(
    rooms: Rooms, syncs: list[tuple[dict[str, str], str, bool]]
) -> None:
    for versions, name, prune in syncs:
        files = [entry(f"{name}-{key}", torch=torch) for key, torch in versions.items()]
        others = {
            body["metadata"]["name"]: body
            for body in rooms.matrix.export()
            if body["metadata"].get("labels", {}).get(SYNC_LABEL) != name
        }
        with pytest.raises(ManyProblems):
            sync(rooms, *files, entry("wrong", torch="newest"), name=name, prune=prune)
        made = sync(rooms, *files, name=name, prune=prune)
        again = sync(rooms, *files, name=name, prune=prune, dry_run=True)
        assert (again.changes, again.left) == ([], made.left)
        exported = {body["metadata"]["name"]: body for body in rooms.matrix.export()}
        owned = {
            key: body
            for key, body in exported.items()
            if body["metadata"].get("labels", {}).get(SYNC_LABEL) == name
        }
        assert {key: exported[key] for key in others} == others
        assert owned.keys() == {f"{name}-{key}" for key in versions} | {
            one.name for one in made.left
        }
        assert not (prune and made.left)
        assert sync(rooms, *owned.values(), name=name, prune=True, dry_run=True).changes == []


def test_equal_matrices_are_exported_as_the_same_bytes(rooms: Rooms) -> None:
    exported = set()
    for turn in (1, -1):
        labels = dict([("x", "1"), ("y", "2")][::turn])
        body = entry("a", labels=labels)
        body["spec"]["components"] = dict([("cuda", "12.*"), ("torch", "~=2.4.0")][::turn])
        sync(rooms, body)
        exported.add(to_yaml(rooms.matrix.export()))
        rooms.matrix.delete("Entry", "a", BY)
    assert len(exported) == 1
