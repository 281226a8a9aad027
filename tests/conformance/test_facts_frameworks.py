"""What a naive reading of the vendors' facts gets wrong, asserted on the tables of frameworks."""

from __future__ import annotations

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build, Release
from compatgate.core.stack_facts import accepts
from compatgate.core.versions import Version, parse_version


def release(facts: Facts, framework: str, version: str) -> Release:
    table = facts.framework(framework)
    assert table is not None
    return next(r for r in table.releases if r.version == parse_version(framework, version))


def build(facts: Facts, framework: str, version: str, cuda: tuple[int, int]) -> Build:
    return next(b for b in release(facts, framework, version).builds if b.cuda == cuda)


def driver(text: str) -> Version:
    return parse_version("driver", text)


def releases(facts: Facts, framework: str) -> tuple[Release, ...]:
    table = facts.framework(framework)
    assert table is not None
    return table.releases


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

    @pytest.mark.parametrize("version", ["2.11.0", "2.13.0"])
    def test_no_build_script_of_later_releases_has_a_list_for_cu129(
        self, facts: Facts, version: str
    ) -> None:
        assert build(facts, "torch", version, (12, 9)).sass is None

    def test_linux_wheels_carry_no_ptx_but_few(self, facts: Facts) -> None:
        for found in releases(facts, "torch"):
            for b in found.builds:
                if not b.ptx:
                    continue
                if found.version.parts < (1, 6):
                    assert b.ptx in (((3, 7),), ((5, 0),), ((5, 2),))
                    continue
                assert b.ptx == ((12, 0),)
                assert b.cuda_major == 13 or (found.version.text, b.label) in {
                    ("2.7.0", "cu128"),
                    ("2.7.1", "cu128"),
                    ("2.8.0", "cu129"),
                    ("2.9.0", "cu129"),
                    ("2.9.1", "cu129"),
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


class TestTensorFlow:
    def test_one_cuda_build_a_release_and_none_for_cuda_13(self, facts: Facts) -> None:
        for found in releases(facts, "tensorflow"):
            assert len(found.builds) == 1
            assert found.builds[0].cuda_major in (7, 8, 9, 10, 11, 12)
            if found.version.parts >= (2, 10):
                assert found.builds[0].accepts == f"{found.builds[0].cuda_major}.*"

    @pytest.mark.parametrize(
        ("cuda", "known"),
        [("10.1", ["2.3.0"]), ("11.0", ["2.4.0"]), ("11.1", ["2.5.0"]), ("11.8", ["2.5.0"])],
    )
    def test_a_library_named_by_its_toolkit_ties_older_releases(
        self, facts: Facts, cuda: str, known: list[str]
    ) -> None:
        accepting = [
            text
            for text in ("2.3.0", "2.4.0", "2.5.0")
            for one in release(facts, "tensorflow", text).builds
            if accepts(one, parse_version("cuda", cuda))
        ]
        assert accepting == known

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
            if found.version.parts < (0, 2, 6):
                assert pin.spec in ("==2.0.1", ">=2.0,<2.1", ">=2.1,<2.2")
                continue
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
