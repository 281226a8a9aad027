"""CG801 to CG803: which entry decides, and the way to the nearest blessed one."""

from itertools import combinations, product

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.matrix import Entry, EntryIndex, Matrix
from compatgate.core.request import Policy

POOL = "driver=580.65.06,gpu=A100-SXM4-80GB"
STACK = "cuda=12.4,cudnn=9.1.0,torch=2.4.1,arch=sm_80"
NEEDED = Policy(require_entry=True)
STRICT = Policy(require_entry=True, entries="strict")


def entry(name, status="blessed", *, targets=("t",), gpus=(), revision=1, **fields):
    more = {k: fields.pop(k) for k in ("reason", "replacement") if k in fields}
    constraints = {c: parse_constraint(c, text) for c, text in fields.items()}
    return Entry(name, targets, constraints, status, gpus=gpus, revision=revision, **more)


@pytest.fixture
def judge(ask):
    def judged(*entries, stack=STACK, pool=POOL, policy=NEEDED, target="t"):
        matrix = Matrix(revision=7, entries=EntryIndex(entries))
        return ask(pool, stack, target=target, policy=policy, matrix=matrix)

    return judged


def said(verdict):
    return [(f.rule, f.outcome) for f in verdict.findings if f.rule.startswith("CG80")]


def fixes(verdict, rule):
    return [fix.set for f in verdict.findings if f.rule == rule for fix in f.fixes]


def test_a_blessed_entry_is_enough(judge):
    verdict = judge(entry("torch24", cuda="12.4.*", cudnn="9.1.*", torch="~=2.4.0"))
    assert said(verdict) == []
    assert verdict.verdict == "pass"
    assert verdict.entries == {"pool": "torch24"}


def test_without_any_entry_the_stack_is_not_blessed(judge):
    verdict = judge()
    assert said(verdict) == [("CG801", "fail")]
    assert verdict.entries == {}
    (finding,) = verdict.findings
    assert finding.component == "entry"
    assert finding.need == "a blessed entry"
    assert finding.fixes == ()


def test_a_policy_that_asks_for_no_entry_passes_without(judge):
    assert said(judge(policy=Policy())) == []


def test_an_entry_of_another_target_does_not_bless(judge):
    assert said(judge(entry("e", targets=("u",), cuda="12.4.*"))) == [("CG801", "fail")]


def test_an_entry_for_every_target_blesses(judge):
    assert said(judge(entry("e", targets=("*",), cuda="12.4.*"))) == []


def test_a_candidate_is_not_yet_blessed(judge):
    verdict = judge(entry("new", "candidate", cuda="12.4.*"))
    assert said(verdict) == [("CG801", "fail")]
    assert "candidate" in verdict.findings[0].message
    assert verdict.findings[0].have == "new"


def test_a_candidate_never_hides_what_was_blessed(judge):
    wide = entry("wide", cuda="12.*")
    narrow = entry("narrow", "candidate", cuda="12.4.*", cudnn="9.1.*", revision=9)
    verdict = judge(wide, narrow)
    assert said(verdict) == []
    assert verdict.entries == {"pool": "wide"}


def test_a_candidate_never_hides_what_was_revoked(judge):
    wide = entry("wide", "revoked", cuda="12.*")
    narrow = entry("narrow", "candidate", cuda="12.4.*", cudnn="9.1.*", revision=9)
    assert said(judge(wide, narrow)) == [("CG802", "fail")]


def test_a_revoked_entry_fails_even_where_none_is_asked_for(judge):
    bad = entry("bad", "revoked", cuda="12.4.*", reason="NaN in attention")
    verdict = judge(bad, policy=Policy())
    assert said(verdict) == [("CG802", "fail")]
    assert "NaN in attention" in verdict.findings[0].message


def test_a_revoked_entry_is_said_once_not_as_missing_too(judge):
    assert said(judge(entry("bad", "revoked", cuda="12.4.*"))) == [("CG802", "fail")]


