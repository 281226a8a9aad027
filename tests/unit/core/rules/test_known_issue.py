"""CG701 on issues given as data."""

import pytest

from compatgate.core.facts.frameworks import KnownIssue, KnownIssues
from compatgate.core.facts.nvidia import Source

POOL = "driver=580.65.06,gpu=A100-SXM4-80GB"


@pytest.fixture
def with_issues(facts, ask, monkeypatch):
    """Ask with a known-issues table of one's own in place of the shipped one."""

    def asked(pool, stack, *issues):
        monkeypatch.setitem(facts.__dict__, "known_issues", KnownIssues(issues))
        return ask(pool, stack)

    return asked


def issue(**fields):
    return KnownIssue(
        **{
            "id": "KI-1",
            "title": "wrong results",
            "components": {"cuda": "12.4.*", "cudnn": "9.1.0"},
            "outcome": "fail",
            "message": "convolutions are wrong",
            "source": Source("release notes", "https://example.org"),
            "advice": "use cuDNN 9.1.1",
            "fixes": ({"cudnn": "9.1.1"},),
        }
        | fields
    )


def found(verdict):
    return [f for f in verdict.findings if f.rule == "CG701"]


STACK = "cuda=12.4.1,cudnn=9.1.0.70,arch=sm_80"


def test_a_combination_on_the_list_is_found_with_its_advice_and_source(with_issues):
    (finding,) = found(with_issues(POOL, STACK, issue()))
    assert finding.outcome == "fail"
    assert "KI-1" in finding.message
    assert "convolutions are wrong" in finding.message
    assert finding.need == "use cuDNN 9.1.1"
    assert finding.source.url == "https://example.org"
    assert [fix.set for fix in finding.fixes] == [{"cudnn": "9.1.1"}]


@pytest.mark.parametrize("outcome", ["unknown", "warn"])
def test_an_issue_may_warn_or_leave_it_open(with_issues, outcome):
    verdict = with_issues(POOL, STACK, issue(outcome=outcome))
    assert found(verdict)[0].outcome == verdict.verdict == outcome


@pytest.mark.parametrize(
    "fields",
    [
        {"components": {"cuda": "12.4.*", "cudnn": "9.1.1"}},
        {"components": {"cuda": "12.4.*", "nccl": "2.21.5"}},
        {"components": {"driver": "535.*"}},
        {"capabilities": ((9, 0),)},
    ],
)
def test_another_combination_is_not_found(fields, with_issues):
    verdict = with_issues(POOL, STACK, issue(**fields))
    assert found(verdict) == []
    assert "CG701" in verdict.checked.passed


@pytest.mark.parametrize(
    "fields",
    [{"capabilities": ((8, 0), (9, 0))}, {"components": {"driver": ">=580,<581", "cuda": "12.*"}}],
)
def test_an_issue_may_be_about_the_driver_and_certain_gpus(fields, with_issues):
    assert len(found(with_issues(POOL, STACK, issue(**fields)))) == 1


@pytest.mark.parametrize(
    ("cpus", "gpu", "said"),
    [
        (("aarch64",), "GH200", 1),
        (("aarch64",), "H200", 0),
        (("x86_64",), "H200", 1),
        ((), "H200", 1),
    ],
)
def test_an_issue_may_be_about_the_processor(cpus, gpu, said, with_issues):
    pool = f"driver=580.65.06,gpu={gpu}"
    assert len(found(with_issues(pool, STACK, issue(cpus=cpus)))) == said


@pytest.mark.parametrize(
    ("stack", "fails"),
    [
        ("numba=0.61.2,cuda=12.4", True),
        ("numba=0.61.2,cuda=12.4,python=3.11,cudnn=9.1.0,numpy=2.1.0", True),
        ("numba=0.61.2,torch=2.6.0+cu124", False),
        ("numba=0.61.2,cuda=12.4,xgboost=3.0.0", False),
        ("numba=0.61.2,cuda=12.4,numba-cuda=0.20.0", False),
    ],
)
def test_an_issue_of_a_common_package_denies_where_it_alone_uses_the_gpu(stack, fails, with_issues):
    common = issue(components={"numba": "<0.63", "driver": ">=580"}, alone=True, fixes=())
    verdict = with_issues(POOL, stack, common)
    assert [f.outcome for f in found(verdict)] == (["fail"] if fails else ["not-checked"])


def test_an_issue_may_name_parts_that_avoid_it(with_issues):
    avoided = issue(components={"numba": "<0.63"}, unless=("numba-cuda",), fixes=())
    assert found(with_issues(POOL, "numba=0.61.2,cuda=12.4", avoided))
    assert not found(with_issues(POOL, "numba=0.61.2,numba-cuda=0.20.0,cuda=12.4", avoided))


@pytest.mark.parametrize(
    ("driver", "stack", "said"),
    [
        ("525.105.17", "numba=0.57.0,cuda=12.1", 1),
        ("530.30.02", "numba=0.57.0,cuda=12.1", 0),
        ("580.65.06", "numba=0.57.0,cuda=12.1", 0),
        ("525.105.17", "numba=0.57.0,cuda=12.1,cuda-compat=12.1", 0),
    ],
)
def test_an_issue_may_be_about_drivers_older_than_the_toolkit(driver, stack, said, with_issues):
    older = issue(components={"numba": ">=0.1", "cuda": "12.*"}, behind=True, fixes=())
    pool = f"driver={driver},gpu=A100-SXM4-80GB"
    assert len(found(with_issues(pool, stack, older))) == said


def test_every_issue_that_matches_is_said(with_issues):
    assert len(found(with_issues(POOL, STACK, issue(), issue(id="KI-2", title="slow")))) == 2


def test_an_empty_list_has_nothing_to_say(with_issues):
    assert "CG701" in with_issues(POOL, STACK).checked.not_applicable


def test_the_shipped_issues_are_readable_and_their_fixes_leave_them(facts):
    from compatgate.core.constraints import parse_constraint
    from compatgate.core.versions import parse_version

    ids = [shipped.id for shipped in facts.known_issues.issues]
    assert len(set(ids)) == len(ids)
    for shipped in facts.known_issues.issues:
        assert shipped.components, shipped.id
        assert shipped.source.title
        for name, text in shipped.components.items():
            parse_constraint(name, text)
        for fix in shipped.fixes:
            left = [
                name
                for name, version in fix.items()
                if name not in shipped.components
                or not parse_constraint(name, shipped.components[name]).allows(
                    parse_version(name, version)
                )
            ]
            assert left, f"{shipped.id}: {fix} stays within the issue"


@pytest.mark.parametrize(
    ("os", "named", "expected"),
    [
        ("windows", ("windows",), True),
        ("linux", ("windows",), False),
        ("wsl", ("windows",), False),
        ("wsl", ("linux",), True),
        ("wsl", ("wsl",), True),
        ("linux", ("wsl",), False),
    ],
)
def test_an_issue_may_be_about_an_operating_system(with_issues, os, named, expected):
    assert bool(found(with_issues(f"{POOL},os={os}", STACK, issue(os=named)))) is expected
