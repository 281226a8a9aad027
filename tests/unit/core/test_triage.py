"""Causes are named from the words of a text alone, and compared with what the rules say."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.catalog.build import Misfit, adapt
from compatgate.core.facts.errors import ErrorTable
from compatgate.core.triage import MAX_TEXT, FoundCause, compare_verdict, find_causes

REST = {"source": "https://example.com/thread", "confidence": "derived", "sample": "x"}


def cause(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "means": "m", "next": "n", "fixes": ["an advice"], **more}


def signature(name: str, to: str, *text: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "cause": to, "certainty": "certain", "text": list(text), **REST, **more}


def make(
    *signatures: dict[str, Any],
    causes: tuple[dict[str, Any], ...] = (),
    native: tuple[str, ...] = (),
    frames: tuple[dict[str, Any], ...] = (),
) -> ErrorTable:
    known = {one["id"] for one in causes}
    named = {one["cause"] for one in signatures} - known
    return adapt(
        "error_signatures",
        {
            "foreign": ["hip error"],
            "native": list(native),
            "frames": list(frames),
            "causes": [*causes, *map(cause, sorted(named))],
            "signatures": list(signatures),
        },
    )


def names(text: str, *signatures: dict[str, Any], **more: Any) -> list[str]:
    return [one.cause.id for one in find_causes(text, make(*signatures, **more))]


WORDS = signature("w", "gone", "the gpu ... is gone", "the 'gpu' ... is gone")


@pytest.mark.parametrize(
    "text",
    [
        "The GPU 0000:3b:00.0 is gone",
        "\x1b[31mthe gpu\x1b[0m 1 is gone",
        "\\u001b[31mthe gpu^[[0m 1 is gone",
        "the\nGPU with a line\n   break is\tgone",
        "│ the GPU 1 │\n│ is gone   │",
        "> the GPU 1\n> > is gone",
        "the &quot;GPU&quot;&nbsp;1 is gone",
        "NVRM: The GPU 3\n[  12.345678] NVRM: is gone",
    ],
)
def test_words_are_found_however_they_are_printed(text: str) -> None:
    assert names(text, WORDS) == ["gone"]


@pytest.mark.parametrize("text", ["", "is gone: the gpu", "the gpu " + "x" * 300 + " is gone"])
def test_words_in_another_order_or_too_far_apart_are_not_found(text: str) -> None:
    assert names(text, WORDS) == []


@pytest.mark.parametrize(
    "text",
    [
        "the gpu " * 500 + "1 is gone",
        "is gone " * 500 + "the gpu 1 is gone",
        "the gpu " + "x" * 300 + " is gone, the gpu 1 is gone",
        "the gpu " + "x" * 300 + " the gpu 1 is gone",
        "the gpu " + "x" * 232 + " is gone",
    ],
)
def test_a_beginning_out_of_reach_of_the_end_hides_no_later_one(text: str) -> None:
    assert names(text, WORDS) == ["gone"]


def test_every_quotation_mark_is_the_same() -> None:
    quoted = signature("q", "option", "value 'sm_")
    for text in (
        "Value 'sm_1'",
        'Value "sm_1"',
        "Value `sm_1`",
        "Value ‘sm_1’",
        'Value \\"sm_1\\"',
    ):
        assert names(text, quoted) == ["option"]


def test_a_number_is_whole() -> None:
    xid = signature("x", "lost", "xid (<>): 79")
    assert names("Xid (PCI:0000:06:00): 79, GPU", xid) == ["lost"]
    assert names("Xid (PCI:0000:06:00): 790, GPU", xid) == []
    assert names("Xid (two words): 79, GPU", xid) == []
    mangled = signature("m", "abi", "undefined symbol: _zn3c10")
    assert names("undefined symbol: _ZN3c105ErrorC2E", mangled) == ["abi"]


def test_a_word_nearby_may_be_asked_for() -> None:
    memory = signature("m", "full", "out of memory", near=["cuda"])
    assert names("CUDA: out of memory", memory) == ["full"]
    assert names("kernel: Out of memory" + " x" * 200 + " cuda", memory) == []


def test_a_text_that_is_nothing_else_needs_no_word_nearby() -> None:
    likely = signature("d", "none", "no devices", near=["nvidia"], certainty="likely")
    assert names("No devices.\n", likely) == ["none"]
    assert names("scanner: no devices", likely) == []
    sure = signature("d", "none", "no devices", near=["nvidia"])
    assert names("No devices", sure) == []


def test_of_the_same_words_the_longest_signature_wins() -> None:
    general = signature("g", "library", "cannot open shared object")
    special = signature("s", "cudnn", "libcudnn<>: cannot open shared object")
    assert names("libcudnn.so.9: cannot open shared object", general, special) == ["cudnn"]
    assert names("libfoo.so.9: cannot open shared object", general, special) == ["library"]


def test_a_symptom_counts_only_alone() -> None:
    symptom = signature("s", "nccl", "unhandled cuda error", symptom=True)
    real = signature("r", "driver", "driver is too old")
    assert names("unhandled cuda error", symptom, real) == ["nccl"]
    assert names("unhandled cuda error: driver is too old", symptom, real) == ["driver"]


def test_certain_causes_come_first_then_the_first_in_the_text() -> None:
    likely = signature("l", "a", "alpha", certainty="likely")
    sure = (signature("s", "b", "beta"), signature("t", "c", "gamma"))
    assert names("alpha gamma beta", likely, *sure) == ["c", "b", "a"]


def test_a_cause_is_certain_only_where_the_text_names_no_other() -> None:
    weak = signature("l", "c", "gamma", certainty="likely")
    table = make(signature("s", "a", "alpha"), signature("t", "b", "beta"), weak)
    assert [one.confidence for one in find_causes("alpha", table)] == ["certain"]
    assert [one.confidence for one in find_causes("alpha beta", table)] == ["likely", "likely"]
    assert [one.confidence for one in find_causes("gamma alpha", table)] == ["likely", "likely"]


def test_what_another_cause_explains_is_left_out() -> None:
    table = make(
        signature("s", "unsigned", "key was rejected"),
        signature("t", "not-loaded", "driver is not loaded"),
        causes=(cause("unsigned", explains=["not-loaded"]),),
    )
    (one,) = find_causes("driver is not loaded. key was rejected", table)
    assert (one.cause.id, one.confidence) == ("unsigned", "certain")


def test_a_tilde_is_marks_alone() -> None:
    coded = signature("c", "old", "gpu error~35")
    for text in ("GPU error 35", "GPU error: 35", "GPU error (35)", "GPU error=35"):
        assert names(text, coded) == ["old"]
    for text in ("GPU error 350", "GPU error at 35", "GPU error 1 35"):
        assert names(text, coded) == []


def test_what_words_are_of_stands_in_the_frame() -> None:
    frame = {"id": "status", "text": ["{of} error~{}"], **REST}
    coded = signature("c", "start", "1", frame="status", of=["blas", "dnn"])
    assert names("DNN error 1", coded, frames=(frame,)) == ["start"]
    for wrong in (signature("c", "start", "1", frame="status"), signature("c", "a", "b", of=["x"])):
        with pytest.raises(Misfit, match="is for frames whose texts"):
            make(wrong, frames=(frame,))


@pytest.mark.parametrize("filler", ["the gpu is gone for good, it said; ", "line 7 of a log\n"])
def test_words_are_found_wherever_a_long_text_has_them(filler: str) -> None:
    rare = [signature(f"r{n}", f"rare-{n}", f"lost unit{n} x<> of") for n in range(150)]
    text = filler * 400 + "Lost unit7 xyz of all. " + filler * 400 + "Lost unit140 x of"
    assert names(text, *rare) == ["rare-7", "rare-140"]


FRAME = {"id": "code", "text": ["gpu error {}", "init .. {}"], **REST}


def test_words_stand_in_each_text_of_their_frame() -> None:
    coded = signature("c", "old", "35", "too old", frame="code")
    for text in ("GPU error 35", "init() returned 35", "init: driver is too old"):
        assert names(text, coded, frames=(FRAME,)) == ["old"]
    assert names("GPU error 350, 35 of 40", coded, frames=(FRAME,)) == []


def test_a_frame_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Misfit, match="frame 'code' does not exist"):
        make(signature("c", "old", "35", frame="code"))


def test_words_of_another_vendor_outweigh() -> None:
    cuda = signature("c", "code", "invalid device function")
    hip = signature("h", "other", "hip error: invalid device function")
    other = cause("other", foreign=True)
    assert names("HIP error: invalid device function", cuda, hip, causes=(other,)) == ["other"]
    assert names("hip error. Later: invalid device function", cuda) == []
    assert names("CUDA error: invalid device function", cuda) == ["code"]


def test_what_is_printed_on_nvidia_gpus_is_not_of_another_vendor() -> None:
    cuda = signature("c", "code", "invalid device function")
    text = "no HIP error here. invalid device function"
    assert names(text, cuda) == []
    assert names(text, cuda, native=("no hip error here",)) == ["code"]


def test_a_text_is_read_up_to_a_limit() -> None:
    assert names("x" * MAX_TEXT + " the gpu 1 is gone", WORDS) == []


@pytest.mark.parametrize("text", ["a", "the gpu ... ", "<>"])
def test_a_piece_that_is_everywhere_is_refused(text: str) -> None:
    with pytest.raises(Misfit, match="a piece of fewer than 2 characters"):
        make(signature("w", "gone", text))


def test_a_signature_of_no_cause_is_refused() -> None:
    with pytest.raises(Misfit, match="cause 'gone' does not exist"):
        adapt("error_signatures", {"foreign": [], "causes": [], "signatures": [WORDS]})


# --- with a stack -------------------------------------------------------------------------------

FIX = {"set": {"driver": ">=525"}, "message": "use a newer driver"}


def found(name: str, *rules: str) -> FoundCause:
    table = make(signature("w", name, "word"), causes=(cause(name, rules=list(rules)),))
    return find_causes("word", table)[0]


def finding(rule: str, outcome: str, *fixes: dict[str, Any]) -> dict[str, Any]:
    return {
        "rule": rule,
        "outcome": outcome,
        "pools": ["a"],
        "message": f"{rule} says",
        "fixes": list(fixes),
    }


def verdict(*findings: dict[str, Any], passed: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"findings": list(findings), "checked": {"passed": list(passed)}}


def test_a_rule_that_fails_brings_its_fixes() -> None:
    known = verdict(finding("CG202", "fail", FIX), finding("CG101", "warn"))
    (one,) = compare_verdict([found("a", "CG101", "CG202")], known)
    body = one.to_json()
    assert (body["rule"], body["here"]["outcome"]) == ("CG202", "fails")
    assert body["fixes"] == [{**FIX, "verified": True}, {"message": "an advice"}]
    assert body["here"]["findings"][0]["message"] == "CG202 says"


@pytest.mark.parametrize(
    ("known", "here"),
    [
        (verdict(finding("CG101", "unknown")), "unknown"),
        (verdict(finding("CG101", "warn")), "warns"),
        (verdict(passed=("CG101",)), "holds"),
        (verdict(finding("CG401", "fail")), "not-applicable"),
    ],
)
def test_what_a_rule_says_of_the_stack_is_told(known: dict[str, Any], here: str) -> None:
    (one,) = compare_verdict([found("a", "CG101")], known)
    assert one.to_json()["here"]["outcome"] == here
    assert one.rule == "CG101"


def test_a_cause_that_no_rule_finds_stays_as_it_is() -> None:
    (one,) = compare_verdict([found("a")], verdict(finding("CG101", "fail")))
    body = one.to_json()
    assert body["rule"] is None
    assert "here" not in body


def test_causes_that_fail_here_come_first() -> None:
    causes = [found("a", "CG101"), found("b", "CG202")]
    assert [one.cause.id for one in compare_verdict(causes, verdict(finding("CG202", "fail")))] == [
        "b",
        "a",
    ]


def test_the_same_fix_is_told_once() -> None:
    known = verdict(finding("CG101", "fail", FIX), finding("CG202", "fail", FIX))
    (one,) = compare_verdict([found("a", "CG101", "CG202")], known)
    assert len(one.to_json()["fixes"]) == 2
