"""Records of packages are files that are written, read and checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tables import read_table

from compatgate.catalog import records, sources
from compatgate.catalog.checks import package_records
from compatgate.catalog.references import Context, Problem
from compatgate.core.facts.records import Library, Record, TorchAbi
from compatgate.errors import CatalogError

RECORD = Record(
    package="gpu-pkg",
    version="12.10",
    wheel="gpu_pkg-12.10-py3-none-any.whl",
    sha256="a" * 64,
    requires=("torch==2.9.0", 'numpy; extra == "all"'),
    requires_python=">=3.9",
    libraries=(
        Library(
            "gpu_pkg/lib_cuda126.so",
            soname="lib.so.1",
            needs=("libcudart.so.12",),
            symbols={"libnvJitLink.so.12": ("12_4",)},
            defines=("12_0", "12_10"),
            sass={"sm_80": 2, "sm_90a": 1},
            ptx={"compute_90": 1},
            units=2,
            profiles={"sm_80": 1, "sm_80+sm_90a+compute_90": 1},
            ptx_isa="8.7",
            ptx_cuda="12.8",
            torch=TorchAbi(cxx11=True, symbols=3, digest="0123456789abcdef"),
        ),
        Library("gpu_pkg/lib_cuda130.so", opens=("libcuda.so.1",)),
    ),
    alternatives=(("gpu_pkg/lib_cuda126.so", "gpu_pkg/lib_cuda130.so"),),
    built_for_torch="2.9",
)
OLDER = Record("gpu-pkg", "12.9", "gpu_pkg-12.9-py3-none-any.whl", sha256="b" * 64)


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def write(folder: Path, *made: Record) -> None:
    path = folder / "gpu-pkg.yaml"
    path.write_text(records.merge_records(str(path), "gpu-pkg", made))


def read(folder: Path) -> tuple[Record, ...]:
    path = folder / "gpu-pkg.yaml"
    return records.parse_records("gpu-pkg", read_table(path), str(path))


def problems(folder: Path) -> list[Problem]:
    """What the check of packages finds in the file that a test wrote."""
    name, document = "packages/gpu-pkg", read_table(folder / "gpu-pkg.yaml")
    wrong = [
        Problem("schema", f"{name} {w}", r) for w, _, r in sources.schema_errors(name, document)
    ]
    return wrong or list(package_records(Context(None, {name: document})))


def test_what_was_written_is_read_again(folder):
    write(folder, OLDER, RECORD)
    assert read(folder) == (RECORD, OLDER)
    assert problems(folder) == []


def test_what_is_stated_stays_when_records_are_written(folder):
    stated = {"versions": "<13", "source": "setup.py", "confidence": "metadata", "date": "2026-11"}
    text = records.to_yaml("gpu-pkg", [OLDER], [stated])
    (folder / "gpu-pkg.yaml").write_text(text)
    write(folder, RECORD)
    assert read(folder) == (RECORD, OLDER)
    assert read_table(folder / "gpu-pkg.yaml")["statements"] == [stated]
    assert problems(folder) == []


def test_a_package_may_be_stated_alone(folder):
    stated = {"versions": "<13", "source": "setup.py", "confidence": "metadata", "date": "2026-11"}
    (folder / "gpu-pkg.yaml").write_text(records.to_yaml("gpu-pkg", [], [stated]))
    assert read(folder) == ()
    assert problems(folder) == []


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        ({"versions": "1.0"}, "package-versions"),
        ({"builds": [{"cuda": "12", "code": ["sm_80"]}]}, "package-versions"),
        ({"requires": ["torch >"]}, "package-requires"),
        ({"least_capability": "9.0", "last_capability": "8.0"}, "package-capability"),
        ({"compiled": "shipped"}, "package-capability"),
        ({"fixed": True}, "package-builds"),
        ({"builds": [{"code": ["8.0"]}]}, "schema"),
    ],
)
def test_a_statement_that_contradicts_itself_is_a_problem(wrong, check, folder):
    stated = {"versions": "<13", "source": "setup.py", "confidence": "metadata", "date": "2026-11"}
    (folder / "gpu-pkg.yaml").write_text(records.to_yaml("gpu-pkg", [], [stated | wrong]))
    assert [problem.check for problem in problems(folder)] == [check]


def test_a_record_of_another_wheel_stays_and_one_of_the_same_is_replaced(folder):
    write(folder, OLDER)
    write(folder, RECORD)
    newer = Record("gpu-pkg", "12.9", OLDER.wheel, sha256="c" * 64)
    write(folder, newer)
    assert read(folder) == (RECORD, newer)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("sha256: " + "a" * 64, "sha256: abc", "is not the SHA-256 of a wheel"),
        ("sm_80: 2", "sm_80: 3", "more units of one architecture than units"),
        ("sm_80: 2", "sm_8x: 2", "sm_8x"),
        ("version: '12.10'", "version: '12.11'", "the file name says gpu-pkg 12.10"),
        ("package: gpu-pkg", "package: other", "the file is about other"),
        ("- path: gpu_pkg/lib_cuda126.so", "- path: gpu_pkg/lib.so", "is not among libraries"),
        ("verified", "verifed", ""),
        ("{sm_80: 1, ", "{sm_80: 2, ", "do not add up"),
    ],
)
def test_a_record_that_does_not_fit_is_found(folder, old, new, problem):
    write(folder, RECORD)
    path = folder / "gpu-pkg.yaml"
    text = path.read_text().replace("  requires_python:", "  verified: whole\n  requires_python:")
    assert old in text
    path.write_text(text.replace(old, new))
    (found,) = problems(folder)
    assert problem in found.message
    assert "packages/gpu-pkg" in found.subject


def test_a_file_that_is_no_record_names_itself(folder):
    (folder / "gpu-pkg.yaml").write_text("records: 3\n")
    with pytest.raises(CatalogError, match=r"gpu-pkg\.yaml"):
        read(folder)


def test_the_printed_form_has_the_fields_of_the_contract_even_when_empty():
    plain = OLDER.to_json()
    assert plain["requires"] == plain["libraries"] == plain["alternatives"] == []
    assert plain["requires_python"] is None
    assert RECORD.to_json()["libraries"][1] == {
        "path": "gpu_pkg/lib_cuda130.so",
        "needs": [],
        "opens": ["libcuda.so.1"],
        "sass": {},
        "ptx": {},
    }
