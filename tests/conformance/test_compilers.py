"""Every boundary of the host compilers holds, and Spack's conflicts say the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tables import read_table

from compatgate.core.constraints import nearest_allowed
from compatgate.core.facts import Facts
from compatgate.core.facts.compilers import HostCompiler
from compatgate.core.rule import Finding, Verdict
from compatgate.core.versions import format_parts, parse_version

SPACK = read_table(Path(__file__).parent / "spack_cuda.yaml")
POOL = "driver=620.70.06,gpu=A100-SXM4-80GB"
Ask = Callable[..., Verdict]


def found(verdict: Verdict, rule: str) -> Finding | None:
    return next((one for one in verdict.findings if one.rule == rule), None)


def cuda_of(row: HostCompiler, facts: Facts) -> str:
    """A release that the row is about: its own, or the last of its series."""
    if row.cuda.count(".") == 2:
        return row.cuda
    version = parse_version("cuda", row.cuda)
    return facts.toolkits_of[version.major_minor][-1].version.text


def newest_of(row: HostCompiler) -> str | None:
    """The last version before the range of a row ends."""
    return nearest_allowed(
        row.accepts, parse_version(row.compiler, "19.99" if row.compiler == "msvc" else "999")
    )


def test_the_newest_accepted_compiler_passes_and_the_next_is_refused(facts: Facts, ask: Ask):
    rows = facts.compilers.hosts
    assert len(rows) >= 30
    for row in rows:
        cuda, newest = cuda_of(row, facts), newest_of(row)
        assert newest, row
        *start, last = map(int, newest.split("."))
        following = format_parts((*start, last + 1))
        taken = ask(POOL, f"cuda={cuda},{row.compiler}={newest}", with_fixes=False)
        worst = found(taken, "CG204")
        assert worst is None or worst.outcome == "warn", (row.cuda, row.compiler, worst)
        refused = found(
            ask(POOL, f"cuda={cuda},{row.compiler}={following}", with_fixes=False), "CG204"
        )
        expected = "unknown" if row.source.confidence == "derived" else "fail"
        assert refused, (row.cuda, row.compiler, following)
        assert refused.outcome == expected, (row.cuda, row.compiler, following)
        assert refused.source == row.source


def test_a_compiler_below_the_listed_range_is_a_warning(facts: Facts, ask: Ask):
    for row in facts.compilers.listed:
        least = next((c.version for c in row.range.clauses if c.operator == ">="), None)
        series = [pair for pair in facts.compilers.series if row.cuda.allows(version_of(pair))]
        if least is None or row.compiler == "msvc":
            continue
        for pair in series:
            stack = f"cuda={format_parts(pair)},{row.compiler}={least.major - 1}"
            warned = found(ask(POOL, stack, with_fixes=False), "CG204")
            assert warned, stack
            assert warned.outcome == "warn", stack


def version_of(pair: tuple[int, int]):
    return parse_version("cuda", format_parts(pair))


def test_every_fix_of_a_refused_compiler_mends_it(facts: Facts, ask: Ask):
    for row in facts.compilers.hosts:
        newest = newest_of(row)
        if row.source.confidence != "metadata" or not newest:
            continue
        *start, last = map(int, newest.split("."))
        stack = f"cuda={row.cuda},{row.compiler}={format_parts((*start, last + 1))}"
        refused = found(ask(POOL, stack), "CG204")
        assert refused, stack
        assert refused.fixes, stack
        assert refused.fixes[0].set == {row.compiler: newest}
        for fix in refused.fixes:
            mended = found(ask(POOL, stack, changes=fix.set, with_fixes=False), "CG204")
            assert mended is None or mended.outcome == "warn", (stack, fix)


CONFLICTS = [
    # stack, rule, outcome (None: nothing to report), words, a fix
    ("cuda=12.9,glibc=2.41", "CG205", "fail", "cospi", {"cuda": "13.0"}),
    ("cuda=12.9,glibc=2.40", "CG205", None, "", None),
    ("cuda=13.0,glibc=2.41", "CG205", None, "", None),
    ("cuda=13.1,glibc=2.42", "CG205", "fail", "rsqrt", {"cuda": "13.2"}),
    ("cuda=13.2,glibc=2.42", "CG205", None, "", None),
    ("cuda=12.8,glibc=2.26", "CG205", "fail", "log2f", {"glibc": "2.27"}),
    ("cuda=12.6,glibc=2.26", "CG205", None, "", None),
    ("cuda=12.4.0,gcc=13.2", "CG205", "fail", "_FloatN", {"cuda": "12.4.1"}),
    ("cuda=12.4.1,gcc=13.2", "CG205", None, "", None),
    ("cuda=12.4,gcc=13.2", "CG205", None, "", None),
    ("cuda=12.3,msvc=19.41", "CG205", "fail", "STL1002", {"msvc": "19.40"}),
    ("cuda=12.4,msvc=19.41", "CG205", None, "", None),
    ("cuda=11.5,gcc=11.2", "CG205", "warn", "Spack", None),
    ("cuda=11.5,gcc=11.1", "CG205", None, "", None),
    ("cuda=13.4,gcc=16,cxx=23", "CG205", "warn", "std::string", None),
    ("cuda=13.4,gcc=16,cxx=20", "CG205", None, "", None),
    ("cuda=12.0,gcc=9,cxx=20", "CG205", "unknown", "GCC 10", {"gcc": "10"}),
    ("cuda=12.0,clang=10,cxx=20", "CG205", "unknown", "Clang 11", {"clang": "11"}),
    ("cuda=13.0,cxx=14", "CG205", "warn", "Thrust", None),
    ("cuda=13.2,msvc=19.50", "CG205", "warn", "2026", None),
    ("cuda=11.8,cxx=17", "CG206", None, "", None),
    ("cuda=11.8,cxx=20", "CG206", "fail", "C++17", {"cxx": "17"}),
    ("cuda=12.9,cxx=20", "CG206", None, "", None),
    ("cuda=12.9,cxx=c++23", "CG206", "fail", "C++20", {"cuda": "13.0"}),
    ("cuda=13.5,cxx=23", "CG206", None, "", None),
    ("cuda=13.5,cxx=26", "CG206", "fail", "C++23", {"cxx": "23"}),
    ("cuda=10.2,cxx=17", "CG206", "unknown", "not known", None),
    ("cuda=10.2,gcc=8", "CG204", "unknown", "not known", None),
    ("cuda=14.0,gcc=17", "CG204", "unknown", "newest known", None),
]


def test_parts_that_contradict_each_other_are_reported_within_their_bounds(ask: Ask):
    for stack, rule, outcome, words, fix in CONFLICTS:
        finding = found(ask(POOL, stack), rule)
        assert (finding.outcome if finding else None) == outcome, stack
        if finding:
            assert words in finding.message, stack
            assert fix is None or fix in [one.set for one in finding.fixes], (stack, finding.fixes)


def test_gcc_of_one_processor_concerns_that_processor_alone(ask: Ask):
    stack = "cuda=12.4,gcc=13.2.0"
    assert found(ask(f"{POOL},cpu=aarch64", stack), "CG205")
    assert not found(ask(POOL, stack), "CG205")


def spack_refuses(cuda: tuple[int, ...], compiler: str, major: int) -> bool:
    return any(
        row["compiler"] == compiler
        and within((major,), row["versions"])
        and within(cuda, row["cuda"])
        for row in SPACK["conflicts"]
    )


def within(have: tuple[int, ...], range_: str) -> bool:
    """Spack's range, whose end includes everything that begins with it."""
    low, _, high = range_.partition(":")
    end = tuple(map(int, high.split("."))) if high else None
    begin = tuple(map(int, low.split("."))) if low else (0,)
    return begin <= have and (end is None or have[: len(end)] <= end)


