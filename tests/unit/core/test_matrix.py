"""The blessed matrix: what entries speak of, which one speaks, and how they are found."""

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.matrix import Entry, EntryIndex, Matrix
from compatgate.core.stack import parse_stack

STACK = {"cuda": "12.4.1", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": ["sm_80"]}


def entry(name="e", *, targets=("t",), status="blessed", gpus=(), revision=1, **components):
    constraints = {c: parse_constraint(c, text) for c, text in components.items()}
    return Entry(name, targets, constraints, status, gpus=gpus, revision=revision)


@pytest.fixture
def pool(pool_of):
    return pool_of("driver=535.183.01,gpu=A100-SXM4-80GB")


@pytest.fixture
def slice_of_a100(pool_of):
    return pool_of("driver=535.183.01,gpu=A100-SXM4-80GB-MIG-1g.10gb")


# --- what an entry speaks of -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("components", "matches"),
    [
        ({}, True),
        ({"cuda": "12.4.*"}, True),
        ({"cuda": "12.4.*", "cudnn": "9.1.*", "torch": "~=2.4.0"}, True),
        ({"cuda": "12.6.*"}, False),
        ({"driver": ">=535.104.05,<536"}, True),
        ({"driver": ">=550"}, False),
        ({"cuda": "12.4.*", "nccl": "2.21.*"}, False),
        ({"torch": "2.4.1+cu121"}, False),
        ({"cuda": "12.4.*", "cudnn": "8.*"}, False),
    ],
)
def test_an_entry_matches_when_every_constraint_is_met(components, matches, pool):
    assert entry(**components).matches(parse_stack(STACK), pool) is matches


def test_an_entry_on_the_driver_does_not_match_a_pool_whose_driver_is_not_known(pool_of):
    assert not entry(driver=">=535").matches(parse_stack(STACK), pool_of("gpu=L4"))


@pytest.mark.parametrize(
    ("skus", "matches"),
    [((), True), (("A100-SXM4-80GB",), True), (("L4", "A100-SXM4-80GB"), True), (("L4",), False)],
)
def test_an_entry_may_be_for_certain_gpus(skus, matches, pool):
    assert entry(gpus=skus).matches(parse_stack(STACK), pool) is matches


def test_an_entry_for_a_whole_gpu_is_not_for_its_slices(slice_of_a100):
    whole = entry(gpus=("A100-SXM4-80GB",))
    assert not whole.matches(parse_stack(STACK), slice_of_a100)
    assert not whole.is_for(slice_of_a100)


def test_an_entry_for_a_slice_is_not_for_the_whole_gpu(pool, slice_of_a100):
    sliced = entry(gpus=("A100-SXM4-80GB-MIG-1g.10gb",))
    assert sliced.matches(parse_stack(STACK), slice_of_a100)
    assert not sliced.matches(parse_stack(STACK), pool)


def test_an_entry_for_a_gpu_does_not_match_a_pool_whose_gpu_is_not_known(pool_of):
    assert not entry(gpus=("L4",)).matches(parse_stack(STACK), pool_of("driver=535.104.05"))


def test_the_nearest_entry_is_for_the_same_product_where_there_is_one(slice_of_a100):
    whole = entry("whole", gpus=("A100-SXM4-80GB",), cuda="12.4.*")
    sliced = entry("slice", gpus=("A100-SXM4-80GB-MIG-1g.10gb",), cuda="12.6.*", cudnn="9.1.*")
    index = EntryIndex([sliced, whole])
    assert index.nearest("t", parse_stack(STACK), slice_of_a100).name == "slice"


def test_the_nearest_entry_shares_a_framework_however_much_else_differs(pool):
    other = entry("ort", cuda="12.*", cudnn="9.*", **{"onnxruntime-gpu": "1.23.*"})
    same = entry("vllm", cuda="12.8.*", torch="2.9.*", vllm="0.14.*")
    index = EntryIndex([other, same])
    stack = parse_stack({"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1"})
    assert index.nearest("t", stack, pool).name == "vllm"
    bare = EntryIndex([other, entry("cuda", cuda="13.*")])
    assert bare.nearest("t", stack, pool).name == "cuda", "no framework is nearer than another"


