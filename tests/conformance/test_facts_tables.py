"""What a naive reading of the vendors' facts gets wrong, asserted on the tables that rules read."""

from __future__ import annotations

import pytest

from compatgate.catalog import read_source, source_names
from compatgate.catalog.schema import errors
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Build, CudnnBuild, Facts, MinorCompat, Release
from compatgate.core.versions import Version, parse_version


def release(facts: Facts, framework: str, version: str) -> Release:
    table = facts.framework(framework)
    assert table is not None
    return next(r for r in table.releases if r.version == parse_version(framework, version))


def build(facts: Facts, framework: str, version: str, cuda: tuple[int, int]) -> Build:
    return next(b for b in release(facts, framework, version).builds if b.cuda == cuda)


def cudnn(facts: Facts, version: str, major: int) -> CudnnBuild:
    return next(r for r in facts.cudnn.releases if r.version.text == version).builds[major]


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
        assert versions[-1].text == "13.4.2"

    def test_a_release_without_a_row_of_its_own_takes_another(self, facts: Facts) -> None:
        assert facts.cuda_driver.same_row == {"12.3.2": "12.3.1"}

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
            assert "for: " in packages[series].disputed[470].title
            assert "against: " in packages[series].disputed[470].title
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
        families = (((10, 0), (10, 3)), ((10, 1),), ((11, 0),), ((12, 0), (12, 1)))
        assert facts.arch.families == families

    def test_every_published_toolkit_can_target_something(self, facts: Facts) -> None:
        for toolkit in facts.cuda_driver.toolkits:
            series = ".".join(map(str, toolkit.version.major_minor))
            assert facts.arch.toolkits[series].sass


class TestPyTorch:
    @pytest.mark.parametrize(
        ("version", "cuda", "present"),
        [
            ("2.7.0", (12, 8), False),
            ("2.7.1", (12, 8), False),
            ("2.8.0", (12, 8), True),
            ("2.9.1", (12, 8), True),
            ("2.10.0", (12, 8), True),
            ("2.11.0", (12, 8), False),
        ],
    )
    def test_volta_comes_and_goes_in_cu128(
        self, facts: Facts, version: str, cuda: tuple[int, int], present: bool
    ) -> None:
        sass = build(facts, "torch", version, cuda).sass
        assert sass is not None
        assert ((7, 0) in sass) is present

    def test_pins_belong_to_the_build(self, facts: Facts) -> None:
        assert build(facts, "torch", "2.3.1", (11, 8)).pins["cudnn"].spec == "==8.7.0.84"
        assert build(facts, "torch", "2.3.1", (12, 1)).pins["cudnn"].spec == "==8.9.2.26"

    def test_wheel_tags_decide_not_requires_python(self, facts: Facts) -> None:
        assert release(facts, "torch", "2.5.1").python == ("3.9", "3.10", "3.11", "3.12", "3.13")
        assert "3.13t" in release(facts, "torch", "2.7.0").python

    def test_pins_hidden_behind_a_metapackage_are_not_lost(self, facts: Facts) -> None:
        default = next(b for b in release(facts, "torch", "2.11.0").builds if b.default)
        assert default.label == "cu130"
        assert default.pins["cudnn"].spec == "==9.19.0.56"
        assert default.pins["nccl"].spec == "==2.28.9"

    @pytest.mark.parametrize("version", ["2.9.0", "2.11.0", "2.13.0"])
    def test_cu129_exists_off_the_install_page(self, facts: Facts, version: str) -> None:
        found = build(facts, "torch", version, (12, 9))
        assert not found.listed
        assert found.sass is None

    def test_linux_wheels_carry_no_ptx_but_few(self, facts: Facts) -> None:
        for found in releases(facts, "torch"):
            for b in found.builds:
                if not b.ptx:
                    continue
                assert b.ptx == ((12, 0),)
                assert b.cuda_major == 13 or (found.version.text, b.label) in {
                    ("2.7.0", "cu128"),
                    ("2.7.1", "cu128"),
                    ("2.8.0", "cu129"),
                }

    def test_the_default_of_2_0_has_no_hopper_code(self, facts: Facts) -> None:
        found = build(facts, "torch", "2.0.0", (11, 7))
        assert found.default
        assert found.sass is not None
        assert (9, 0) not in found.sass

    def test_a_build_is_for_the_toolkit_series_that_it_names(self, facts: Facts) -> None:
        accepts = build(facts, "torch", "2.4.1", (12, 1)).accepts
        assert accepts == "12.1.*"
        assert parse_constraint("cuda", accepts).allows(parse_version("cuda", "12.1.1"))


