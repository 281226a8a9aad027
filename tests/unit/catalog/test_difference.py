"""Two sets of facts: which records differ, and in what."""

import pytest

from compatgate.catalog.browse import FieldChange, compare_sets, compare_values, open_set
from compatgate.errors import BadInput


def changes(overlay_path):
    found = compare_sets(open_set("shipped"), open_set(overlay_path))
    return [(c.facts, c.part, c.key, c.action, [f.path for f in c.fields]) for c in found]


def test_records_are_told_apart_by_their_keys(overlay):
    path = overlay(
        """
        schema: facts/driver_branches/v1
        branches:
        - {branch: 535, eol: 2027-06}
        - {branch: 550, remove: true}
        """
    )
    assert changes(path) == [
        ("driver_branches", "branches", "535", "change", ["eol"]),
        ("driver_branches", "branches", "550", "remove", []),
    ]


def test_what_is_no_list_of_records_is_compared_field_by_field(overlay):
    path = overlay("schema: facts/framework/v1\ncomponent: torch\nos: [linux]\nreleases: []")
    assert changes(path) == [("frameworks/torch", "", "", "change", ["os"])]


def test_a_file_that_only_one_side_has_is_all_new(overlay):
    path = overlay(
        f"""
        schema: facts/packages/v1
        package: gpu-pkg
        records:
        - {{version: '1.0', wheel: gpu_pkg-1.0-py3-none-any.whl, sha256: {"a" * 64}}}
        """
    )
    added = ("packages/gpu-pkg", "records", "gpu_pkg-1.0-py3-none-any.whl", "add", [])
    assert changes(path) == [added]
    assert open_set(path).facts.recorded >= {"gpu-pkg", "xformers"}


def test_named_parts_are_compared_by_name_and_others_as_a_whole():
    before = {"builds": [{"name": "a", "x": 1}, {"name": "b"}], "list": [1, 2]}
    after = {"builds": [{"name": "b", "y": 2}, {"name": "a", "x": 3}], "list": [2]}
    assert list(compare_values(before, after)) == [
        FieldChange("builds[a].x", 1, 3),
        FieldChange("builds[b].y", None, 2),
        FieldChange("list", [1, 2], [2]),
    ]


@pytest.mark.parametrize("name", ["", "/no/such/folder"])
def test_a_side_that_is_not_there_is_named(name):
    with pytest.raises(BadInput):
        open_set(name)
