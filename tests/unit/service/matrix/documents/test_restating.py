"""What blessing, deprecating and revoking do to an entry's document."""

from __future__ import annotations

import pytest

from compatgate.errors import BadInput
from compatgate.service.matrix.documents.service import set_status

ENTRY = {
    "apiVersion": "compatgate.dev/v1",
    "kind": "Entry",
    "metadata": {"name": "torch24"},
    "spec": {
        "targets": ["prod"],
        "components": {"torch": "~=2.4.0"},
        "status": "candidate",
        "reason": "asked for",
        "replacement": "torch25",
    },
}


def test_the_entry_says_its_new_status_and_why():
    spec = set_status(ENTRY, "deprecated", "cuDNN 8 ends", "torch26")["spec"]
    assert (spec["status"], spec["reason"], spec["replacement"]) == (
        "deprecated", "cuDNN 8 ends", "torch26",
    )  # fmt: skip
    assert spec["components"] == ENTRY["spec"]["components"]
    assert ENTRY["spec"]["status"] == "candidate"


def test_what_is_blessed_needs_no_replacement():
    assert "replacement" not in set_status(ENTRY, "blessed", "suite passed", "torch26")["spec"]


@pytest.mark.parametrize(
    ("status", "replacement", "problem"),
    [
        ("candidate", "", "cannot be the new status"),
        ("", "", "cannot be the new status"),
        ("revoked", "torch24", "cannot replace itself"),
    ],
)
def test_what_makes_no_sense_is_refused(status, replacement, problem):
    with pytest.raises(BadInput, match=problem):
        set_status(ENTRY, status, "why", replacement)


def test_a_status_that_it_has_is_refused():
    blessed = set_status(ENTRY, "blessed", "suite passed")
    with pytest.raises(BadInput, match="is blessed already"):
        set_status(blessed, "blessed", "again")
