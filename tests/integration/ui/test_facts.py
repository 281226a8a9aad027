"""Facts are tables with a search; the fields of one list are columns."""

from __future__ import annotations

import csv
import io
import re


def export(pages, address: str) -> list[dict[str, str]]:
    answer = pages().get(f"/ui/{address}&format=csv")
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_a_table_of_one_list_has_a_column_for_each_field(pages):
    rows = export(pages, "facts/gpus?q=a100")
    assert {row["Name"] for row in rows} >= {"A100-SXM4-80GB", "A100-PCIe-40GB"}
    assert all("A100" in str(row) for row in rows)
    assert {row["Compute capability"] for row in rows} == {"8.0"}
    assert all(row["Source"] for row in rows)


def test_every_word_of_a_search_counts(pages):
    assert export(pages, "facts/gpus?q=a100+no-such-word") == []


def test_a_table_of_several_lists_is_searched_as_a_whole_and_a_list_has_its_fields(pages):
    whole = export(pages, "facts/xid?q=")
    assert {"List", "Statement"} <= whole[0].keys()
    assert {row["List"] for row in whole} > {"xids", "sxids"}
    (row,) = [row for row in export(pages, "facts/xid?part=xids") if row["Name"] == "79"]
    assert row["Mnemonic"]


def test_support_lists_the_branches_of_targets_and_links_to_their_facts(pages):
    text = pages().get("/ui/facts/support-lines?all=yes").text
    assert re.search(r'href="/ui/facts/driver_branches/535"', text)
    assert "2026-06" in text
