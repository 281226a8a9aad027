"""Every capability's number formats, and the memory of every product, decide as published."""

from __future__ import annotations

from collections.abc import Callable

from compatgate.core.facts import Facts
from compatgate.core.needs import PRECISIONS
from compatgate.core.rule import Finding, Verdict
from compatgate.core.versions import format_parts

DRIVER = "driver=620.70.06"
STACK = "cuda=12.8,needs="
Ask = Callable[..., Verdict]

# Boundaries that NVIDIA publishes: the first capability with a format, the last without it.
FIRST = {
    "bf16": ("8.0", "7.5"),
    "tf32": ("8.0", "7.5"),
    "fp8": ("8.9", "8.7"),
    "fp4": ("10.0", "9.0"),
    "fp6": ("10.0", "9.0"),
    "nvfp4": ("10.0", "9.0"),
    "mxfp8": ("10.0", "9.0"),
    "int4": ("7.5", "7.2"),
    "int8": ("6.1", "6.0"),
    "fp16": ("5.3", "5.2"),
    "fp64-tensor": ("8.0", "7.5"),
}
# The formats do not only grow.
GONE = {"int4": ["9.0", "10.0", "12.0"], "fp64-tensor": ["8.6", "8.9", "10.3", "11.0", "12.0"]}


def outcome(verdict: Verdict, rule: str) -> str | None:
    found: Finding | None = next((one for one in verdict.findings if one.rule == rule), None)
    return found.outcome if found else None


def test_each_capability_computes_in_its_formats_and_in_no_other(facts: Facts, ask: Ask):
    rows = facts.precision.by_capability
    known = {gpu.capability for gpu in facts.gpus.gpus.values()}
    # Fermi and before, as exceptions.yaml says: no source of their formats was read
    unread = {"1.0", "1.1", "1.2", "1.3", "2.0", "2.1"}
    assert {format_parts(pair) for pair in known} - rows.keys() == unread
    for text, row in rows.items():
        missing = "fail" if row.source.confidence != "derived" else "unknown"
        for name in PRECISIONS:
            said = outcome(ask(f"{DRIVER},gpu={text}", STACK + name, with_fixes=False), "CG210")
            if name in row.computes:
                assert said is None, (text, name)
            else:
                assert said == (missing if row.complete else "unknown"), (text, name)


def test_the_published_boundaries_hold(facts: Facts, ask: Ask):
    for name, (first, before) in FIRST.items():
        having = facts.precision.computing(name)
        assert having[0] == first, name
        refused = ask(f"{DRIVER},gpu={before}", STACK + name, with_fixes=False)
        assert outcome(refused, "CG210") == "fail", name
    for name, without in GONE.items():
        assert not set(without) & set(facts.precision.computing(name)), name


def test_a_capability_without_a_row_is_unknown(ask: Ask):
    assert outcome(ask(f"{DRIVER},gpu=13.0", STACK + "fp16", with_fixes=False), "CG210") == (
        "unknown"
    )


def test_each_product_has_its_size_and_not_one_byte_more(facts: Facts, ask: Ask):
    """80 GB are there, more than 80 GiB are not, and what lies between is not known."""
    judged = 0
    for name, gpu in facts.gpus.gpus.items():
        pool = f"{DRIVER},gpu={name}"
        if gpu.memory is None:
            assert outcome(ask(pool, STACK + "1GB", with_fixes=False), "CG211") == "unknown", name
            continue
        judged += 1
        least, most = int(gpu.memory.least), int(gpu.memory.most)
        denies = "unknown" if gpu.memory.source.confidence == "derived" else "fail"
        answers = {
            f"{least}GB": None,
            f"{most}GiB": "unknown",
            f"{most * 1024 + 1}MiB": denies,
        }
        for need, expected in answers.items():
            said = outcome(ask(pool, STACK + need, with_fixes=False), "CG211")
            assert said == expected, (name, need)
    assert judged > 150


SLICES = [
    # product, profile, memory that reports of real machines give (nvidia-smi mig -lgip)
    ("H200-SXM5", "1g.18gb", "16GiB"),
    ("A100-SXM4-40GB", "1g.5gb", "4.75GiB"),
    ("H100-SXM5-80GB", "1g.10gb", "9.75GiB"),
    ("H100-SXM5-80GB", "3g.40gb", "39.5GiB"),
]


def test_a_slice_never_fails_what_it_was_seen_to_have(ask: Ask):
    for product, profile, seen in SLICES:
        pool = f"{DRIVER},gpu={product}-MIG-{profile}"
        said = outcome(ask(pool, STACK + seen, with_fixes=False), "CG211")
        assert said in (None, "unknown"), (product, profile)
        whole = profile.partition(".")[2].removesuffix("gb")
        assert outcome(ask(pool, f"{STACK}{int(whole) + 1}GiB", with_fixes=False), "CG211") == (
            "fail"
        )
