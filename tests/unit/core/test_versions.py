"""A version as a value: what is equal, what is newer, what two have in common."""

import pytest

from compatgate.core.versions import agree, format_parts, make_version, parse_version


@pytest.mark.parametrize(
    ("component", "one", "other"),
    [
        ("driver", "535.104.05", "535.104.5"),
        ("driver", "535.054.03", "535.54.03"),
        ("driver", "570.26", "570.26.00"),
        ("cuda", "12.4", "12040"),
        ("cuda", "12.4", "12.4.131"),
        ("cuda", "12.4", "12.4.0"),
        ("cuda", "12.4", "cu124"),
        ("cuda", "13.0", "13000"),
        ("cudnn", "9.1.0", "90100"),
        ("cudnn", "9.1.0", "9.1.0.70"),
        ("cudnn", "9.15.0.57", "9.15.0.58"),
        ("cudnn", "8.9.7", "8907"),
        ("nccl", "2.21.5", "22105"),
        ("nccl", "2.8.4", "2804"),
        ("torch", "2.4.0", "2.4"),
        ("torch", "2.4.1", "2.4.1+cu121"),
        ("llama-cpp", "9060", "b9060"),
        ("matlab", "2024a", "R2024a"),
    ],
)
def test_spellings_of_one_release_are_equal(component, one, other):
    assert parse_version(component, one) == parse_version(component, other)
    assert hash(parse_version(component, one)) == hash(parse_version(component, other))


@pytest.mark.parametrize(
    ("component", "older", "newer"),
    [
        ("driver", "450.80.02", "450.248.02"),
        ("driver", "525.60.11", "525.60.13"),
        ("driver", "527.41", "528.33"),
        ("driver", "570.26", "570.124.06"),
        ("cuda", "12.9", "12.10"),
        ("cuda", "12.4", "12.4.1"),
        ("cuda", "9020", "10.0"),
        ("cudnn", "9.2", "9.14"),
        ("cudnn", "8907", "90000"),
        ("cudnn", "9.9.0", "91002"),
        ("nccl", "2804", "20900"),
        ("nccl", "2.9.9", "2.10.3"),
        ("torch", "2.6.0a0+ecf3bae40a.nv25.01", "2.6.0"),
        ("torch", "2.9.1", "2.10.0"),
        ("python", "3.9", "3.10"),
    ],
)
def test_parts_compare_as_numbers(component, older, newer):
    one, other = parse_version(component, older), parse_version(component, newer)
    assert one < other
    assert one <= other
    assert other > one
    assert other >= one
    assert one != other


@pytest.mark.parametrize("label", ["cu-121", "cu12.1", "CU_121"])
def test_spellings_of_one_build_label_are_equal(label):
    found = parse_version("torch", f"2.4.1+{label}")
    assert (found.local, found.cuda) == ("cu121", (12, 1))


def test_the_public_part_leaves_the_label_out():
    assert parse_version("torch", "2.4.1+cu121").public == "2.4.1"


def test_a_prerelease_sorts_before_its_release_and_after_the_one_before():
    before, pre, release = (parse_version("torch", v) for v in ("2.5.1", "2.6.0rc1", "2.6.0"))
    assert before < pre < release


def test_parts_are_padded_with_zeros_where_fewer_are_stated():
    version = parse_version("cuda", "12.4")
    assert version.at(3) == (12, 4, 0)
    assert version.at(1) == (12,)
    assert version.major_minor == (12, 4)
    assert make_version("580", (580,)).minor == 0


def test_show_writes_parts_with_dots():
    assert format_parts((12, 10)) == "12.10"


@pytest.mark.parametrize(
    ("component", "one", "other", "same"),
    [
        ("cuda", "12.4", "12.4.131", True),
        ("cuda", "12.4", "12.5", False),
        ("cudnn", "9.1.0", "9.1.0.70+cu12", True),
        ("cudnn", "9.1.0+cu12", "9.1.0+cu124", True),
        ("cudnn", "9.1.0+cu11", "9.1.0+cu12", False),
        ("torch", "2.4.1+cu121", "2.4.1+cu124", False),
        ("torch", "2.4.1+cpu", "2.4.1+cu124", False),
        ("torch", "2.4.1", "2.4.1+cpu", True),
    ],
)
def test_versions_agree_as_far_as_both_are_stated(component, one, other, same):
    first, second = parse_version(component, one), parse_version(component, other)
    assert agree(first, second) is agree(second, first) is same