class TestCudnn:
    def test_9_11_dropped_volta_even_for_cuda_12(self, facts: Facts) -> None:
        assert cudnn(facts, "9.10.2", 12).minimum_capability == (5, 0)
        assert cudnn(facts, "9.11.0", 12).minimum_capability == (7, 5)

    def test_builds_begin_and_end_with_releases(self, facts: Facts) -> None:
        by_major = {
            major: [r.version for r in facts.cudnn.releases if major in r.builds]
            for major in (11, 12, 13)
        }
        assert by_major[11][-1].text == "9.10.2"
        assert by_major[12][0].text == "8.8.0"
        assert by_major[13][0].text == "9.12.0"

    def test_blackwell_on_9_10_2_needs_cuda_12_8_and_driver_570_26(self, facts: Facts) -> None:
        rows = [r for r in cudnn(facts, "9.10.2", 12).rows if (12, 0) in r.capabilities]
        assert [row.cuda for row in rows] == [((12, 8), (12, 9))]
        assert rows[0].driver["linux"] == driver("570.26")
        others = [r for r in cudnn(facts, "9.10.2", 12).rows if (12, 0) not in r.capabilities]
        assert others[0].driver["linux"] == driver("525.60.13")

    def test_blackwell_on_9_17_0_is_read_as_in_the_matrix_before(self, facts: Facts) -> None:
        twelve = [r for r in cudnn(facts, "9.17.0", 12).rows if (10, 0) in r.capabilities]
        assert [row.driver["linux"] for row in twelve] == [driver("570.26")]
        assert twelve[0].cuda == ((12, 8), (12, 9))
        thirteen = cudnn(facts, "9.17.0", 13).rows
        assert {(10, 0), (12, 0)} <= set(thirteen[0].capabilities)
        assert thirteen[0].driver == {"linux": driver("580.65.06")}

    def test_minimums_are_per_cuda_major(self, facts: Facts) -> None:
        assert cudnn(facts, "8.4.0", 11).minimum_capability == (3, 5)
        assert cudnn(facts, "8.4.0", 10).minimum_capability == (3, 0)

    def test_a_branch_in_the_driver_column_means_any_release_of_it(self, facts: Facts) -> None:
        floor = cudnn(facts, "8.0.0", 11).rows[0].driver["linux"]
        assert driver("450.36.06") >= floor
        assert driver("440.33.01") < floor

    def test_a_branch_that_is_the_toolkits_own_is_no_floor_of_cudnn(self, facts: Facts) -> None:
        rows = cudnn(facts, "8.2.2", 11).rows
        assert [row.driver for row in rows if row.cuda == ((11, 4),)] == [{}]

    def test_derived_floors_stay_derived(self, facts: Facts) -> None:
        found = cudnn(facts, "9.18.0", 12)
        assert found.rows[0].driver["linux"] == driver("525.60.13")
        assert found.rows[0].cuda == ()
        assert found.source.confidence == "derived"
        told = cudnn(facts, "9.1.0", 12).capability_source
        assert told is not None
        assert told.confidence == "derived"

    def test_releases_have_three_parts_and_ascend_as_numbers(self, facts: Facts) -> None:
        versions = [r.version for r in facts.cudnn.releases]
        assert all(len(v.parts) == 3 for v in versions)
        assert versions == sorted(versions)
        texts = [v.text for v in versions]
        assert texts.index("9.14.0") > texts.index("9.2.0")
        assert texts.count("9.15.0") == 1

    def test_hardware_forward_compatibility_starts_at_9(self, facts: Facts) -> None:
        assert facts.cudnn.forward_compatible_from == parse_version("cudnn", "9.0.0")


class TestNccl:
    def test_2_28_3_leaves_maxwell_out(self, facts: Facts) -> None:
        found = {r.version.text: r for r in facts.nccl.releases}
        assert found["2.27.7"].minimum_capability[12] == (5, 0)
        assert found["2.28.3"].minimum_capability == {12: (6, 0), 13: (7, 5)}

    def test_builds_for_cuda_13_start_with_2_27_7(self, facts: Facts) -> None:
        assert facts.nccl.first_cuda13 == parse_version("nccl", "2.27.7")

    def test_a_release_may_exist_as_package_only(self, facts: Facts) -> None:
        found = {r.version.text: r for r in facts.nccl.releases}
        assert found["2.20.3"].cuda == (12,)
        assert found["2.18.5"].cuda == ()


