"""Operators lay their own facts over the shipped ones, and hear at once what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.catalog import load_facts, read_source
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput, ManyProblems

Write = Callable[..., str]

BRANCH = """
schema: facts/driver_branches/v1
branches:
- branch: 777
  type: LTSB
  first_linux_release: '777.10'
  last_linux_release_seen: null
  eol: 2031-06
  nvidia_smi_cuda: '14.0'
  source: our driver team
  confidence: derived
"""


def test_a_record_is_added(overlay: Write) -> None:
    facts = load_facts([overlay(BRANCH)])
    branch = facts.driver_branches.branches[777]
    assert branch.eol == "2031-06-30"
    assert branch.source.title == "our driver team"
    assert 580 in facts.driver_branches.branches


def test_a_record_is_changed_field_by_field(overlay: Write) -> None:
    shipped = load_facts([]).driver_branches.branches[570]
    facts = load_facts(
        [overlay("branches: [{branch: 570, eol: 2027-01-31}]", "driver_branches.yaml")]
    )
    changed = facts.driver_branches.branches[570]
    assert changed.eol == "2027-01-31"
    assert changed.last == shipped.last
    assert changed.source == shipped.source


def test_a_record_is_removed(overlay: Write) -> None:
    text = "schema: facts/driver_branches/v1\nbranches: [{branch: 590, remove: true}]"
    assert 590 not in load_facts([overlay(text)]).driver_branches.branches


def test_a_build_within_a_release_is_matched_by_its_own_key(overlay: Write) -> None:
    text = """
    schema: facts/framework/v1
    component: torch
    releases:
    - version: 2.4.1
      builds:
      - name: cu124
        pins: {cudnn: {spec: ==9.1.1.17, source: our build, confidence: derived}}
    """
    torch = load_facts([overlay(text)]).framework("torch")
    assert torch is not None
    release = next(r for r in torch.releases if r.version.text == "2.4.1")
    by_label = {build.label: build for build in release.builds}
    assert by_label["cu124"].pins["cudnn"].spec == "==9.1.1.17"
    assert by_label["cu124"].sass == by_label["cu121"].sass
    assert by_label["cu121"].pins["cudnn"].spec == "==9.1.0.70"


def test_a_known_issue_of_ones_own_is_added(overlay: Write) -> None:
    text = """
    schema: facts/known_issues/v1
    issues:
    - id: OURS-1
      title: our loader hangs
      components: {torch: 2.4.*, driver: '>=550,<551'}
      outcome: fail
      message: the data loader hangs after an hour
      fixes: [{driver: 550.163.01}]
      source: https://wiki.example.org/ours-1
      confidence: derived
    """
    issues = load_facts([overlay(text)]).known_issues.issues
    assert issues[-1].id == "OURS-1"
    assert issues[-1].fixes == ({"driver": "550.163.01"},)
    assert issues[-1].source.url == "https://wiki.example.org/ours-1"


def test_the_digest_changes_and_the_overlay_is_named(overlay: Write) -> None:
    shipped, changed = load_facts([]), load_facts([overlay(BRANCH)])
    assert changed.digest != shipped.digest
    assert shipped.overlays == ()
    assert len(changed.overlays) == 1
    name, _, digest = changed.overlays[0].partition("@")
    assert name == "ours.yaml"
    assert len(digest) == 12


def test_a_file_named_like_the_facts_needs_no_schema_line(overlay: Write) -> None:
    path = overlay("branches: [{branch: 590, remove: true}]", "driver_branches.yaml")
    assert 590 not in load_facts([path]).driver_branches.branches


def test_a_directory_is_all_its_files(overlay: Write, tmp_path: Path) -> None:
    overlay(BRANCH, "facts/a.yaml")
    overlay("schema: facts/nccl/v1\nreleases: [{version: 2.27.7, remove: true}]", "facts/b.yml")
    overlay("not facts", "facts/README.md")
    facts = load_facts([str(tmp_path / "facts")])
    assert [label.partition("@")[0] for label in facts.overlays] == ["a.yaml", "b.yml"]


def test_the_environment_names_overlays(overlay: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [overlay(BRANCH), overlay("schema: facts/nccl/v1\nreleases: []", "more.yaml")]
    monkeypatch.setenv("COMPATGATE_FACTS", os.pathsep.join([*paths, ""]))
    assert len(load_facts().overlays) == 2
    assert load_facts([]).overlays == ()


def test_the_last_overlay_is_on_top_and_order_is_part_of_the_digest(overlay: Write) -> None:
    first = overlay("branches: [{branch: 570, eol: '2027-01-01'}]", "1/driver_branches.yaml")
    second = overlay("branches: [{branch: 570, eol: '2029-01-01'}]", "2/driver_branches.yaml")
    there, back = load_facts([first, second]), load_facts([second, first])
    assert there.driver_branches.branches[570].eol == "2029-01-01"
    assert back.driver_branches.branches[570].eol == "2027-01-01"
    assert there.digest != back.digest


def test_whole_files_are_laid_over_as_well(overlay: Write) -> None:
    text = "schema: facts/xid/v1\nxids: [{xid: 119, meaning: our words}]"
    found = [x for x in read_source("xid", [overlay(text)])["xids"] if x["xid"] == 119]
    assert [x["meaning"] for x in found] == ["our words"]


def test_a_date_may_stand_without_quotes(overlay: Write) -> None:
    path = overlay("branches: [{branch: 570, eol: 2027-01-31}]", "driver_branches.yaml")
    assert load_facts([path]).driver_branches.branches[570].eol == "2027-01-31"


def test_a_new_toolkit_is_found_by_its_version(overlay: Write) -> None:
    text = """
    schema: facts/cuda_driver/v1
    releases:
    - cuda: 13.5.0
      series: '13.5'
      label: 13.5 GA
      linux_toolkit_driver_min: 620.10.01
      windows_toolkit_driver_min: null
      minor_compat_min_linux: '580'
      source: release notes
      confidence: published
    """
    newest = load_facts([overlay(text)]).cuda_driver.toolkits[-1]
    assert newest.version == parse_version("cuda", "13.5.0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("branches: [{branch: 570, eol: soon}]", "branches[branch=570].eol: 'soon' is not a day"),
        (
            "branches: [{branch: 570, last_linux_release_seen: 570.10}]",
            "branches[branch=570].last_linux_release_seen: 570.1 is a number in YAML; quote",
        ),
        (
            "branches: [{branch: 570, eoll: '2027-01'}]",
            "branches[branch=570]: unknown key 'eoll'",
        ),
        ("branches: [{branch: 778}]", "branches[branch=778]: 'type' is missing"),
        (
            "branches: [{eol: '2027-01'}]",
            "a record lacks branch (records of this list are identified",
        ),
        (
            "branches: [{branch: 1000000, remove: true}]",
            "branches[branch=1000000]: the record to remove does not exist",
        ),
        ("branches: {580: x}", "branches: {580: 'x'} is not of the type array"),
        ("brances: []", "unknown key 'brances'"),
        ("branches: [", "driver_branches.yaml:2: not YAML: "),
        ("- branch", "not a mapping"),
        (
            "branches: [{branch: 570, confidence: sure}]",
            "branches[branch=570].confidence: 'sure' is not one of published, metadata, derived",
        ),
    ],
)
def test_a_mistake_is_named_by_file_path_and_value(overlay: Write, text: str, message: str) -> None:
    path = overlay(text, "driver_branches.yaml")
    with pytest.raises(BadInput) as caught:
        load_facts([path])
    assert caught.value.detail.startswith(path)
    assert message in caught.value.detail


def test_several_mistakes_are_named_together(overlay: Write) -> None:
    text = "branches: [{branch: 570, eol: soon}, {branch: 580, confidence: sure}]"
    with pytest.raises(ManyProblems) as caught:
        load_facts([overlay(text, "driver_branches.yaml")])
    assert len(caught.value.problems) == 2
    assert "no facts were changed" in caught.value.detail


def test_a_version_that_only_the_adapter_can_judge_is_named(overlay: Write) -> None:
    path = overlay("releases: [{version: 2.4.1, source: null}]", "torch.yaml")
    with pytest.raises(BadInput, match=r"releases\[version=2.4.1\].source"):
        load_facts([path])


def test_a_constraint_that_is_none_is_named(overlay: Write) -> None:
    text = """
    schema: facts/known_issues/v1
    issues:
    - {id: OURS-2, title: t, components: {torch: about 2}, outcome: warn, message: m,
       source: here, confidence: derived}
    """
    path = overlay(text)
    with pytest.raises(BadInput) as caught:
        load_facts([path])
    where = f"{path}: known_issues.issues[id=OURS-2].components.torch"
    assert caught.value.detail.startswith(f"{where}: 'about 2' is not a version constraint")


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read the file: No such file or directory"):
        load_facts([str(tmp_path / "nowhere.yaml")])


def test_an_empty_directory_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no fact files"):
        load_facts([str(tmp_path)])


def test_a_file_that_speaks_to_no_facts_says_what_it_could(overlay: Write) -> None:
    with pytest.raises(BadInput, match="start the file with schema: facts/NAME/v1"):
        load_facts([overlay("branches: []", "notes.yaml")])


class TestRecordsOfPackages:
    def test_a_package_that_is_not_shipped_gets_records(self, overlay: Write) -> None:
        path = overlay(_record("gpu-pkg", "1.0"), "anything.yaml")
        (record,) = load_facts([path]).records("gpu-pkg")
        assert (record.version, record.source) == ("1.0", "our index")

    def test_a_wheel_is_added_to_those_of_a_shipped_package(self, overlay: Write) -> None:
        shipped = load_facts([]).records("xformers")
        found = load_facts([overlay(_record("xformers", "9.9"))]).records("xformers")
        assert len(found) == len(shipped) + 1

    def test_files_may_lie_in_folders_as_the_shipped_ones_do(
        self, overlay: Write, tmp_path: Path
    ) -> None:
        overlay(_record("gpu-pkg", "1.0"), "ours/packages/gpu-pkg.yaml")
        overlay("releases: [{version: 2.27.7, tag: v1}]", "ours/nccl.yaml")
        facts = load_facts([str(tmp_path / "ours")])
        assert "gpu-pkg" in facts.recorded
        assert len(facts.overlays) == 2

    def test_a_file_without_the_name_of_its_package_is_named(self, overlay: Write) -> None:
        path = overlay("schema: facts/packages/v1\nrecords: []")
        with pytest.raises(BadInput, match="does not name its package"):
            load_facts([path])


def _record(package: str, version: str) -> str:
    wheel = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    row = f"{{version: '{version}', wheel: {wheel}, sha256: {'a' * 64}, source: our index}}"
    return f"schema: facts/packages/v1\npackage: {package}\nrecords:\n- {row}\n"