def test_a_deprecated_entry_warns_with_its_replacement(judge):
    old = entry("old", "deprecated", cuda="12.4.*", replacement="torch26-cu126")
    verdict = judge(old)
    assert said(verdict) == [("CG803", "warn")]
    assert verdict.verdict == "warn"
    assert "torch26-cu126" in verdict.findings[0].message
    assert verdict.findings[0].need == "torch26-cu126"


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("blessed", "revoked", [("CG802", "fail")]),
        ("revoked", "blessed", []),
        ("blessed", "deprecated", [("CG803", "warn")]),
        ("deprecated", "blessed", []),
        ("revoked", "deprecated", [("CG803", "warn")]),
    ],
)
def test_the_most_specific_entry_speaks(wide, narrow, expected, judge):
    entries = [
        entry("wide", wide, cuda="12.*"),
        entry("narrow", narrow, cuda="12.4.*", cudnn="9.*"),
    ]
    assert said(judge(*entries)) == expected
    assert said(judge(*reversed(entries))) == expected


def test_between_equals_the_later_decision_speaks(judge):
    blessed = entry("a", cuda="12.4.*", revision=3)
    revoked = entry("b", "revoked", cuda="12.4.*", revision=8)
    assert said(judge(blessed, revoked)) == [("CG802", "fail")]


def test_entries_are_judged_by_pool(judge):
    pools = [f"{POOL},name=a100", "driver=580.65.06,gpu=L4,name=l4"]
    verdict = judge(entry("a100", gpus=("A100-SXM4-80GB",), cuda="12.4.*"), pool=pools)
    assert [(f.rule, f.pools) for f in verdict.findings] == [("CG801", ("l4",))]
    assert verdict.entries == {"a100": "a100"}


# --- the nearest blessed entry ---------------------------------------------------------------


def test_the_rebuilt_image_is_told_to_pin_its_cudnn(judge):
    blessed = entry("cudnn8", cuda="12.4.*", cudnn="8.9.*")
    verdict = judge(blessed, stack="cuda=12.4,cudnn=9.1.0,arch=sm_80")
    (finding,) = verdict.findings
    assert finding.rule == "CG801"
    assert "cudnn8" in finding.message
    assert "differs in cudnn" in finding.message
    assert fixes(verdict, "CG801") == [{"cudnn": "8.9.7"}]


def test_the_nearest_entry_differs_in_the_fewest_components(judge):
    far = entry("far", cuda="12.6.*", cudnn="9.5.*", torch="~=2.6.0")
    near = entry("near", cuda="12.4.*", cudnn="9.1.*", torch="~=2.5.0")
    verdict = judge(far, near)
    assert "near" in verdict.findings[0].message
    assert fixes(verdict, "CG801") == [{"torch": "2.5.1"}]


def test_the_nearest_entry_is_for_the_same_framework(judge):
    other = entry("other", cuda="12.4.*", tensorflow="2.17.*")
    same = entry("same", driver=">=580", cuda="12.6.*", cudnn="9.5.*", torch="~=2.6.0")
    none = entry("none", cuda="12.4.*", cudnn="9.5.*")
    verdict = judge(other, none, same)
    assert "the nearest is same" in verdict.findings[0].message


def test_the_nearest_entry_is_a_blessed_one(judge):
    candidate = entry("candidate", "candidate", cuda="12.4.*", torch="~=2.5.0")
    revoked = entry("revoked", "revoked", cuda="12.4.*", torch="~=2.5.0")
    blessed = entry("blessed", cuda="12.6.*", cudnn="9.*")
    message = judge(candidate, revoked, blessed).findings[0].message
    assert "the nearest is blessed" in message


def test_the_nearest_entry_is_of_this_target(judge):
    other = entry("other", targets=("u",), cuda="12.4.*", torch="~=2.5.0")
    assert "other" not in judge(other).findings[0].message


