"""``compatgate canary judge`` as users run it: a process, its output, its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STEADY = [1 + 0.01 * ((7 * i) % 5 - 2) for i in range(30)]


def judge(
    *arguments: object, stdin: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
    return subprocess.run(
        [sys.executable, "-m", "compatgate", "canary", "judge", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={**clean, "COLUMNS": "100", **environment},
    )


@pytest.fixture
def plain(tmp_path):
    def write(name: str, values) -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{value}\n" for value in values))
        return path

    return write


@pytest.fixture
def lines(tmp_path):
    def write(name: str, metrics, *more: object) -> Path:
        body = [
            {"type": "metric", "name": metric, "value": value, "unit": unit}
            for metric, (unit, values) in metrics.items()
            for value in values
        ]
        path = tmp_path / name
        path.write_text("\n".join(["a line of log", *map(json.dumps, [*body, *more])]))
        return path

    return write


def test_no_change_exits_with_0(plain):
    result = judge(plain("b", STEADY), plain("c", reversed(STEADY)), "--better", "lower")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("NO REGRESSION\n")
    assert "within the tolerance of 5 %" in result.stdout


def test_a_regression_exits_with_1_and_says_how_much(plain):
    result = judge(plain("b", STEADY), plain("c", [1.12 * v for v in STEADY]), "--better", "lower")
    assert result.returncode == 1
    assert "REGRESSION" in result.stdout
    assert "12.0 % higher than the baseline" in result.stdout


def test_too_little_exits_with_3_and_says_what_is_missing(plain):
    result = judge(plain("b", STEADY), plain("c", STEADY[:4]))
    assert result.returncode == 3
    assert "missing  6 more of the candidate" in result.stdout


def test_an_improvement_exits_with_0(plain):
    result = judge(plain("b", STEADY), plain("c", [0.8 * v for v in STEADY]), "--better", "lower")
    assert result.returncode == 0
    assert "improvement" in result.stdout


def test_plain_numbers_without_a_direction_may_not_change_either_way(plain):
    result = judge(plain("b", STEADY), plain("c", [0.8 * v for v in STEADY]))
    assert result.returncode == 1


def test_the_unit_says_which_direction_is_better(lines):
    base = lines("b", {"step_time": ("ms", STEADY), "bandwidth": ("GB/s", STEADY)})
    better = lines(
        "c",
        {
            "step_time": ("s", [0.0008 * v for v in STEADY]),
            "bandwidth": ("MB/s", [1200 * v for v in STEADY]),
        },
    )
    answer = json.loads(judge(base, better, "--format", "json").stdout)
    assert [m["outcome"] for m in answer["metrics"]] == ["improvement", "improvement"]
    assert judge(better, base).returncode == 1


def test_one_metric_of_several_is_judged_when_it_is_named(lines):
    base = lines("b", {"a": ("ms", STEADY), "b": ("ms", STEADY)})
    worse = lines("c", {"a": ("ms", STEADY), "b": ("ms", [2 * v for v in STEADY])})
    assert judge(base, worse).returncode == 1
    assert judge(base, worse, "--metric", "a").returncode == 0
    assert judge(base, worse, "--metric", "b").returncode == 1
    assert judge(base, worse, "--metric", "nonsense").returncode == 3


def test_a_failed_check_is_a_regression(lines):
    base = lines("b", {"a": ("ms", STEADY)})
    wrong = lines("c", {"a": ("ms", STEADY)}, {"type": "check", "name": "finite", "ok": False})
    result = judge(base, wrong)
    assert result.returncode == 1
    assert "check finite failed" in result.stdout


@pytest.mark.parametrize("content", ["", "\n\n", '{"type": "env"}\n'])
def test_a_file_without_data_is_inconclusive(lines, tmp_path, content):
    empty = tmp_path / "empty"
    empty.write_text(content)
    base = lines("b", {"a": ("ms", STEADY)})
    for sides in ((base, empty), (empty, base), (empty, empty)):
        result = judge(*sides)
        assert result.returncode == 3, sides
        assert "missing" in result.stdout


def test_standard_input_can_be_either_side(plain):
    base = plain("b", STEADY)
    numbers = base.read_text()
    assert judge(base, "-", stdin=numbers).returncode == 0
    assert judge("-", base, stdin=numbers).returncode == 0
    assert judge("-", "-", stdin=numbers).returncode == 2


def test_plain_numbers_are_of_the_other_files_metric(lines, plain):
    base = lines("b", {"step_time": ("ms", STEADY)})
    assert judge(base, plain("c", STEADY)).returncode == 3
    assert judge(base, plain("c", STEADY), "--unit", "ms").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("missing-file",), "cannot read 'missing-file'"),
        (("broken",), "broken:2"),
        (("b", "--tolerance", "5"), "--tolerance: 5 is not a tolerance"),
        (("b", "--tolerance", "nan"), "--tolerance"),
        (("b", "--repetitions", "1"), "--repetitions"),
        (("b", "--better", "up"), "--better"),
        (("b", "--tolerence", "1"), "did you mean '--tolerance'?"),
        ((), "CANDIDATE"),
        ((".",), "cannot read '.'"),
    ],
)
def test_bad_input_exits_with_2_and_one_line(plain, tmp_path, monkeypatch, arguments, says):
    plain("b", STEADY)
    plain("broken", [1, "two", 3])
    monkeypatch.chdir(tmp_path)
    result = judge("b", *arguments)
    assert result.returncode == 2, result.stdout
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_directions_that_contradict_each_other_are_bad_input(tmp_path):
    paths = []
    for better in ("lower", "higher"):
        path = tmp_path / better
        line = {"type": "metric", "name": "a", "values": STEADY, "better": better}
        path.write_text(json.dumps(line))
        paths.append(path)
    assert judge(*paths).returncode == 2
    assert judge(*paths, "--better", "lower").returncode == 0


def test_the_same_input_gives_the_same_bytes_under_any_hash_seed(lines):
    base = lines("b", dict.fromkeys("abc", ("ms", STEADY)))
    worse = lines("c", {m: ("ms", [1.07 * v for v in STEADY]) for m in "abc"})
    answers = {
        judge(base, worse, "--format", "json", PYTHONHASHSEED=seed).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1


def test_help_shows_the_action_and_the_exit_statuses():
    assert "judge" in judge("--help").stdout
    assert "3 inconclusive" in judge("--help").stdout


@pytest.fixture
def paired(tmp_path):
    def write(name: str, ratio: float, metrics: int = 1, pairs: int = 5, scale: float = 1) -> Path:
        lines = [
            {"type": "metric", "name": f"m{m}", "unit": "ms", "arm": arm, "pair": pair,
             "block": block, "values": [v * (ratio if arm == "B" and m == 0 else 1) * level * scale
                                        for v in STEADY[pair + block : pair + block + 6]]}
            for pair in range(1, pairs + 1)
            for level in [1 + 0.003 * ((3 * pair) % 4)]
            for block, arm in enumerate("AB" if pair % 2 else "BA", 1)
            for m in range(metrics)
        ]  # fmt: skip
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


@pytest.mark.parametrize(
    ("ratio", "options", "status", "outcome"),
    [
        (1.01, (), 0, "passed"),
        (1.12, (), 1, "failed"),
        (1.12, ("--tolerance", "0.3"), 0, "passed"),
        (1.12, ("--better", "higher"), 0, "passed"),
        (3.0, (), 1, "failed"),
        (3.0, ("--explained", "m0=a debug build"), 1, "failed"),
        (0.3, (), 3, "inconclusive"),
        (0.3, ("--explained", "m0=FP8 kernels"), 0, "passed"),
        (1.0, ("--peak", "m0=0.5"), 3, "inconclusive"),
    ],
)
def test_pairs_are_judged_as_one_suite(paired, ratio, options, status, outcome):
    found = judge(paired("p.jsonl", ratio, 3), "--paired", *options, "--format", "json")
    body = json.loads(found.stdout)
    assert (found.returncode, body["outcome"]) == (status, outcome)
    first = body["metrics"][0]
    assert first["metric"] == "m0"
    assert first["low"] < first["effect"] < first["high"]
    again = judge("-", "--paired", *options, "--format", "json", stdin=(
        paired("q.jsonl", ratio, 3).read_text()
    ))  # fmt: skip
    assert again.stdout == found.stdout


def test_too_few_pairs_say_how_many_are_missing(paired):
    found = judge(paired("p.jsonl", 1.0, pairs=3), "--paired")
    assert found.returncode == 3
    assert "2 more pairs (5 in all)" in found.stdout


def test_history_is_read_from_files_of_earlier_sessions(paired):
    earlier = [paired(f"h{i}.jsonl", 1.0, scale=1 + i / 9) for i in range(3)]
    options = [word for path in earlier for word in ("--history", path)]
    found = judge(paired("p.jsonl", 1.01), "--paired", *options)
    assert found.returncode == 0
    assert "degrees of freedom" in found.stdout


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("p", "q", "--paired"), "one file with both arms"),
        (("p",), "the candidate's file is missing"),
        (("p", "q", "--history", "h"), "--history needs --paired"),
        (("p", "--paired", "--unit", "ms"), "--unit cannot be combined with --paired"),
        (("p", "--paired", "--peak", "m0=fast"), "not a peak of m0"),
        (("p", "--paired", "--explained", "m9=why"), "metric m9 does not exist"),
        (("p", "--paired", "--explained", "m0"), "has no value"),
        (("p", "--paired", "--tolerance", "5"), "not a tolerance"),
        (("none", "--paired"), "cannot read 'none'"),
    ],
)
def test_options_of_pairs_that_do_not_fit_are_refused(paired, monkeypatch, options, error):
    monkeypatch.chdir(paired("p", 1.0).parent)
    found = judge(*options)
    assert found.returncode == 2
    assert error in found.stderr


def test_the_guide_shows_what_the_command_prints(tmp_path):
    ratios = [1.021, 1.062, 0.985, 1.048, 0.994]
    lines = [
        {"type": "metric", "name": "step_time", "unit": "ms", "arm": arm, "pair": pair,
         "block": block, "values": [v * (ratio if arm == "B" else 1) for v in (1.2, 1.21, 1.19)]}
        for pair, ratio in enumerate(ratios, 1)
        for block, arm in enumerate("AB", 1)
    ]  # fmt: skip
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "judge-pairs.md"
    found = judge(path, "--paired")
    assert found.returncode == 3
    assert found.stdout in guide.read_text()
