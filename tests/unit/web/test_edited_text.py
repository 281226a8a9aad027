"""A field that changes leaves the rest of a person's YAML as it was written."""

from __future__ import annotations

import pytest

from compatgate.web.pages.change_acts import edit_document, show_form

TARGET = """\
# Owned by the platform team.
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod, labels: {tier: prod}}  # see runbook
spec:
    policy:
        mode: audit   # until January
        onUnknown: "fail"
    pools:
      # rack 7
      - name: a100      # the old ones
        gpu: A100-SXM4-80GB
        driver: 535.104.10
        count: 12
      - {name: l4, gpu: L4, driver: 550.54.15}
"""


def change(text, **fields):
    shown = show_form("Target", edit_document("Target", {"documents": text, "shown": text}, 1000))
    return edit_document("Target", shown | fields, 1000)


@pytest.mark.parametrize(
    ("fields", "before", "after"),
    [
        ({"mode": "enforce"}, "mode: audit   # until", "mode: enforce # until"),
        ({"pool-0-driver": "580.95.10"}, "driver: 535.104.10", "driver: 580.95.10"),
        ({"pool-0-name": "a100-80"}, "name: a100      # the", "name: a100-80   # the"),
        ({"pool-1-count": "4"}, "driver: 550.54.15}", "driver: 550.54.15, count: 4}"),
        ({"onUnknown": "warn"}, 'onUnknown: "fail"', 'onUnknown: "warn"'),
    ],
    ids=["policy", "driver", "name of a pool", "in braces", "quotes"],
)
def test_a_changed_field_changes_its_own_line_alone(fields, before, after):
    edited = change(TARGET, **fields)
    assert edited.text == TARGET.replace(before, after)
    assert not edited.rewritten


def test_fields_that_nobody_changed_leave_the_text_byte_by_byte():
    assert change(TARGET).text == TARGET


def test_a_new_pool_keeps_the_comments_of_the_others():
    edited = change(TARGET, **{"pool-2-name": "h100", "pool-2-gpu": "H100-SXM5-80GB"})
    assert all(comment in edited.text for comment in ("# rack 7", "# the old ones", "# see run"))
    assert [pool["name"] for pool in edited.document["spec"]["pools"]] == ["a100", "l4", "h100"]


def test_text_that_cannot_be_edited_in_place_is_written_anew_and_says_so():
    text = TARGET.replace("- name: a100", "- &old\n        name: a100")
    text = text.replace("{name: l4, gpu: L4, driver: 550.54.15}", "{<<: *old, name: l4}")
    edited = change(text, **{"pool-1-count": ""})  # which comes from the other pool
    assert edited.rewritten
    assert "count" not in edited.document["spec"]["pools"][1]