def test_a_component_that_the_stack_does_not_state_is_part_of_the_difference(judge):
    verdict = judge(entry("e", cuda="12.4.*", nccl="2.20.*", torch="2.4.*"), policy=STRICT)
    said = "the nearest is e, which requires nccl, which the stack does not state;"
    assert said in verdict.findings[0].message
    assert fixes(verdict, "CG801") == [{"nccl": "2.20.5"}]


def test_an_entry_for_the_whole_gpu_blesses_no_slice_and_the_message_says_so(judge):
    whole = entry("whole", gpus=("A100-SXM4-80GB",), cuda="12.4.*")
    assert said(judge(whole)) == []
    (finding,) = judge(whole, pool=f"{POOL}-MIG-1g.10gb").findings
    assert finding.rule == "CG801"
    assert (
        "the nearest is whole, which is for A100-SXM4-80GB, not for A100-SXM4-80GB-MIG-1g.10gb;"
        in finding.message
    )


def test_what_differs_and_what_was_left_unsaid_are_told_apart(judge):
    verdict = judge(entry("e", cuda="12.6.*", nccl="2.20.*"))
    said = "differs in cuda and requires nccl, which the stack does not state"
    assert said in verdict.findings[0].message


def test_a_driver_that_differs_is_moved_into_the_entrys_range(judge):
    verdict = judge(entry("e", driver=">=550.54.14,<551", cuda="12.4.*"))
    (fix,) = fixes(verdict, "CG801")
    assert fix["driver"].startswith("550.")


def test_a_way_to_an_entry_that_breaks_a_fact_is_not_offered(judge):
    verdict = judge(entry("e", cuda="11.8.*", cudnn="9.1.*", torch="~=2.4.0", driver="<450"))
    assert fixes(verdict, "CG801") == []


def test_a_revoked_entry_points_to_the_nearest_blessed_one(judge):
    bad = entry("bad", "revoked", cuda="12.4.*", torch="2.4.1")
    good = entry("good", cuda="12.4.*", cudnn="9.1.*", torch="2.5.1")
    assert fixes(judge(bad, good), "CG802") == [{"torch": "2.5.1"}]


def test_the_replacement_of_an_entry_goes_before_one_that_is_nearer(judge):
    old = entry("old", "deprecated", cuda="12.4.*", torch="2.4.1", replacement="wanted")
    nearer = entry("nearer", cuda="12.4.*", cudnn="9.1.*", torch="2.5.0")
    wanted = entry("wanted", cuda="12.4.*", cudnn="9.1.*", torch="2.5.1", python="3.11.*")
    assert fixes(judge(old, nearer, wanted), "CG803")[0]["torch"] == "2.5.1"


# --- entries: strict --------------------------------------------------------------------------

STRICT = Policy(require_entry=True, entries="strict")
WITH_PACKAGES = f"{STACK},xformers=0.0.35,faiss-gpu-cu12=1.14.1,numpy=2.0.0"
PLAIN = {"cuda": "12.4.*", "torch": "~=2.4.0"}


def test_an_entry_says_nothing_of_packages_that_it_does_not_name(judge):
    assert said(judge(entry("plain", **PLAIN), stack=WITH_PACKAGES)) == []


def test_strictly_an_entry_blesses_only_packages_that_it_names(judge):
    verdict = judge(entry("plain", **PLAIN), stack=WITH_PACKAGES, policy=STRICT)
    assert said(verdict) == [("CG801", "fail")]
    (finding,) = [f for f in verdict.findings if f.rule == "CG801"]
    assert (finding.have, finding.need) == (
        "plain",
        "an entry that names faiss-gpu-cu12, xformers",
    )
    assert 'add faiss-gpu-cu12: "==1.14.1", xformers: "==0.0.35"' in finding.message
    assert "waive CG801" in finding.message


