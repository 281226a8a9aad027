"""A workload's folder is read whole or refused with every mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.canary.workload import ImageSpec, Limits, MetricSpec
from compatgate.canary.workloads import contents
from compatgate.canary.workloads.library import read_suites, read_workload
from compatgate.core.needs import parse_needs
from compatgate.errors import BadInput, ManyProblems, NotFound

Make = Callable[..., Path]


def _details(error: pytest.ExceptionInfo[ManyProblems]) -> list[str]:
    return [problem.detail for problem in error.value.problems]


def test_a_good_folder_becomes_a_workload(make_workload: Make) -> None:
    workload = read_workload(make_workload())
    assert workload.name == "made"
    assert workload.command == ("python3", "program.py")
    assert workload.image == ImageSpec(inside=True)
    assert workload.limits == Limits()
    assert workload.timeout_s == 600
    assert workload.metrics == {"speed": MetricSpec("GB/s", "higher")}
    assert workload.checks == {"right": "the result is right"}
    assert workload.digest.startswith("sha256:")


def test_sizes_and_durations_have_units(make_workload: Make) -> None:
    limits = '\n[limits]\nmemory = "3GiB"\ntmp = "5MiB"\noutput = "7KiB"\ncpus = 1.5\n'
    folder = make_workload(
        change=lambda t: t.replace("[image]", 'timeout = "2h"\n[image]') + limits
    )
    workload = read_workload(folder)
    assert (workload.limits.memory, workload.limits.tmp) == (3 << 30, 5 << 20)
    assert (workload.limits.output, workload.limits.cpus) == (7 << 10, 1.5)
    assert workload.timeout_s == 7200


def test_needs_of_a_gpu_are_formats_and_memory(make_workload: Make) -> None:
    folder = make_workload(
        change=lambda t: t.replace("[image]", 'gpus = 1\nneeds = ["fp8", "60GiB"]\n[image]')
    )
    assert read_workload(folder).needs == parse_needs("fp8+60GiB")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('unit = "GB/s"', "", "metrics.speed: unit is missing"),
        ('"higher"', '"up"', "'up' is not known (one of either, higher, lower)"),
        ("inside = true", "inside = 1", "image.inside: 1 must be true or false"),
        ("inside = true", "", "image: names no image"),
        ("inside = true", 'context = "../other"', "is outside the workload's folder"),
        ("inside = true", 'context = "."\nreference = "x"', "both context and reference"),
        ("inside = true", 'inside = true\ntool = "/opt/x"', "image.tool: needs a context"),
        ("inside = true", 'context = "."\ntool = "/usr/lib"', "'/usr/lib' is not a folder below"),
        ("inside = true", 'context = "."\ntool = "/opt/../x"', "is not a folder below /opt"),
        ("[image]", "timeout = 10\n[image]", "timeout: 10 is not a duration"),
        ("[image]", 'timeout = "10 min"\n[image]', "'10 min' is not a duration"),
        ("[image]", "seeds = [1, 1]\n[image]", "seeds: 1 is named twice"),
        ("[image]", "gpu = 1\n[image]", "gpu: unknown key (did you mean gpus?)"),
        ("[image]", "gpus = 1.0\n[image]", "gpus has the wrong form"),
        ("[image]", '[limits]\nmemory = "8GB"\n[image]', "'8GB' is not a size"),
        ("[image]", "[limits]\ncpus = nan\n[image]", "nan is not a finite number"),
        ("[image]", '[environment]\n"A-B" = "x"\n[image]', "is not the name of a variable"),
        ('name = "made"', 'name = "Made_1"', "'Made_1' is not a name"),
        ('better = "higher"', 'better = "higher"\ntolerance = 0', "must be above 0"),
        ("[image]", "[image", "not valid TOML"),
        ("[image]", 'gpus = 1\nneeds = ["fp9"]\n[image]', "did you mean fp8?"),
        ("[image]", 'gpus = 1\nneeds = ["60"]\n[image]', "needs"),
        ("[image]", 'gpus = 1\nneeds = ["fp8", "fp8"]\n[image]', "needs: fp8 is named twice"),
        (
            "[image]",
            'needs = ["fp8"]\n[image]',
            "needs: are of GPUs",
        ),
    ],
)
def test_a_mistake_names_file_field_and_value(
    make_workload: Make, old: str, new: str, said: str
) -> None:
    folder = make_workload(change=lambda t: t.replace(old, new))
    with pytest.raises(ManyProblems) as error:
        read_workload(folder)
    (detail,) = _details(error)
    assert said in detail
    assert detail.startswith(str(folder / "workload.toml"))


def test_every_mistake_is_reported_at_once(make_workload: Make) -> None:
    folder = make_workload(
        change=lambda t: t.replace('unit = "GB/s"', "").replace("inside", "outside")
    )
    with pytest.raises(ManyProblems) as error:
        read_workload(folder)
    assert len(_details(error)) == 2


def test_a_workload_that_could_show_nothing_is_refused(make_workload: Make) -> None:
    folder = make_workload(change=lambda t: t.partition("[metrics")[0])
    with pytest.raises(ManyProblems, match="no metric and no check is declared"):
        read_workload(folder)


def test_a_folder_without_a_manifest_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"workload\.toml"):
        read_workload(tmp_path)


def test_the_digest_follows_content_and_the_executable_bit_but_not_the_page(
    make_workload: Make,
) -> None:
    folder = make_workload()
    first = read_workload(folder).digest
    (folder / "README.md").write_text("another page\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert read_workload(folder).digest == first
    (folder / "program.py").chmod(0o755)
    second = read_workload(folder).digest
    (folder / "program.py").write_text("print('bye')\n")
    assert len({first, second, read_workload(folder).digest}) == 3


def test_links_do_not_travel_into_a_container(make_workload: Make) -> None:
    folder = make_workload()
    (folder / "secret").symlink_to("/etc/shadow")
    with pytest.raises(BadInput, match="not a plain file"):
        read_workload(folder)
    (folder / "secret").unlink()
    (folder / "etc").symlink_to("/etc")
    with pytest.raises(BadInput, match="not a plain file"):
        read_workload(folder)


def test_suites_keep_their_order_and_name_each_workload_once(tmp_path: Path) -> None:
    file = tmp_path / "suites.toml"
    file.write_text('[a]\ndescription = "A"\nworkloads = ["z", "b"]\n')
    (found,) = read_suites(file).values()
    assert found.workloads == ("z", "b")
    file.write_text('[a]\ndescription = "A"\nworkloads = ["z", "z"]\n')
    with pytest.raises(ManyProblems, match=r"suites\.toml"):
        read_suites(file)


def test_the_digest_follows_the_shared_modules_that_the_program_uses(
    make_workload: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_workload()
    (folder / "program.py").write_text("import outer\n")
    shared = tmp_path / "shipped" / "lib"
    shared.mkdir(parents=True)
    for name, text in {"outer": "import inner\n", "inner": "", "others": ""}.items():
        (shared / f"{name}.py").write_text(text)
    monkeypatch.setattr(contents, "canary_dir", lambda: shared.parent)
    first = read_workload(folder).digest
    (shared / "others.py").write_text("changed = True\n")
    assert read_workload(folder).digest == first
    (shared / "inner.py").write_text("changed = True\n")
    assert read_workload(folder).digest != first


def test_a_program_that_uses_the_harness_must_answer_challenges(make_workload: Make) -> None:
    folder = make_workload()
    program = folder / "program.py"
    for text, proofs in (
        ("print(1)", ()),
        ("import canary_lines as say", ("python",)),
        ("import canary_env; canary_env.bare(options)", ("python",)),
        ("import canary_env\ncanary_env.torch(options)", ("python", "torch")),
    ):
        program.write_text(text)
        assert read_workload(folder).proofs == proofs
    # What the worker signs with is its own module: a copy in the folder takes its place.
    (folder / "lib").mkdir()
    (folder / "lib" / "canary_lines.py").write_text("")
    assert read_workload(folder).proofs == ()


@pytest.mark.parametrize(
    ("stated", "program", "said"),
    [
        ("harness = true", "print(1)", "harness: is true, but no file of the folder uses"),
        ('interpreter = "worker"', "canary_env.torch(options)", "which the worker's interpreter"),
        ('interpreter = "worker"', None, "interpreter: needs a command that starts with python3"),
    ],
)
def test_interpreter_and_harness_must_fit_the_program(
    make_workload: Make, stated: str, program: str | None, said: str
) -> None:
    command = '"./program.py"' if program is None else '"python3", "program.py"'
    folder = make_workload(
        change=lambda text: text.replace('"python3", "program.py"', command).replace(
            "[image]", f"{stated}\n[image]"
        )
    )
    (folder / "program.py").write_text(program or "print(1)")
    with pytest.raises(ManyProblems) as error:
        read_workload(folder)
    assert any(said in detail for detail in _details(error))


def test_a_folder_can_decline_the_harness(make_workload: Make) -> None:
    folder = make_workload(change=lambda text: text.replace("[image]", "harness = false\n[image]"))
    (folder / "program.py").write_text("import canary_lines")
    assert read_workload(folder).proofs == ()
