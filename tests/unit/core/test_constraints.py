"""Constraints of matrix entries: what each operator allows, and what is refused."""

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

ALLOWED = [
    ("driver", ">=535.104.05,<536", "535.104.05", True),
    ("driver", ">=535.104.05,<536", "535.183.01", True),
    ("driver", ">=535.104.05,<536", "535.86.10", False),
    ("driver", ">=535.104.05,<536", "536.01", False),
    ("driver", ">=450.80.02", "450.248.02", True),
    ("driver", "535.*", "535.54.03", True),
    ("driver", "535.*", "550.54.15", False),
    ("driver", ">=580", "580.65.06", True),
    ("driver", "535.104.05", "535.104.5", True),
    ("cuda", "12.4.*", "12.4", True),
    ("cuda", "12.4.*", "12.4.1", True),
    ("cuda", "12.4.*", "12040", True),
    ("cuda", "12.4.*", "12.4.131", True),
    ("cuda", "12.4.*", "12.40", False),
    ("cuda", "12.1.*", "12.10", False),
    ("cuda", "12.x", "12.9.1", True),
    ("cuda", "12.*", "13.0", False),
    ("cuda", ">=12.1,<13", "12.9.1", True),
    ("cuda", ">=12.1,<13", "13.0", False),
    ("cuda", ">=12.9", "12.10", True),
    ("cuda", "==12.4", "12.4.0", True),
    ("cuda", "==12.4", "12.4.1", False),
    ("cuda", "~=12.4", "12.9", True),
    ("cuda", "~=12.4", "13.0", False),
    ("cuda", "~=12.4.0", "12.4.1", True),
    ("cuda", "~=12.4.0", "12.5", False),
    ("cuda", ">=12040", "12.4", True),
    ("cudnn", "9.1.*", "9.1.0.70", True),
    ("cudnn", "9.1.*", "90100", True),
    ("cudnn", "9.1.*", "9.10.2", False),
    ("cudnn", "==9.1.0", "9.1.0.70", True),
    ("cudnn", "==9.1.0", "90100", True),
    ("cudnn", "!=9.1.0", "9.1.0.70", False),
    ("cudnn", "==9.1.0.70", "90100", True),
    ("cudnn", "<=9.1.0", "9.1.0.70", True),
    ("cudnn", ">9.1.0", "9.1.0.70", False),
    ("cudnn", ">=9.12.0.46", "9.12.0", True),
    ("cudnn", ">=9.12.0.46", "9.11.1", False),
    ("cudnn", ">=9.2", "9.14.0", True),
    ("nccl", "2.21.5", "2.21.5-1+cuda12.4", True),
    ("nccl", ">=2.9", "22105", True),
    ("nccl", ">=2.9", "2804", False),
    ("torch", "~=2.4.0", "2.4.1", True),
    ("torch", "~=2.4.0", "2.5.0", False),
    ("torch", "~=2.4.0", "2.4.1+cu121", True),
    ("torch", "2.4.1", "2.4.1+cu121", True),
    ("torch", "2.4.1+cu121", "2.4.1+cu121", True),
    ("torch", "2.4.1+cu121", "2.4.1+cu124", False),
    ("torch", "2.4.1+cu121", "2.4.1", False),
    ("torch", "!=2.4.1+cu121", "2.4.1+cu121", False),
    ("torch", "!=2.4.1+cu121", "2.4.1+cu118", True),
    ("torch", ">=2.4,!=2.4.1", "2.4.1", False),
    ("torch", ">=2.4,!=2.4.1", "2.4.2", True),
    ("torch", "!=2.4.*", "2.4.1", False),
    ("torch", "!=2.4.*", "2.5.0", True),
    ("torch", ">2.4.0", "2.4.1", True),
    ("torch", "<2.5", "2.4.1", True),
    ("torch", "<2.5", "2.5.0", False),
    ("torch", " >= 2.4 , < 2.6 ", "2.5.1", True),
    ("python", ">=3.9,<3.13", "3.10.4", True),
    ("python", ">=3.9,<3.13", "3.13", False),
    ("python", "3.11.*", "3.11.7", True),
]


@pytest.mark.parametrize(("component", "text", "version", "allowed"), ALLOWED)
def test_a_constraint_allows_what_it_says(component, text, version, allowed):
    have = parse_version(component, version)
    assert parse_constraint(component, text).allows(have) is allowed


@pytest.mark.parametrize(
    ("component", "text"),
    [
        ("torch", ""),
        ("torch", ","),
        ("torch", ">=2.4,"),
        ("torch", ">="),
        ("torch", "=>2.4"),
        ("torch", "===2.4"),
        ("torch", ">=2.4 <3"),
        ("torch", ">=2.4.*"),
        ("torch", "~=2.4.*"),
        ("torch", "*"),
        ("torch", "latest"),
        ("driver", ">=r535"),
        ("cuda", "12.4-devel"),
    ],
)
def test_a_malformed_constraint_is_refused_with_an_example(component, text):
    with pytest.raises(BadInput) as caught:
        parse_constraint(component, text)
    assert caught.value.field == component
    assert "12.4.*" in caught.value.hint


def test_a_constraint_on_what_is_not_a_component_is_refused():
    with pytest.raises(BadInput, match=r"cudn.*is not a component.*did you mean cudnn"):
        parse_constraint("cudn", "9.1.0")


@pytest.mark.parametrize(
    ("text", "series"),
    [
        ("12.4.*", (12, 4)),
        ("12.4", (12, 4)),
        ("==12.4.1", (12, 4)),
        ("12.4.1.*", (12, 4)),
        ("~=12.4.0", (12, 4)),
        ("12.4.*,!=12.4.1", (12, 4)),
        ("12040", (12, 4)),
        ("~=12.4", None),
        ("12.*", None),
        (">=12.4,<12.5", None),
        ("!=12.4", None),
    ],
)
def test_the_one_series_that_a_constraint_can_mean_is_known(text, series):
    assert parse_constraint("cuda", text).series == series


def test_narrower_constraints_rank_above_wider_ones():
    texts = [">=12.1", ">=12.1,<13", "12.4.*", "12.4.1"]
    ranks = [parse_constraint("cuda", text).exactness for text in texts]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == 4


def test_a_constraint_is_shown_as_it_was_written():
    assert str(parse_constraint("driver", ">=535.104.05, <536")) == ">=535.104.05, <536"


@pytest.mark.parametrize(("component", "text"), [("driver", "535"), ("cuda", "12"), ("cudnn", "9")])
@pytest.mark.parametrize("operator", ["", "=", "==", "!="])
def test_a_bare_major_is_refused_because_it_would_mean_its_zeroth_minor(component, text, operator):
    with pytest.raises(BadInput) as caught:
        parse_constraint(component, operator + text)
    assert f"{text}.*" in caught.value.hint


@pytest.mark.parametrize(("text", "allowed"), [(">=535", True), ("<535", False), ("<536", True)])
def test_a_bare_branch_is_a_bound(text, allowed):
    have = parse_version("driver", "535.104.05")
    assert parse_constraint("driver", text).allows(have) is allowed


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        (">=536,<535", True),
        (">=535,<535", True),
        (">535,<=535", False),
        (">=535,<=535", False),
        ("<536,>=535.104.05", False),
        ("535.104.05,<535", True),
        ("535.*,<536", False),
        ("!=535.104.05", False),
    ],
)
def test_bounds_that_leave_nothing_are_seen(text: str, empty: bool) -> None:
    assert parse_constraint("driver", text).is_empty is empty