def test_strictly_frameworks_have_to_be_named_as_well(judge):
    verdict = judge(entry("cuda-alone", cuda="12.4.*"), policy=STRICT)
    assert [f.need for f in verdict.findings if f.rule == "CG801"] == ["an entry that names torch"]


def test_strictly_an_entry_that_names_all_blesses(judge):
    named = {**PLAIN, "xformers": "0.0.35", "faiss-gpu-cu12": ">=1.14"}
    verdict = judge(entry("whole", **named), stack=WITH_PACKAGES, policy=STRICT)
    assert said(verdict) == []
    assert verdict.entries == {"pool": "whole"}


def test_strictly_an_entry_that_names_all_goes_before_a_more_specific_one(judge):
    narrow = entry("narrow", **PLAIN, cudnn="==9.1.0", driver="==580.65.06")
    whole = entry("whole", torch="~=2.4.0", xformers="0.0.35")
    stack = f"{STACK},xformers=0.0.35"
    assert judge(narrow, whole, stack=stack).entries == {"pool": "narrow"}
    strictly = judge(narrow, whole, stack=stack, policy=STRICT)
    assert (said(strictly), strictly.entries) == ([], {"pool": "whole"})


@pytest.mark.parametrize(
    ("status", "expected"),
    [("revoked", [("CG802", "fail")]), ("deprecated", [("CG801", "fail"), ("CG803", "warn")])],
)
def test_strictness_hides_no_status(status, expected, judge):
    verdict = judge(entry("plain", status, **PLAIN), stack=WITH_PACKAGES, policy=STRICT)
    assert said(verdict) == expected


def test_strictly_the_nearest_entry_is_one_that_names_the_packages(judge):
    other = entry("other", **PLAIN, cudnn="9.5.*")
    named = entry("named", **PLAIN, xformers="0.0.34", cudnn="9.1.*")
    verdict = judge(other, named, stack=f"{STACK},xformers=0.0.35", policy=STRICT)
    (finding,) = [f for f in verdict.findings if f.rule == "CG801"]
    assert "the nearest is named, which differs in xformers" in finding.message


OPEN = Policy()
REVOKED = {"cuda": "12.1.*", "torch": "==2.4.1+cu121", "cudnn": "9.1.*"}


@pytest.mark.parametrize(
    ("components", "stack", "expected"),
    [
        ({"torch": "==2.4.1+cu121"}, "torch=2.4.1+cu121", "fail"),
        ({"torch": "==2.4.1+cu121"}, "cuda=12.1,torch=2.4.1", "fail"),
        ({"torch": "==2.4.1+cu121"}, "torch=2.4.1", "unknown"),  # the index's wheel, assumed
        ({"torch": "==2.4.1+cu121"}, "cuda=12.4,torch=2.4.1", None),
        ({"torch": "==2.4.1+cu121"}, "torch=2.4.1+cu124", None),
        ({"torch": "==2.4.1+cu121"}, "cuda=12.1,torch=2.4.0", None),
        ({"torch": "==2.4.1+acme.7"}, "cuda=12.4,torch=2.4.1", "unknown"),
        ({"torch": "==2.4.1+acme.7"}, "torch=2.4.1+acme.8", None),
        (REVOKED, "cuda=12.1,torch=2.4.1,cudnn=9.1.0", "fail"),
        (REVOKED, "cuda=12.1,torch=2.4.1", "unknown"),  # its wheel pins cuDNN 9.1.0
        (REVOKED, "cuda=12.1,cudnn=9.1.0", "unknown"),
        (REVOKED, "cuda=12.1,cudnn=9.1.0,tensorflow=2.18.0", None),
        (REVOKED, "cuda=12.1,cudnn=9.1.0,vllm=0.6.0", "unknown"),  # it needs a torch
        (REVOKED, "cuda=12.1,cudnn=9.1.0,torch=2.4.1+cpu", None),
        (REVOKED | {"cudnn": "9.3.*"}, "cuda=12.1,torch=2.4.1", None),
        (REVOKED, "cudnn=8.9.7,torch=2.4.1+cu121", None),
        ({"torch": "~=2.4.0", "flash-attn": "==2.6.3"}, "torch=2.4.1+cu121", "unknown"),
        ({"flash-attn": "==2.6.3"}, "torch=2.4.1+cu121", None),
        ({"driver": "580.*", "flash-attn": "==2.6.3"}, "torch=2.4.1+cu121", None),
    ],
)
def test_a_revocation_denies_what_it_names_and_leaves_open_what_may_be_it(
    components, stack, expected, judge
):
    verdict = judge(entry("bad", "revoked", **components), stack=stack, policy=OPEN)
    assert dict(said(verdict)).get("CG802") == expected


