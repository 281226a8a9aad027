"""A new waiver says what it is for and does not last for ever; those that are stored stay valid."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from compatgate.documents.sources import Source
from compatgate.documents.text import to_yaml
from compatgate.errors import ManyProblems
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.matrix.documents.models import Waiver
from compatgate.service.matrix.documents.waivers import end_document

POOLS = [{"name": "a", "gpu": "A100-SXM4-80GB", "driver": "580.95.05"}]


def day(days: int) -> str:
    return (clock.today() + timedelta(days=days)).isoformat()


def waiver(**changes: Any) -> dict[str, Any]:
    spec = {
        "rules": ["CG803"],
        "targets": ["prod-a100"],
        "match": {"image": "registry.example/ocr/*"},
        "owner": "team-ocr",
        "reason": "it is retrained",
        "expires": day(30),
    } | changes
    return {"metadata": {"name": "w"}, "spec": {k: v for k, v in spec.items() if v is not None}}


def target(name: str, longest: str | None) -> dict[str, Any]:
    policy = {"policy": {"waivers": {"maxDuration": longest}}} if longest else {}
    return {"metadata": {"name": name}, "spec": {"pools": POOLS, **policy}}


def source(*documents: dict[str, Any]) -> list[Source]:
    kinds = [("Waiver" if "rules" in d["spec"] else "Target", d) for d in documents]
    whole = [{"apiVersion": "compatgate.dev/v1", "kind": kind, **d} for kind, d in kinds]
    return [Source("w.yaml", to_yaml(whole))]


def refused(change: Callable[[], object]) -> dict[str | None, Any]:
    with pytest.raises(ManyProblems) as error:
        change()
    return {one.field: one for one in error.value.problems}


def store_as_before(rooms: Rooms, by: Authorship, **changes: Any) -> None:
    """Store a waiver as an older version of compatgate did."""
    rooms.matrix.create("Waiver", waiver(), by)
    document = {"apiVersion": "compatgate.dev/v1", "kind": "Waiver", **waiver(**changes)}
    text = msgspec.json.encode(document)
    with rooms.gate.database.writing() as session:
        session.execute(update(Waiver).where(Waiver.name == "w").values(document=text.decode()))
    rooms.snapshots.refresh()


@pytest.mark.parametrize("match", [None, {}, {"image": "*"}, {"everything": False}])
def test_a_waiver_for_every_stack_has_to_say_so(stocked: Rooms, by: Authorship, match: Any) -> None:
    body = waiver(match=match)
    found = refused(lambda: stocked.matrix.create("Waiver", body, by))
    assert "for every stack of its targets" in found["spec.match"].problem
    assert found["spec.match"].hint == "name them, or state match: {everything: true}"
    refused(lambda: stocked.matrix.import_documents(source(body), by))
    assert stocked.snapshots.refresh().revision == 1


def test_a_waiver_that_says_so_is_for_every_stack(stocked: Rooms, by: Authorship) -> None:
    made = stocked.matrix.create("Waiver", waiver(match={"everything": True}), by)
    assert made.document["spec"]["match"] == {"everything": True}
    assert not stocked.gate.snapshot().waivers["w"].image


def test_everything_and_an_image_contradict_each_other(stocked: Rooms, by: Authorship) -> None:
    body = waiver(match={"everything": True, "image": "a/*"})
    found = refused(lambda: stocked.matrix.create("Waiver", body, by))
    assert found["spec.match.everything"].problem == "match names everything and image"


def test_a_narrow_waiver_is_not_widened_to_everything_in_passing(
    stocked: Rooms, by: Authorship
) -> None:
    stocked.matrix.create("Waiver", waiver(), by)
    found = refused(lambda: stocked.matrix.change("Waiver", "w", waiver(match=None), by))
    assert "spec.match" in found


def test_a_waiver_lasts_ninety_days_unless_a_policy_says_otherwise(
    stocked: Rooms, by: Authorship
) -> None:
    found = refused(lambda: stocked.matrix.create("Waiver", waiver(expires=day(91)), by))
    error = found["spec.expires"]
    assert error.problem == f"{day(91)} is too late: a waiver lasts at most 90d from today"
    assert (error.value, day(90) in error.hint) == (day(91), True)
    assert stocked.matrix.create("Waiver", waiver(expires=day(90)), by).revision == 2


@pytest.mark.parametrize(
    ("targets", "latest"),
    [
        (["short"], 14),
        (["long"], 365),
        (["usual"], 90),
        (["long", "usual"], 90),
        (["long", "short"], 14),
        (["*"], 14),
    ],
)
def test_the_shortest_policy_of_its_targets_counts(
    rooms: Rooms, by: Authorship, targets: list[str], latest: int
) -> None:
    for name, longest in (("short", "2w"), ("long", "365d"), ("usual", None)):
        rooms.matrix.create("Target", target(name, longest), by)
    body = waiver(targets=targets, expires=day(latest + 1))
    assert "spec.expires" in refused(lambda: rooms.matrix.create("Waiver", body, by))
    rooms.matrix.create("Waiver", waiver(targets=targets, expires=day(latest)), by)


def test_a_waiver_for_every_target_has_the_default_where_policies_allow_more(
    rooms: Rooms, by: Authorship
) -> None:
    rooms.matrix.create("Target", target("long", "365d"), by)
    body = waiver(targets=["*"], expires=day(91))
    assert "spec.expires" in refused(lambda: rooms.matrix.create("Waiver", body, by))


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_import_reports_each_with_file_line_and_path(
    stocked: Rooms, by: Authorship, dry_run: bool
) -> None:
    text = source(waiver(match=None, expires=day(200)))
    with pytest.raises(ManyProblems) as error:
        stocked.matrix.import_documents(text, by, dry_run=dry_run)
    places = [(p.file, p.field) for p in error.value.problems]  # type: ignore[attr-defined]
    assert places == [("w.yaml", "spec.match"), ("w.yaml", "spec.expires")]
    lines = [p.line for p in error.value.problems]  # type: ignore[attr-defined]
    (last,) = [n for n, line in enumerate(text[0].text.splitlines(), 1) if "expires" in line]
    assert lines[1] == last


def test_the_policy_that_an_import_brings_counts_for_its_waivers(
    rooms: Rooms, by: Authorship
) -> None:
    documents = source(target("prod-a100", "365d"), waiver(expires=day(300)))
    assert rooms.matrix.import_documents(documents, by).revision == 1
    shorter = source(target("prod-a100", "30d"), waiver(expires=day(299), reason="other"))
    assert "spec.expires" in refused(lambda: rooms.matrix.import_documents(shorter, by))


def test_a_shorter_policy_leaves_waivers_as_they_are(rooms: Rooms, by: Authorship) -> None:
    whole = source(target("prod-a100", "365d"), waiver(expires=day(300)))
    rooms.matrix.import_documents(whole, by)
    rooms.matrix.change("Target", "prod-a100", target("prod-a100", "7d"), by)
    assert rooms.snapshots.refresh().waivers["w"].expires == day(300)
    again = rooms.matrix.import_documents(source(waiver(expires=day(300))), by)
    assert (again.unchanged, again.revision) == (1, None)
    sooner = rooms.matrix.change("Waiver", "w", waiver(expires=day(200)), by)
    assert sooner.document["spec"]["expires"] == day(200)
    more = waiver(expires=day(200), rules=["CG803", "CG801"])
    assert "spec.expires" in refused(lambda: rooms.matrix.change("Waiver", "w", more, by))


def test_a_waiver_of_an_older_version_stays_valid_and_is_exported_so_that_it_imports(
    stocked: Rooms, by: Authorship, database_url: str
) -> None:
    store_as_before(stocked, by, match=None)
    opened = open_rooms(database_url, overlays=[])
    assert opened.gate.snapshot().waivers["w"].image is None
    opened.close()
    assert stocked.matrix.import_documents(source(waiver(match=None)), by).revision is None
    exported = [Source("all.yaml", to_yaml(stocked.matrix.export()))]
    assert stocked.matrix.import_documents(exported, by).revision is None
    for document in stocked.matrix.export():
        if document["metadata"]["name"] == "w":
            stocked.matrix.delete("Waiver", "w", by)
            assert stocked.matrix.import_documents(exported, by).unchanged == 15
            return
    raise AssertionError("the waiver was not exported")


def test_a_waiver_of_an_older_version_can_be_ended(stocked: Rooms, by: Authorship) -> None:
    store_as_before(stocked, by, match=None, expires=day(900))
    body = stocked.matrix.get("Waiver", "w").document
    assert end_document(body, clock.today())["spec"]["expires"] == day(-1)
    done = stocked.matrix.change("Waiver", "w", end_document(body, clock.today()), by)
    assert done.document["spec"]["match"] == {"everything": True}