class TestTensorFlow:
    def test_one_cuda_build_a_release_and_none_for_cuda_13(self, facts: Facts) -> None:
        for found in releases(facts, "tensorflow"):
            assert len(found.builds) == 1
            assert found.builds[0].cuda_major in (11, 12)
            assert found.builds[0].accepts == f"{found.builds[0].cuda_major}.*"

    def test_cudnn_is_compared_by_its_minor(self, facts: Facts) -> None:
        pin = build(facts, "tensorflow", "2.18.0", (12, 5)).pins["cudnn"]
        assert (pin.places, pin.exact, pin.same_major) == (2, False, True)
        assert pin.floor == parse_version("cudnn", "9.3")

    def test_the_highest_python_is_published_not_in_the_metadata(self, facts: Facts) -> None:
        assert release(facts, "tensorflow", "2.16.1").python_range == ("3.9", "3.12")

    def test_2_17_dropped_maxwell(self, facts: Facts) -> None:
        found = build(facts, "tensorflow", "2.17.0", (12, 3))
        assert found.minimum_capability == (6, 0)
        assert found.sass is not None
        assert min(found.sass) == (6, 0)

    def test_the_latest_architecture_comes_as_code_and_as_ptx(self, facts: Facts) -> None:
        found = build(facts, "tensorflow", "2.19.0", (12, 5))
        assert found.sass == ((6, 0), (7, 0), (8, 0), (8, 9), (9, 0))
        assert found.ptx == ((9, 0),)

    def test_native_windows_ended_with_2_10(self, facts: Facts) -> None:
        assert release(facts, "tensorflow", "2.10.0").os == ("linux", "windows")
        assert release(facts, "tensorflow", "2.11.0").os == ("linux",)


class TestJax:
    @pytest.mark.parametrize(
        ("version", "spec"),
        [
            ("0.4.30", ">=9.0,<10.0"),
            ("0.6.0", ">=9.8,<10.0"),
            ("0.7.1", ">=9.8,<10.0"),
            ("0.11.2", ">=9.10.2.21,<10.0"),
        ],
    )
    def test_the_plugin_decides_on_cudnn_not_the_page(
        self, facts: Facts, version: str, spec: str
    ) -> None:
        twelve = next(b for b in release(facts, "jax", version).builds if b.cuda_major == 12)
        assert twelve.pins["cudnn"].spec == spec

    @pytest.mark.parametrize("version", ["0.7.0", "0.7.1"])
    def test_an_extra_without_a_plugin_is_no_build(self, facts: Facts, version: str) -> None:
        assert [b.cuda_major for b in release(facts, "jax", version).builds] == [12]

    def test_a_pin_with_a_build_number_is_not_older_than_the_release(self, facts: Facts) -> None:
        thirteen = next(b for b in release(facts, "jax", "0.8.0").builds if b.cuda_major == 13)
        pin = thirteen.pins["cudnn"]
        assert pin.floor is not None
        assert pin.floor.at(pin.places) == parse_version("cudnn", "9.12.0").at(pin.places)

    def test_the_range_of_cuda_ends_with_its_major(self, facts: Facts) -> None:
        by_major = {b.cuda_major: b for b in release(facts, "jax", "0.8.0").builds}
        assert by_major[12].accepts == ">=12.1,<13"
        assert by_major[13].accepts == ">=13.0,<14"
        assert by_major[12].default
        assert not by_major[13].default

    def test_the_cuda_it_was_built_with_is_the_changelogs(self, facts: Facts) -> None:
        assert {b.cuda for b in release(facts, "jax", "0.6.0").builds} == {(12, 8)}
        assert {b.cuda for b in release(facts, "jax", "0.5.0").builds} == {(12, 3)}


class TestOnnxRuntime:
    @pytest.mark.parametrize(
        ("version", "major"), [("1.18.1", 11), ("1.19.0", 12), ("1.26.0", 12), ("1.27.0", 13)]
    )
    def test_the_package_index_changed_its_cuda_twice(
        self, facts: Facts, version: str, major: int
    ) -> None:
        defaults = [b for b in release(facts, "onnxruntime-gpu", version).builds if b.default]
        assert [b.cuda_major for b in defaults] == [major]

    @pytest.mark.parametrize(("version", "spec"), [("1.18.0", "8.*"), ("1.18.1", "9.*")])
    def test_the_cuda_12_build_changed_its_cudnn_in_a_patch(
        self, facts: Facts, version: str, spec: str
    ) -> None:
        builds = release(facts, "onnxruntime-gpu", version).builds
        twelve = next(b for b in builds if b.cuda_major == 12)
        assert not twelve.default
        assert twelve.pins["cudnn"].spec == spec
        assert twelve.pins["cudnn"].same_major

    def test_a_feed_of_the_project_is_listed_an_unknown_channel_is_not(self, facts: Facts) -> None:
        feed = build(facts, "onnxruntime-gpu", "1.19.0", (11, 8))
        unknown = build(facts, "onnxruntime-gpu", "1.21.0", (11, 8))
        assert feed.listed
        assert not unknown.listed
        assert unknown.pins == {}