def questions(facts: Facts) -> Iterator[tuple[str, tuple[int, ...]]]:
    for toolkit in facts.cuda_driver.toolkits:
        if toolkit.version.major >= 11 and toolkit.version.major_minor <= (13, 5):
            yield toolkit.version.text, toolkit.version.at(3)


def test_spacks_conflicts_are_ours(facts: Facts):
    met, compared = set(), 0
    for text, cuda in questions(facts):
        for compiler, majors in (("gcc", range(4, 17)), ("clang", range(4, 23))):
            for major in majors:
                key = (text, compiler, major)
                ours = refuses(facts, text, compiler, major)
                theirs = spack_refuses(cuda, compiler, major)
                compared += 1
                other = next((d for d in SPACK["differences"] if differs(d, cuda, key)), None)
                if other:
                    met.add(other["why"])
                    assert ours == other["refused"] != theirs, key
                else:
                    assert ours == theirs, key
    assert met == {row["why"] for row in SPACK["differences"]}
    assert compared > 1000


def differs(row: dict[str, Any], cuda: tuple[int, ...], key: tuple[str, str, int]) -> bool:
    return (row["compiler"], row["major"]) == key[1:] and within(cuda, row["cuda"])


def refuses(facts: Facts, cuda: str, compiler: str, major: int) -> bool:
    """Whether the header refuses a compiler, or the guide begins above it."""
    table, have = facts.compilers, parse_version(compiler, str(major))
    version = parse_version("cuda", cuda)
    row = table.host(version, compiler)
    assert row, (cuda, compiler)
    least = [
        clause.version
        for one in table.listed
        if one.compiler == compiler and one.cuda.allows(version)
        for clause in one.range.clauses
        if clause.operator == ">="
    ]
    return not row.accepts.allows(have) or (bool(least) and have < min(least))
