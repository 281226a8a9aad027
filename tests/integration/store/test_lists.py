"""Lists: filters, pages that hold still, cursors that are checked.

Upgrades are listed, found and told of by both databases.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import msgspec
import pytest
from sqlalchemy import event

from compatgate.errors import BadInput, NotFound
from compatgate.kit.principal import Authorship, Principal
from compatgate.service.app import Rooms
from compatgate.service.changes.upgrades.schemas import UpgradeRequest
from compatgate.service.nodes.schemas import Report

Body = Callable[..., dict[str, Any]]


def _names(page: Any) -> list[str]:
    return [item.name for item in page.items]


def test_entries_are_filtered_by_target_status_component_and_name(stocked: Rooms) -> None:
    entries = stocked.matrix.list_entries
    assert _names(entries(target="inference-l4")) == [
        "ort123-cu12",
        "torch23-cu118",
        "vllm014-cu128",
    ]
    assert _names(entries(status="deprecated")) == ["torch22-cu121"]
    assert _names(entries(component="nccl")) == ["torch24-cu121", "torch28-cu128", "torch29-cu130"]
    assert _names(entries(component="onnxruntime-gpu")) == ["ort123-cu12"]
    assert _names(entries(component="onnxruntime")) == []
    assert _names(entries(search="TORCH2")) == [f"torch2{x}" for x in
        ("2-cu121", "3-cu118", "4-cu121", "4-cu124", "8-cu128", "9-cu130")]  # fmt: skip
    assert _names(entries(search="%")) == _names(entries(search="_")) == []
    both = entries(target="prod-a100", status="revoked")
    assert _names(both) == ["torch23-cu118"]


def test_an_entry_for_every_target_concerns_each(
    stocked: Rooms, by: Authorship, entry_body: Body
) -> None:
    stocked.matrix.create("Entry", entry_body("everywhere", targets=["*"]), by)
    assert "everywhere" in _names(stocked.matrix.list_entries(target="dev-rtx"))


def test_targets_are_filtered_by_label_gpu_driver_and_name(stocked: Rooms) -> None:
    targets = stocked.matrix.list_targets
    assert _names(targets(label="tier=prod")) == ["inference-l4", "prod-a100"]
    assert _names(targets(label="tier=pro")) == _names(targets(label="ier=prod")) == []
    assert _names(targets(gpu="L4")) == ["inference-l4"]
    assert _names(targets(gpu="L4", driver="535.183.01")) == []
    assert _names(targets(driver="580.95.05", search="h100")) == ["staging-h100"]


def test_targets_and_entries_are_filtered_by_label_and_owner(
    stocked: Rooms, by: Authorship, entry_body: Body
) -> None:
    about = {"name": "owned", "labels": {"team": "ml", "tier": "prod"}, "owner": "Team 50%"}
    pools = [{"name": "l4", "gpu": "L4", "driver": "550.54.15"}]
    stocked.matrix.create("Entry", {**entry_body("owned"), "metadata": about}, by)
    stocked.matrix.create("Target", {"metadata": about, "spec": {"pools": pools}}, by)
    for documents in (stocked.matrix.list_entries, stocked.matrix.list_targets):
        assert _names(documents(label="team=ml", owner="Team 50%")) == ["owned"]
        assert _names(documents(label="team=m")) == _names(documents(owner="Team 5")) == []
    given = {**about, "owner": None, "labels": {}}
    body = {key: value for key, value in given.items() if value}
    stocked.matrix.change("Entry", "owned", {**entry_body("owned"), "metadata": body}, by)
    assert _names(stocked.matrix.list_entries(owner="Team 50%")) == []
    assert _names(stocked.matrix.list_entries(label="team=ml")) == []


def test_waivers_are_filtered_by_target_owner_and_day(stocked: Rooms) -> None:
    waivers = stocked.matrix.list_waivers
    assert _names(waivers(target="prod-a100", owner="team-ocr")) == ["legacy-ocr"]
    assert _names(waivers(target="dev-rtx")) == []
    assert _names(waivers(active_on=date(2027, 1, 31))) == ["legacy-ocr"]
    assert _names(waivers(active_on=date(2027, 2, 1))) == []


def test_pools_are_listed_by_target_and_name(stocked: Rooms) -> None:
    first = stocked.matrix.list_pools(limit=4)
    rest = stocked.matrix.list_pools(limit=4, cursor=first.next)
    assert [(p.target, p.name) for p in (*first.items, *rest.items)] == [
        ("dev-rtx", "rtx-4090"),
        ("inference-l4", "l4"),
        ("prod-a100", "a100-80"),
        ("staging-h100", "h100-80"),
        ("staging-h100", "h100-slices"),
    ]
    assert stocked.matrix.list_pools(gpu="L4").items[0].count == 96


def test_a_changed_target_has_its_new_pools_only(
    rooms: Rooms, by: Authorship, target_body: Body
) -> None:
    rooms.matrix.create("Target", target_body("t"), by)
    pools = [{"name": "new", "gpu": "T4", "driver": "535.183.01"}]
    rooms.matrix.change("Target", "t", target_body("t", pools=pools), by)
    assert [p.name for p in rooms.matrix.list_pools().items] == ["new"]
    rooms.matrix.delete("Target", "t", by)
    assert rooms.matrix.list_pools().items == ()


def test_pages_follow_each_other_without_gaps_while_rows_come_and_go(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    for name in "bdfhj":
        rooms.matrix.create("Entry", entry_body(name), by)
    first = rooms.matrix.list_entries(limit=2)
    assert _names(first) == ["b", "d"]
    rooms.matrix.delete("Entry", "d", by)
    rooms.matrix.create("Entry", entry_body("a"), by)
    rooms.matrix.create("Entry", entry_body("e"), by)
    second = rooms.matrix.list_entries(limit=2, cursor=first.next)
    third = rooms.matrix.list_entries(limit=2, cursor=second.next)
    assert (_names(second), _names(third), third.next) == (["e", "f"], ["h", "j"], None)


def test_the_last_page_says_so_even_when_it_is_full(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    for name in "ab":
        rooms.matrix.create("Entry", entry_body(name), by)
    assert rooms.matrix.list_entries(limit=2).next is None


@pytest.mark.parametrize("limit", [0, -1, 1001, True])
def test_a_limit_out_of_range_is_refused(rooms: Rooms, limit: int) -> None:
    with pytest.raises(BadInput) as caught:
        rooms.matrix.list_entries(limit=limit)
    assert caught.value.field == "limit"


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "é", "WzFd", "W10", "WyJhIiwiYiJd", "bnVsbA", "eyJhIjoxfQ", "WyJcdTAwMDAiXQ"],
)
def test_a_cursor_that_no_page_gave_is_refused(rooms: Rooms, cursor: str) -> None:
    with pytest.raises(BadInput) as caught:
        rooms.matrix.list_entries(cursor=cursor)
    assert caught.value.field == "cursor"


def test_a_page_takes_one_query_however_long_it_is(stocked: Rooms) -> None:
    statements: list[str] = []
    engine = stocked.gate.database.engine
    event.listen(engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    stocked.matrix.list_entries(limit=1000)
    stocked.matrix.list_targets(limit=1000, label="tier=prod")
    selects = [s for s in statements if s.startswith("SELECT")]
    assert len(selects) == 2


def test_documents_that_nothing_can_be_said_against_survive_odd_characters(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    reason = "naïve – „quotes“ 😀\nnew line\ttab % _ ' \" \\ --"
    rooms.matrix.create("Entry", entry_body("e", reason=reason), by)
    assert rooms.matrix.get("Entry", "e").document["spec"]["reason"] == reason


@pytest.mark.parametrize("odd", ["a\0b", "\ud800", "x" * 100_000, "'; DROP TABLE entries; --"])
def test_odd_names_and_filters_are_answered_and_break_nothing(rooms: Rooms, odd: str) -> None:
    for ask in (
        lambda: rooms.matrix.get("Entry", odd),
        lambda: rooms.matrix.list_entries(search=odd),
        lambda: rooms.matrix.list_entries(target=odd, component=odd),
        lambda: rooms.matrix.list_targets(label=odd, gpu=odd),
        lambda: rooms.decisions.list_decisions(target=odd, image=odd),
        lambda: rooms.decisions.show_decision(10**30),
        lambda: rooms.matrix.show_revision(10**30),
        lambda: rooms.decisions.show_verdict(odd),
        lambda: rooms.tokens.revoke(odd, by="tester"),
    ):
        try:
            ask()
        except (BadInput, NotFound):
            continue
    assert rooms.matrix.list_entries().items == ()


BY = Authorship("tester", "for the test")
TOOL = Principal("tool", frozenset({"upgrade"}))
POOL = {"name": "a100", "gpu": "A100-SXM4-80GB", "driver": "535.183.01", "count": 2}
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/cuda.driver-version.full": "535.183.01",
}


def test_an_upgrade_is_listed_found_and_told_of_when_it_is_rolled_back(rooms: Rooms) -> None:
    spec = {"pools": [POOL]}
    rooms.matrix.create("Target", {"metadata": {"name": "prod"}, "spec": spec}, BY)
    nodes = [{"name": f"n{number}", "target": "prod", "labels": LABELS} for number in (1, 2)]
    rooms.nodes.report(msgspec.convert({"nodes": nodes}, Report), by="t")
    rooms.upgrades.propose(UpgradeRequest("roll-580", "prod", "580.95.05"), BY)
    rooms.upgrades.leave_out("roll-580", ["n2"], BY)
    (row,) = rooms.upgrades.list(state="proposed", target="prod").items
    assert (row.waves, row.finished, row.nodes) == (2, 1, 2), "nothing is left of the second wave"
    assert rooms.upgrades.list_open(limit=5) == [row]
    assert rooms.upgrades.find_names("LL-5", limit=5) == ["roll-580"]
    assert rooms.upgrades.find_names("%", limit=5) == []
    assert rooms.upgrades.ask("roll-580", TOOL).decision.answer == "start"
    rooms.upgrades.roll_back("roll-580", BY)
    assert rooms.upgrades.list_open(limit=5) == []
    rooms.incidents.survey(thorough=False)
    (told,) = rooms.incidents.list(kind="upgrade-rollback").items
    assert (told.level, told.members[0].name) == ("fail", "roll-580")
