"""A stack assessed for one image has, for every other, the verdict of a full evaluation."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

import msgspec
import pytest
from drawn import facts
from hypothesis import given
from hypothesis import strategies as st

from compatgate.core import evaluate as evaluate_module
from compatgate.core.matrix import ANY_TARGET, Matrix, Waiver
from compatgate.core.request import Policy, Target, parse_pool
from compatgate.errors import BadInput, CompatgateError, NotFound
from compatgate.service.gate.questions import decider
from compatgate.service.gate.questions.decider import Decider, decide
from compatgate.service.matrix.snapshots.snapshot import Snapshot

NOW = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)
TARGETS = ("prod", "staging")
IMAGES = (
    None, "registry.example/ocr/app:1", "registry.example/ocr/app@sha256:ab", "other/app:1", "o",
    "", 7,
)  # fmt: skip
GLOBS = (None, "registry.example/ocr/*", "registry.example/*@sha256:*", "*", "", "[o]", "other/*")
RULES = ("CG101", "CG102", "CG104", "CG201", "CG402", "CG801")
STACKS = (
    {"cuda": "12.4", "arch": ["sm_80"]},
    {"cuda": "12.4", "torch": "2.4.1", "cudnn": "8.9.7", "arch": ["sm_90"]},
    {"torch": "2.4.1+cu121"},
    {"cuda": "banana"},
    {},
)
SETS = (None, {"driver": "470.57.02"}, {"cudnn": None}, {"cuda": "12.1"}, {"driver": "x"})


@cache
def targets():
    described = (
        {"name": "a", "gpu": "A100-SXM4-80GB", "driver": "535.183.01"},
        {"name": "b", "gpu": "L4", "driver": "470.256.02"},
    )
    pools = tuple(parse_pool(pool, facts().gpus) for pool in described)
    made = (Target("prod", pools, Policy(require_entry=True)), Target("staging", pools[:1]))
    return {target.name: target for target in made}


@st.composite
def waivers(draw):
    names = st.lists(st.sampled_from([*TARGETS, ANY_TARGET]), min_size=1, max_size=2, unique=True)
    rules = st.lists(st.sampled_from(RULES), min_size=1, max_size=4, unique=True)
    return Waiver(
        name=f"w{draw(st.integers(0, 9))}",
        rules=tuple(draw(rules)),
        targets=tuple(draw(names)),
        owner="team",
        reason="for now",
        expires=draw(st.sampled_from(["2020-01-01", "2999-12-31"])),
        image=draw(st.sampled_from(GLOBS)),
    )


@st.composite
def snapshots(draw):
    matrix = Matrix(3, waivers=draw(st.lists(waivers(), max_size=4)))
    return Snapshot(3, facts(), matrix, targets=targets())


@st.composite
def bodies(draw):
    body = {"stack": draw(st.sampled_from(STACKS)), "image": draw(st.sampled_from(IMAGES))}
    where = draw(st.sampled_from([*TARGETS, "nowhere", None]))
    pool = {"gpu": "A100-SXM4-80GB", "driver": "535.183.01"}
    body |= {"target": where} if where else {"pool": pool}
    if (changes := draw(st.sampled_from(SETS))) is not None:
        body["set"] = changes
    return body


def said(how, *arguments):
    try:
        return msgspec.json.encode(how(*arguments).to_json())
    except CompatgateError as error:
        return type(error), str(error), error.field, error.hint


@given(snapshots(), st.lists(bodies(), min_size=2, max_size=12))
def test_what_is_remembered_of_other_images_never_changes_an_answer(snapshot, asked):
    decider = Decider()
    for body in asked:
        assert said(decider.decide, body, snapshot, NOW) == said(decide, body, snapshot, NOW), body


@pytest.fixture
def assessments(monkeypatch):
    """The stacks that were assessed."""
    made = []
    real = evaluate_module.assess
    monkeypatch.setattr(decider, "assess", lambda *a, **k: made.append(a) or real(*a, **k))
    return made


def question(image, **more):
    return {"target": "prod", "stack": STACKS[0], "image": image, **more}


def test_builds_that_differ_in_their_digest_are_assessed_once(assessments):
    snapshot, decider = Snapshot(3, facts(), Matrix(3), targets=targets()), Decider()
    images = [f"registry.example/team/app@sha256:{number:064x}" for number in range(9)]
    verdicts = [decider.decide(question(image), snapshot, NOW) for image in images]
    assert len(assessments) == 1
    assert [verdict.image for verdict in verdicts] == images
    assert len({verdict.id for verdict in verdicts}) == 9


def test_images_that_match_other_waivers_are_assessed_on_their_own(assessments):
    waiver = Waiver("w", ("CG801",), ("prod",), "team", "for now", "2999-12-31", "a/*")
    elsewhere = Waiver("v", ("CG801",), ("staging",), "team", "for now", "2999-12-31", "b/*")
    matrix = Matrix(3, waivers=[waiver, elsewhere])
    snapshot, decider = Snapshot(3, facts(), matrix, targets=targets()), Decider()
    for image in ("a/1", "b/1", "c/1", "a/2", None):
        decider.decide(question(image), snapshot, NOW)
    assert len(assessments) == 3  # of a/*, of the other images, and without an image: pins assumed


def test_two_spellings_of_one_part_in_set_are_refused_as_ever(assessments):
    snapshot, decider = Snapshot(3, facts(), Matrix(3), targets=targets()), Decider()
    body = question("a/1", set={"driver": "470.57.02", "nvidia-driver": "580.95.05"})
    assert said(decider.decide, body, snapshot, NOW) == said(decide, body, snapshot, NOW)
    with pytest.raises(BadInput, match="driver is stated twice"):
        decider.decide(body, snapshot, NOW)
    assert not assessments


def test_another_snapshot_is_assessed_anew(assessments):
    decider = Decider()
    for revision in (3, 4):
        snapshot = Snapshot(revision, facts(), Matrix(revision), targets=targets())
        assert decider.decide(question("a/1"), snapshot, NOW).matrix_revision == revision
    assert len(assessments) == 2


@pytest.mark.parametrize("body", [None, [], "x", {}, question(""), question(7), question([])])
def test_a_question_that_is_none_is_refused_as_ever(body):
    snapshot, decider = Snapshot(3, facts(), Matrix(3), targets=targets()), Decider()
    decider.decide(question("a/1"), snapshot, NOW)
    with pytest.raises(BadInput):
        decider.decide(body, snapshot, NOW)
    with pytest.raises(NotFound):
        decider.decide({**question("a/1"), "target": "nowhere"}, snapshot, NOW)
