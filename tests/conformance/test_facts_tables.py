"""What a naive reading of the vendors' facts gets wrong, asserted on the tables that rules read."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.catalog import read_source, sources
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Release
from compatgate.core.facts.nvidia import MinorCompat
from compatgate.core.versions import Version, parse_version


def release(facts: Facts, framework: str, version: str) -> Release:
    table = facts.framework(framework)
    assert table is not None
    return next(r for r in table.releases if r.version == parse_version(framework, version))


def driver(text: str) -> Version:
    return parse_version("driver", text)


def releases(facts: Facts, framework: str) -> tuple[Release, ...]:
    table = facts.framework(framework)
    assert table is not None
    return table.releases


class TestDriversAndCuda:
    def test_minor_compatibility_has_a_minimum_and_no_maximum(self, facts: Facts) -> None:
        assert facts.cuda_driver.minor_compat[12].minimum["linux"] == driver("525.60.13")
        assert set(MinorCompat.__struct_fields__) == {"major", "minimum", "source", "exceptions"}

    def test_drivers_compare_as_numbers(self, facts: Facts) -> None:
        last = facts.driver_branches.branches[450].last
        assert last is not None
        assert last.text == "450.248.02"
        assert last > driver("450.80.02")

    def test_cuda_11_0_has_a_floor_of_its_own(self, facts: Facts) -> None:
        eleven = facts.cuda_driver.minor_compat[11]
        assert eleven.minimum["linux"] == driver("450.80.02")
        assert eleven.exceptions["11.0"]["linux"] == driver("450.36.06")
        assert eleven.exceptions["11.0"]["linux-aarch64"] == driver("450.28.01")

    def test_cuda_12_0_on_windows_runs_on_the_driver_it_came_with(self, facts: Facts) -> None:
        twelve = facts.cuda_driver.minor_compat[12]
        assert twelve.minimum["windows"] == driver("528.33")
        assert twelve.exceptions["12.0"]["windows"] == driver("527.41")

    def test_nothing_before_cuda_11_has_minor_version_compatibility(self, facts: Facts) -> None:
        assert facts.cuda_driver.first_compatible_major == 11
        assert sorted(facts.cuda_driver.minor_compat) == [11, 12, 13]

    def test_cuda_13_starts_at_the_first_public_driver_of_580(self, facts: Facts) -> None:
        assert facts.cuda_driver.minor_compat[13].minimum["linux"] == driver("580.65.06")

    def test_a_driver_may_report_a_cuda_that_never_had_a_toolkit(self, facts: Facts) -> None:
        assert facts.driver_branches.branches[565].cuda == (12, 7)
        assert set(facts.cuda_driver.never_released) == {"12.7", "12.10"}
        assert all(t.version.major_minor != (12, 7) for t in facts.cuda_driver.toolkits)

    def test_toolkits_ascend_and_12_9_is_older_than_13_0(self, facts: Facts) -> None:
        versions = [toolkit.version for toolkit in facts.cuda_driver.toolkits]
        assert versions == sorted(versions)
        assert versions[-1].text == "13.5.0"

    def test_a_release_without_a_row_of_its_own_takes_another(self, facts: Facts) -> None:
        assert facts.cuda_driver.same_row == {
            "12.3.2": "12.3.1",
            "12.8.2": "12.8.1",
            "12.9.2": "12.9.1",
            "13.4.3": "13.4.2",
        }

    @pytest.mark.parametrize(
        ("cuda", "linux", "windows"),
        [
            ("9.0.176", "384.81", "385.54"),
            ("10.2.89", "440.33", "441.22"),
            ("11.4.4", "470.82.01", "472.50"),
            ("12.4.1", "550.54.15", "551.78"),
            ("12.6.3", "560.35.05", "561.17"),
            ("13.0.3", "580.126.20", None),
            ("13.1.2", "590.48.01", None),
            ("13.4.1", "615.71.09", None),
        ],
    )
    def test_a_toolkit_names_its_own_driver_per_system(
        self, facts: Facts, cuda: str, linux: str, windows: str | None
    ) -> None:
        toolkit = next(t for t in facts.cuda_driver.toolkits if t.version.text == cuda)
        assert toolkit.driver["linux"] == driver(linux)
        assert toolkit.driver.get("windows") == (driver(windows) if windows else None)

    def test_forward_compatibility_is_a_list_of_branches_not_a_floor(self, facts: Facts) -> None:
        packages = facts.forward_compat.packages
        assert {565, 575} <= set(packages["13.0"].branches)
        assert 560 not in packages["13.0"].branches
        assert 565 not in packages["13.1"].branches
        assert 545 not in packages["12.8"].branches

    def test_branches_on_which_sources_disagree_are_not_in_the_list(self, facts: Facts) -> None:
        packages = facts.forward_compat.packages
        for series in ("12.8", "12.9"):
            assert 470 not in packages[series].branches
            dispute = packages[series].disputed[470]
            assert dispute.title.startswith("for: ")
            assert any(one.title.startswith("against: ") for one in dispute.also)
        assert set(packages["11.0"].disputed) == {440}
        assert packages["13.3"].branches == (580, 595)
        assert set(packages["13.3"].disputed) == {535, 550, 560, 565, 570}

    def test_a_package_states_minimums_within_a_branch(self, facts: Facts) -> None:
        minimums = facts.forward_compat.packages["11.6"].minimums
        assert minimums[440] == driver("440.33.00")
        assert facts.forward_compat.packages["12.2"].minimums[525] == driver("525.60.04")

    def test_geforce_is_not_eligible_for_forward_compatibility(self, facts: Facts) -> None:
        table = facts.forward_compat
        assert table.segments == ("datacenter", "jetson")
        assert table.conditional_segments == ("workstation",)
        assert {"tesla", "nvidia", "quadrortx", "nvidiartx"} <= set(table.brands)
        assert not {"geforce", "geforcertx", "titan", "titanrtx"} & set(table.brands)

    def test_a_library_of_a_branch_is_not_given_a_release(self, facts: Facts) -> None:
        packages = facts.forward_compat.packages
        assert packages["12.4"].driver is None
        assert packages["12.4"].driver_branch == 550
        assert packages["11.8"].driver == driver("520.61.05")


class TestBranches:
    def test_a_month_stands_for_its_last_day(self, facts: Facts) -> None:
        branches = facts.driver_branches.branches
        assert branches[570].eol == "2026-02-28"
        assert branches[535].eol == "2026-06-30"
        assert branches[390].eol == "2022-11-22"

    def test_where_editions_differ_the_earlier_date_counts(self, facts: Facts) -> None:
        branch = facts.driver_branches.branches[580]
        assert branch.eol == "2028-06-30"
        assert "v580 page: 2028-08; v615 page: 2028-06" in branch.note

    @pytest.mark.parametrize("branch", [384, 396, 410, 465, 495, 520, 530, 545, 555, 560, 565, 575])
    def test_a_branch_may_have_ended_without_a_date(self, facts: Facts, branch: int) -> None:
        assert facts.driver_branches.branches[branch].eol is None
        assert facts.driver_branches.branches[branch].ended

    @pytest.mark.parametrize("branch", [455, 535, 580, 590, 595, 610, 615])
    def test_a_branch_that_nobody_published_as_ended_has_not(
        self, facts: Facts, branch: int
    ) -> None:
        assert not facts.driver_branches.branches[branch].ended

    def test_r615_reports_the_cuda_it_was_seen_with(self, facts: Facts) -> None:
        branch = facts.driver_branches.branches[615]
        assert branch.cuda == (13, 4)
        assert branch.source.confidence == "derived"


class TestArchitectures:
    @pytest.mark.parametrize("capability", ["5.0", "5.2", "6.0", "6.1", "7.0"])
    def test_cuda_13_dropped_what_r580_still_drives(self, facts: Facts, capability: str) -> None:
        fact = facts.arch.capabilities[capability]
        assert fact.last_toolkit == (12, 9)
        assert fact.last_branch == 580
        assert facts.arch.toolkits["13.0"].sass[0] == (7, 5)

    def test_10_1_became_11_0_in_cuda_13(self, facts: Facts) -> None:
        assert facts.arch.capabilities["10.1"].last_toolkit == (12, 9)
        assert facts.arch.capabilities["11.0"].first_toolkit == (13, 0)
        assert (10, 1) not in facts.arch.toolkits["13.0"].sass

    def test_sm_86_needs_cuda_11_1(self, facts: Facts) -> None:
        assert facts.arch.capabilities["8.6"].first_toolkit == (11, 1)
        assert (8, 6) not in facts.arch.toolkits["11.0"].sass

    def test_tegra_parts_are_named(self, facts: Facts) -> None:
        assert facts.arch.tegra == ((5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0))

    def test_families_of_f_code(self, facts: Facts) -> None:
        families = (((10, 0), (10, 3), (10, 7)), ((10, 1),), ((11, 0),), ((12, 0), (12, 1)))
        assert facts.arch.families == families

    def test_every_published_toolkit_can_target_something(self, facts: Facts) -> None:
        for toolkit in facts.cuda_driver.toolkits:
            series = ".".join(map(str, toolkit.version.major_minor))
            assert facts.arch.toolkits[series].sass


@pytest.mark.usefixtures("schemas_asked_once")
class TestAllFiles:
    @pytest.mark.parametrize("name", sources.names())
    def test_a_file_obeys_its_schema(self, name: str) -> None:
        assert list(sources.schema_errors(name, read_source(name, overlays=[]))) == []

    @pytest.mark.parametrize("name", sources.names())
    def test_a_file_speaks_to_everybody(self, name: str) -> None:
        text = str(_without_samples(read_source(name, overlays=[])))
        for private in ("find_string", "read_file", "stored", "/work/", "/home/", "/tmp/"):
            assert private not in text

    def test_nothing_is_left_of_what_is_not_known(self, facts: Facts) -> None:
        for name in facts.framework_names:
            for found in releases(facts, name):
                assert found.source.title
                assert all(b.source.confidence for b in found.builds)


def _without_samples(content: Any) -> Any:
    """The content without texts that are quoted as others wrote them."""
    if isinstance(content, dict):
        quoted = {"sample", "text"} if "certainty" in content else {"sample"}
        return {key: _without_samples(one) for key, one in content.items() if key not in quoted}
    return [_without_samples(one) for one in content] if isinstance(content, list) else content