class TestVllm:
    def test_from_0_20_the_default_wheel_is_for_cuda_13(self, facts: Facts) -> None:
        before = next(b for b in release(facts, "vllm", "0.19.0").builds if b.default)
        after = next(b for b in release(facts, "vllm", "0.20.0").builds if b.default)
        assert (before.cuda_major, after.cuda_major) == (12, 13)
        beside = build(facts, "vllm", "0.24.0", (12, 9))
        assert not beside.listed

    def test_torch_is_pinned_exactly(self, facts: Facts) -> None:
        for found in releases(facts, "vllm"):
            pin = found.pins["torch"]
            assert pin.exact
            assert pin.spec.startswith("==")

    def test_it_needs_volta_and_turing_from_0_20(self, facts: Facts) -> None:
        assert release(facts, "vllm", "0.8.5").builds[0].minimum_capability == (7, 0)
        assert release(facts, "vllm", "0.20.0").builds[0].minimum_capability == (7, 5)

    def test_the_highest_python_is_the_one_below_the_bound(self, facts: Facts) -> None:
        assert release(facts, "vllm", "0.19.0").python_range == ("3.10", "3.13")
        assert release(facts, "vllm", "0.4.0").python_range == ("3.8", "3.11")
        assert release(facts, "vllm", "0.5.5").python_range == ("3.8", None)


class TestCupy:
    def test_packages_of_one_version_are_builds_of_one_release(self, facts: Facts) -> None:
        found = release(facts, "cupy", "13.6.0")
        assert [b.cuda_major for b in found.builds] == [11, 12, 13]
        assert found.builds[0].accepts == ">=11.2,<12"

    def test_cuda_11_0_and_11_1_had_packages_of_their_own(self, facts: Facts) -> None:
        accepts = {b.accepts for b in release(facts, "cupy", "12.3.0").builds}
        assert {"10.2.*", "11.0.*", "11.1.*", ">=11.2,<12", ">=12.0,<13"} == accepts

    def test_libraries_are_optional(self, facts: Facts) -> None:
        for found in releases(facts, "cupy"):
            for b in found.builds:
                assert all(pin.optional for pin in b.pins.values())


class TestTensorRt:
    def test_cudnn_is_optional_from_10_and_needed_before(self, facts: Facts) -> None:
        for found in releases(facts, "tensorrt"):
            for b in found.builds:
                if pin := b.pins.get("cudnn"):
                    assert pin.optional is (found.version.major >= 10)
        assert not release(facts, "tensorrt", "8.6.1").builds[0].pins["cudnn"].optional

    def test_cuda_11_ends_with_10_13_0(self, facts: Facts) -> None:
        assert [b.cuda_major for b in release(facts, "tensorrt", "10.13.0").builds] == [11, 12]
        assert [b.cuda_major for b in release(facts, "tensorrt", "10.13.2").builds] == [12, 13]

    def test_driver_floors_are_those_of_the_page_that_states_them(self, facts: Facts) -> None:
        by_major = {b.cuda_major: b for b in release(facts, "tensorrt", "11.0.0").builds}
        assert driver("535.43.02") >= by_major[12].driver["linux"]
        assert driver("575.57.08") < by_major[13].driver["linux"]
        assert release(facts, "tensorrt", "10.3.0").builds[0].driver == {}

    def test_a_document_of_two_parts_names_a_package_of_four(self, facts: Facts) -> None:
        assert release(facts, "tensorrt", "10.14.1").version.parts == (10, 14, 1)


class TestAllFiles:
    @pytest.mark.parametrize("name", source_names())
    def test_a_file_obeys_its_schema(self, name: str) -> None:
        assert list(errors(name, read_source(name, overlays=[]))) == []

    @pytest.mark.parametrize("name", source_names())
    def test_a_file_speaks_to_everybody(self, name: str) -> None:
        text = str(read_source(name, overlays=[]))
        for private in ("find_string", "read_file", "stored", "/work/", "/home/", "/tmp/"):
            assert private not in text

    def test_nothing_is_left_of_what_is_not_known(self, facts: Facts) -> None:
        for name in facts.framework_names:
            for found in releases(facts, name):
                assert found.source.title
                assert all(b.source.confidence for b in found.builds)
