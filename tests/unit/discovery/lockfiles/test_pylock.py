"""pylock.toml, and the wheel variants that PEP 825 drafts for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.errors import BadInput

VARIANTS = "variants/pylock.variants.toml"


def test_what_uv_exports_is_read(stack):
    found = stack("torch-2.4/pylock.toml")
    assert (found["torch"], found["cuda"]) == ("2.4.1", "12.1.105")


def test_what_pip_locks_is_read_for_the_platform_it_was_locked_on(stack, read):
    assert stack("torch-2.4-pip/pylock.toml") == stack("torch-2.4/pylock.toml")
    other = read("torch-2.4-pip/pylock.toml", target="linux aarch64 3.11")
    assert any("wheel exists for linux aarch64" in item for item in other.open)


def test_the_index_and_the_wheel_name_the_build(files: Path, stack):
    text = (files / "torch-conflicts/pylock.toml").read_text()
    assert stack("pylock.toml", text)["torch"] == "2.4.1+cu124"
    plain = text.replace("2.4.1+cu124", "2.4.1").replace("2.4.1%2Bcu124", "2.4.1")
    assert stack("pylock.toml", plain)["torch"] == "2.4.1+cu124"


def test_a_wheel_for_another_platform_does_not_count(read):
    reading = read("torch-conflicts/pylock.toml", target="linux aarch64 3.11")
    assert "wheel exists for linux aarch64" in reading.open[0]


WHEEL = "torch-2.4.1%2Bcu121-cp311-cp311-linux_x86_64.whl"


def _lock(marker: str, head: str = "") -> str:
    return (
        f'lock-version = "1.0"\ncreated-by = "test"\n{head}\n[[packages]]\nname = "torch"\n'
        f'version = "2.4.1+cu121"\nmarker = "{marker}"\n'
        f'wheels = [{{ url = "https://example.com/{WHEEL}", hashes = {{ sha256 = "00" }} }}]\n'
    )


def test_without_an_extra_its_exclusion_holds(stack):
    assert "torch" in stack("pylock.toml", _lock("'cpu' not in extras"))


def test_default_groups_count_without_being_asked_for(stack):
    text = _lock(
        "'train' in dependency_groups", 'dependency-groups = ["train"]\ndefault-groups = ["train"]'
    )
    assert stack("pylock.toml", text)["torch"] == "2.4.1+cu121"


def test_a_lock_for_other_environments_is_a_conflict(read):
    text = _lock("os_name == 'posix'", "environments = [\"sys_platform == 'darwin'\"]")
    assert read("pylock.toml", text).conflicts[0].component == "platform"


def test_a_marker_on_the_patch_release_is_open_for_a_python_without_one(read, stack):
    text = _lock("python_full_version >= '3.11.4'")
    assert read("pylock.toml", text).observations == ()
    assert stack("pylock.toml", text, target="linux x86_64 3.11.9")["torch"] == "2.4.1+cu121"


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('lock-version = "1.0"', 'lock-version = "2.0"', "version that is not read"),
        ('name = "torch"', "name = 3", "not a pylock file"),
        ("os_name == 'posix'", "os_name = posix", "pylock file"),
    ],
)
def test_what_the_standard_does_not_allow_is_refused(read, before, after, problem):
    text = _lock("os_name == 'posix'").replace(before, after)
    with pytest.raises(BadInput, match=problem):
        read("pylock.toml", text)


def test_among_several_variants_the_host_chooses_so_the_lock_leaves_it_open(read):
    reading = read(VARIANTS)
    assert reading.observations == ()
    assert reading.arch == ()
    assert "cu128 (nvidia :: cuda_version_lower_bound :: 12.8" in reading.open[0]
    assert "cu129 (nvidia :: cuda_version_lower_bound :: 12.9" in reading.open[0]


def test_the_only_variant_for_the_platform_decides(read):
    reading = read(VARIANTS, target="windows x86_64 3.11")
    assert reading.observations[0].version == "2.8.0+cu128"
    assert reading.observations[0].confidence == "derived"
    assert reading.arch == ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    assert reading.open == ()


def test_a_virtual_architecture_is_ptx(files: Path, read):
    text = (files / VARIANTS).read_text()
    lines = [line for line in text.splitlines() if "x86_64-cu128" not in line]
    reading = read("pylock.toml", "\n".join(lines))
    assert reading.observations[0].version == "2.8.0+cu129"
    assert reading.arch[-1] == "compute_120"


def test_variants_whose_properties_are_elsewhere_stay_open(files: Path, read):
    text = (files / VARIANTS).read_text()
    head = text[: text.index("[packages.variants-json]")]
    text = (
        f'{head}[packages.variants-json]\nurl = "https://example.com/torch-2.8.0-variants.json"\n'
    )
    reading = read("pylock.toml", text, target="windows x86_64 3.11")
    assert any("cu128 has no properties" in item for item in reading.open)
