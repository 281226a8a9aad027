"""Architectures as compilers, builders and people write them."""

import pytest

from compatgate.core.gpu_code import Arch, parse_arch, parse_capability
from compatgate.errors import BadInput


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("sm_80", ["sm_80"]),
        ("SM_80", ["sm_80"]),
        ("sm80", ["sm_80"]),
        ("80", ["sm_80"]),
        ("8.0", ["sm_80"]),
        ("10.0", ["sm_100"]),
        ("100", ["sm_100"]),
        ("sm_120", ["sm_120"]),
        ("12.1", ["sm_121"]),
        ("sm_90a", ["sm_90a"]),
        ("9.0a", ["sm_90a"]),
        ("sm_100f", ["sm_100f"]),
        ("compute_80", ["compute_80"]),
        ("compute_90a", ["compute_90a"]),
        ("ptx_80", ["compute_80"]),
        ("8.0+PTX", ["sm_80", "compute_80"]),
        ("9.0a+ptx", ["sm_90a", "compute_90a"]),
        ("12.0+PTX", ["sm_120", "compute_120"]),
        (" sm_80 ", ["sm_80"]),
    ],
)
def test_a_spelling_names_its_code(text, names):
    assert [code.name for code in parse_arch(text)] == names


@pytest.mark.parametrize(
    "text",
    ["", "sm_", "sm_5", "sm_1000", "sm_80b", "8", "8.10", "80+PTX", "all", "native", "sm_80,sm_90",
     "sm-80", "sm_\u0668\u0660", "lto_80"],
)  # fmt: skip
def test_what_is_no_architecture_is_refused_with_examples(text):
    with pytest.raises(BadInput) as caught:
        parse_arch(text)
    assert caught.value.field == "arch"
    assert "sm_90a" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("8.0", (8, 0)),
        ("80", (8, 0)),
        ("sm_87", (8, 7)),
        ("compute_90", (9, 0)),
        ("10.3", (10, 3)),
        ("103", (10, 3)),
        ("sm_121", (12, 1)),
    ],
)
def test_a_capability_is_read_from_any_spelling(text, capability):
    assert parse_capability(text) == capability


@pytest.mark.parametrize("text", ["", "8", "9.0a", "sm_90a", "8.10", "A100", "8.\u0660"])
def test_what_is_no_capability_is_refused(text):
    with pytest.raises(BadInput) as caught:
        parse_capability(text)
    assert caught.value.field == "capability"


def test_capabilities_compare_as_numbers():
    assert parse_capability("10.0") > parse_capability("9.0")
    assert parse_capability("12.1") > parse_capability("12.0")


def test_a_name_reads_back_as_the_same_code():
    for code in (Arch("sass", (10, 0), "f"), Arch("ptx", (9, 0)), Arch("sass", (5, 2))):
        assert parse_arch(code.name) == (code,)