# --- which entry speaks ----------------------------------------------------------------------


def names(entries):
    return [found.name for found in entries]


def test_more_constrained_components_rank_above_fewer(pool):
    index = EntryIndex([entry("wide", cuda="12.4.*"), entry("deep", cuda="12.*", cudnn="9.*")])
    assert names(index.matching("t", parse_stack(STACK), pool)) == ["deep", "wide"]


def test_a_stated_gpu_ranks_as_a_constraint(pool):
    entries = [entry("all", cuda="12.4.*"), entry("a100", cuda="12.4.*", gpus=("A100-SXM4-80GB",))]
    found = EntryIndex(entries).matching("t", parse_stack(STACK), pool)
    assert names(found) == ["a100", "all"]


def test_narrower_constraints_rank_above_wider_ones(pool):
    entries = [
        entry("open", cuda=">=12.1"),
        entry("exact", cuda="12.4.1"),
        entry("series", cuda="12.4.*"),
    ]
    found = EntryIndex(entries).matching("t", parse_stack(STACK), pool)
    assert names(found) == ["exact", "series", "open"]


def test_between_equals_the_newer_revision_speaks(pool):
    entries = [entry("old", cuda="12.4.*", revision=3), entry("new", cuda="12.4.*", revision=9)]
    found = EntryIndex(entries).matching("t", parse_stack(STACK), pool)
    assert names(found) == ["new", "old"]


# --- the index -------------------------------------------------------------------------------


@pytest.mark.parametrize("cuda", ["12.4.*", "12.4.1", "~=12.4.0", ">=12.1,<13", "12.*", ">=12.4"])
def test_an_entry_is_found_however_it_pins_its_cuda(cuda, pool):
    index = EntryIndex([entry(cuda=cuda), entry("other", cuda="11.8.*")])
    assert names(index.matching("t", parse_stack(STACK), pool)) == ["e"]


def test_an_entry_without_a_cuda_is_found(pool):
    assert names(EntryIndex([entry(torch="~=2.4.0")]).matching("t", parse_stack(STACK), pool))


def test_an_entry_without_a_cuda_is_found_for_a_stack_without_one(pool):
    index = EntryIndex([entry(torch="~=2.4.0"), entry("cuda", cuda="12.4.*")])
    assert names(index.matching("t", parse_stack({"torch": "2.4.1"}), pool)) == ["e"]


def test_entries_of_another_target_are_not_found(pool):
    index = EntryIndex([entry(targets=("u",), cuda="12.4.*")])
    assert index.matching("t", parse_stack(STACK), pool) == []


def test_a_star_means_every_target(pool):
    index = EntryIndex([entry("star", targets=("*",), cuda="12.4.*")])
    assert names(index.matching("t", parse_stack(STACK), pool)) == ["star"]
    assert names(index.of("anything")) == ["star"]


def test_an_entry_that_names_its_target_and_a_star_is_found_once(pool):
    index = EntryIndex([entry(targets=("t", "*"), cuda="12.4.*")])
    assert names(index.matching("t", parse_stack(STACK), pool)) == ["e"]
    assert names(index.of("t")) == ["e"]


def test_an_entry_of_several_targets_is_found_for_each(pool):
    index = EntryIndex([entry(targets=("t", "u"), cuda="12.4.*")])
    assert names(index.matching("u", parse_stack(STACK), pool)) == ["e"]


def test_everything_that_concerns_a_target_can_be_listed():
    index = EntryIndex(
        [
            entry("a", cuda="12.4.*"),
            entry("b", torch="~=2.4.0"),
            entry("c", targets=("*",), cuda="11.8.*"),
            entry("d", targets=("u",), cuda="12.4.*"),
        ]
    )
    assert sorted(names(index.of("t"))) == ["a", "b", "c"]


def test_an_empty_index_finds_nothing(pool):
    assert EntryIndex().matching("t", parse_stack(STACK), pool) == []
    assert EntryIndex().of("t") == []


def test_a_matrix_may_be_empty(pool):
    matrix = Matrix()
    assert matrix.revision == 0
    assert matrix.entries.of("t") == []
    assert matrix.waivers == ()
    assert not matrix.runs("smoke", pool)
