"""What the facts follow, and what is asked about by a person's words."""

import pytest
from refresh import Bounds, Survey, choose_subjects, list_subjects, survey

from compatgate.catalog import load_facts, open_library
from compatgate.errors import Unavailable


@pytest.fixture
def known():
    return list_subjects(open_library([]), load_facts([]))


class NoIndex:
    """An index that does not answer for one package, and knows no other."""

    def releases(self, package):
        if package == "torch":
            raise Unavailable("the index answers with status 503", field="torch")
        return {}


def names(things):
    return [one.facts for one in things]


def test_frameworks_libraries_and_packages_with_records_are_followed(known):
    assert {"frameworks/torch", "cudnn", "nccl", "cuda_driver", "packages/xformers"} <= {
        one.facts for one in known
    }
    jax = next(one for one in known if one.facts == "frameworks/jax")
    assert jax.distributions == ("jax", "jax-cuda12-plugin", "jax-cuda13-plugin")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("torch", ["frameworks/torch"]),
        ("cudnn", ["cudnn"]),
        ("nvidia-cudnn-cu13", ["cudnn"]),
        ("jax-cuda13-plugin", ["frameworks/jax"]),
        ("Xformers", ["packages/xformers"]),
        ("tensorrt", ["frameworks/tensorrt"]),
        ("new-pkg", ["packages/new-pkg"]),
    ],
)
def test_a_thing_is_named_by_itself_or_by_a_distribution(known, asked, found):
    assert names(choose_subjects(known, [asked], load_facts([]))) == found


def test_everything_is_asked_about_without_a_name(known):
    assert names(choose_subjects(known, [], load_facts([]))) == names(known)


def test_what_an_index_cannot_answer_is_a_problem_of_that_thing_alone(known):
    things = choose_subjects(known, ["torch", "xformers"], load_facts([]))
    torch, xformers = survey(things, NoIndex(), Bounds())
    assert isinstance(torch, Survey)
    assert "503" in torch.problem.detail
    assert xformers.problem.detail == "xformers: the index has no wheels"


def test_a_package_of_which_only_the_source_is_known_is_passed_over(known):
    from msgspec.structs import replace

    (xformers,) = choose_subjects(known, ["xformers"], load_facts([]))
    assert list(survey([replace(xformers, has_wheels=False)], NoIndex(), Bounds())) == []