@pytest.mark.parametrize("clause", ["==2.4.1+cu121", "==2.4.1+CU-121", "==2.4.1+cuda12.1"])
@pytest.mark.parametrize(
    "label", ["cu121", "CU121", "cu-121", "cu.121", "cu_121", "cuda121", "cuda-12.1", "Cuda_121"]
)
def test_another_spelling_of_a_build_label_gets_round_no_revocation(label, clause, judge):
    verdict = judge(
        entry("bad", "revoked", torch=clause), stack=f"torch=2.4.1+{label}", policy=OPEN
    )
    assert ("CG802", "fail") in said(verdict)
    assert verdict.stack["cuda"].startswith("12.1")


def test_a_possible_revocation_names_the_entry_and_the_parts_to_state(judge):
    verdict = judge(
        entry("bad", "revoked", reason="NaN in attention", **REVOKED),
        stack="cuda=12.1,torch=2.4.1",
        policy=OPEN,
    )
    (finding,) = (f for f in verdict.findings if f.rule == "CG802")
    assert "may be entry bad, which is revoked (NaN in attention)" in finding.message
    assert "cudnn is not stated; torch 2.4.1 pins 9.1.0" in finding.message
    assert finding.need == "state cudnn, or name the image to be read"


def test_what_an_image_does_not_hold_is_absent(judge):
    bad = entry("bad", "revoked", **{"torch": "~=2.4.0", "flash-attn": "==2.6.3"})
    read = "torch=2.4.1+cu121,content=sha256:" + "0" * 64
    assert said(judge(bad, stack=read, policy=OPEN)) == []


def test_a_more_specific_blessing_decides_before_a_possible_revocation(judge):
    blessed = entry("good", cuda="12.1.*", torch="==2.4.1", driver="580.*")
    bad = entry("bad", "revoked", torch="==2.4.1+cu121", cudnn="9.1.*")
    assert said(judge(blessed, bad, stack="cuda=12.1,torch=2.4.1")) == []
    assert said(judge(bad, stack="cuda=12.1,torch=2.4.1", policy=OPEN)) == [("CG802", "unknown")]


PARTS = {"cuda": "12.1", "cudnn": "9.1.0", "nccl": "2.20.5", "torch": "2.4.1+cu121"}
BOUNDS = {"cuda": "12.1.*", "cudnn": "9.1.*", "nccl": "==2.20.5", "torch": "==2.4.1+cu121"}


def test_no_part_and_no_label_left_out_gets_round_a_revocation(judge):
    names = [set(some) for n in range(1, 5) for some in combinations(PARTS, n)]
    for named, stated in product(names, names):
        if not named & stated:
            continue
        bad = entry("bad", "revoked", **{name: BOUNDS[name] for name in named})
        for label in ("+cu121", ""):
            parts = {
                name: PARTS[name].removesuffix("+cu121") + label * (name == "torch")
                for name in stated
            }
            verdict = judge(bad, stack=",".join(f"{n}={v}" for n, v in parts.items()), policy=OPEN)
            outcome = dict(said(verdict)).get("CG802")
            assert outcome in ("fail", "unknown"), (named, parts)
            assert outcome == "fail" or not (named <= stated and label), (named, parts)
