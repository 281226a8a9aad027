"""Programs end as the engine understands it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from compatgate.canary.engine.conclude import NO_GPU, NOTHING_TO_TEST

Load = Callable[[str], ModuleType]


@pytest.fixture
def program(shared: Load, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("sys.argv", ["/canary/gemm/program.py"])
    return shared("canary_program")


def _ends(program: ModuleType, main: Callable[[], object]) -> object:
    with pytest.raises(SystemExit) as ended:
        program.start(main)
    return ended.value.code


def test_a_program_that_runs_to_its_end_ends_with_0(program: ModuleType) -> None:
    assert _ends(program, lambda: None) == 0
    assert _ends(program, lambda: 3) == 3


def test_no_gpu_and_nothing_to_test_are_a_line_each(
    program: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks(error: type[Exception]) -> Callable[[], object]:
        def main() -> None:
            raise error("why")

        return main

    assert program.NO_GPU == NO_GPU
    assert _ends(program, lacks(program.NoGpu)) == NO_GPU
    assert _ends(program, lacks(program.NothingToTest)) == NOTHING_TO_TEST
    assert capsys.readouterr().out == "gemm: no GPU: why\ngemm: nothing to test: why\n"


def test_what_else_goes_wrong_is_left_to_be_seen(program: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError):
        program.start(lambda: 1 / 0)


def test_arguments_have_defaults_that_the_judge_can_use(program: ModuleType) -> None:
    options = program.parser("What it does.").parse_args([])
    assert (options.device, options.seed) == ("cuda", 0)
    assert (options.repetitions, options.warmup) == (30, 5)
    only = program.parser("What it does.", devices=("cuda",))
    with pytest.raises(SystemExit):
        only.parse_args(["--device", "cpu"])


def test_progress_never_passes_the_end(
    program: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = program.Steps(2)
    for _ in range(3):
        steps.done()
    assert [line[-4:-1] for line in capsys.readouterr().out.splitlines()] == ["0.5", "1.0", "1.0"]
