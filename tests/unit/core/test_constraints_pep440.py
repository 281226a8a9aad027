"""Constraints on packages compare whole versions, as `packaging.specifiers` does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import Specifier
from packaging.version import Version as Pep440

from compatgate.core.constraints import parse_constraint
from compatgate.core.versions import parse_version

NUMBERS = st.lists(st.integers(0, 3), min_size=2, max_size=4).map(lambda n: ".".join(map(str, n)))
PUBLIC = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "", "", "1!"]),
        NUMBERS,
        st.sampled_from(["", "", "a0", "b2", "rc1"]),
        st.sampled_from(["", "", ".post1", ".post2"]),
        st.sampled_from(["", "", ".dev3", ".dev20250407"]),
    ),
)
LABELS = st.sampled_from(
    ["", "+cu121", "+cu124", "+CU121", "+acme.7", "+acme-7", "+acme.07", "+cpu"]
)
VERSIONS = st.builds("{}{}".format, PUBLIC, LABELS)
CLAUSES = st.one_of(
    st.builds("{}{}".format, st.sampled_from(["==", "!="]), VERSIONS),
    st.builds("{}{}".format, st.sampled_from([">=", "<=", ">", "<", "~="]), PUBLIC),
    st.builds("{}{}.*".format, st.sampled_from(["==", "!="]), NUMBERS),
)


@settings(max_examples=1500, deadline=None)
@given(CLAUSES, VERSIONS)
def test_a_clause_answers_as_packaging_does(clause, version):
    expected = Specifier(clause).contains(Pep440(version), prereleases=True)
    assert parse_constraint("torch", clause).allows(parse_version("torch", version)) is expected


@pytest.mark.parametrize("version", ["2.4.1", "2.4.1+cu124", "1!2.4.1", "1!2.4.1+acme.7"])
def test_a_build_of_ones_own_blesses_no_other(version):
    constraint = parse_constraint("torch", "==2.4.1+acme.7")
    assert not constraint.allows(parse_version("torch", version))
    assert constraint.allows(parse_version("torch", "2.4.1+acme-7"))


def test_a_library_of_another_label_is_another_build():
    constraint = parse_constraint("cudnn", "==9.1.0+acme")
    assert not constraint.allows(parse_version("cudnn", "9.1.0"))
    assert parse_constraint("nccl", "==2.21.5+cu124").allows(
        parse_version("nccl", "2.21.5-1+cuda12.4")
    )


def test_a_version_of_another_epoch_is_another_release():
    assert parse_version("torch", "1!2.4.1") != parse_version("torch", "2.4.1")
    assert not parse_version("torch", "2.4.1") != parse_version("torch", "2.4.1+cu121")  # noqa: SIM202
