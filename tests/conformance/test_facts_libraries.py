"""What a naive reading gets wrong, asserted on the tables of cuDNN and NCCL."""

from __future__ import annotations

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import CudnnBuild
from compatgate.core.versions import Version, parse_version


def cudnn(facts: Facts, version: str, major: int) -> CudnnBuild:
    return next(r for r in facts.cudnn.releases if r.version.text == version).builds[major]


def driver(text: str) -> Version:
    return parse_version("driver", text)


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
