"""What a process says of itself, with real libraries loaded in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compatgate.cli.main import main

Build = Callable[..., Path]

REPORT = """\
import ctypes, json
{loads}
from compatgate import diagnostics
{body}
print(json.dumps(diagnostics.report()))
"""


def report(*libraries: Path, body: str = "", **env: str) -> dict[str, Any]:
    """The report of a fresh process that has loaded these libraries."""
    loads = "\n".join(f"ctypes.CDLL({str(path)!r})" for path in libraries)
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(loads=loads, body=body)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def versions(document: dict[str, Any]) -> dict[str, str]:
    stack = document["stack"]
    return {k: v for k, v in stack.items() if k not in ("python", "open", "conflicts")}


def test_every_library_is_asked_for_its_version(build: Build) -> None:
    document = report(
        build("libcudart.so.12", cudaRuntimeGetVersion="12040"),
        build("libnccl.so.2", ncclGetVersion="22105"),
        build("libcublas.so.12", cublasGetProperty="12, 4, 5"),
        build("libnvinfer.so.10", getInferLibVersion="100100"),
        build("libcudnn.so.7", cudnnGetVersion="7605"),
    )
    assert versions(document) == {
        "cuda": "12.4",
        "nccl": "2.21.5",
        "cublas": "12.4.5",
        "tensorrt": "10.1.0",
        "cudnn": "7.6.5",
    }
    assert "open" not in document["stack"]
    origins = {o["component"]: o["origin"] for o in document["observations"]}
    assert origins["cuda"].endswith("libcudart.so.12: cudaRuntimeGetVersion()")
    assert document["process"]["pid"] > 0


def test_older_numberings_are_read(build: Build) -> None:
    document = report(
        build("libnccl.so.2", ncclGetVersion="2708"),
        build("libnvinfer.so.8", getInferLibVersion="8601"),
        build("libcudnn.so.8", cudnnGetVersion="8907", cudnnGetCudartVersion="12010"),
        build("libcudart.so.11.0", cudaRuntimeGetVersion="11080"),
    )
    assert versions(document) == {
        "nccl": "2.7.8",
        "tensorrt": "8.6.1",
        "cudnn": "8.9.7+cu12",
        "cuda": "11.8",
    }


def test_cudnn_is_asked_at_the_part_that_is_loaded(cudnn: tuple[Path, Path]) -> None:
    assert versions(report(*cudnn)) == {"cudnn": "9.1.0+cu12"}


def test_asking_loads_no_library(cudnn: tuple[Path, Path]) -> None:
    """The front library would load a part: then the version is open, and nothing is loaded."""
    front, part = cudnn
    before = "known = open('/proc/self/maps').read()"
    after = "diagnostics.report(); now = open('/proc/self/maps').read()"
    check = f"assert {part.name!r} not in now, 'a part was loaded'"
    folder = str(front.parent)
    document = report(front, body=f"{before}\n{after}\n{check}", LD_LIBRARY_PATH=folder)
    assert "cudnn" not in document["stack"]
    (sentence,) = document["stack"]["open"]
    assert sentence.startswith("cudnn: ")
    assert "except its major, 9" in sentence


def test_a_library_whose_name_and_answer_differ_is_a_conflict(build: Build) -> None:
    document = report(build("libcudart.so.12.1.105", cudaRuntimeGetVersion="12040"))
    assert document["stack"]["cuda"] == "12.4"
    (conflict,) = document["conflicts"]
    assert "cudaRuntimeGetVersion() says cuda 12.4" in conflict["message"]
    assert "says 12.1.105" in conflict["message"]
    assert document["stack"]["conflicts"] == [conflict["message"]]


def test_what_a_framework_was_built_for_is_compared_with_what_is_loaded(build: Build) -> None:
    torch = """
import sys, types
torch = types.ModuleType("torch"); torch.__version__ = "2.4.1+cu121"
version = types.ModuleType("torch.version"); version.cuda = "12.1"
sys.modules.update({"torch": torch, "torch.version": version})
"""
    document = report(build("libcudart.so.12", cudaRuntimeGetVersion="12040"), body=torch)
    assert document["stack"]["torch"] == "2.4.1+cu121"
    assert document["stack"]["cuda"] == "12.4"
    assert "torch.version.cuda says 12.1" in document["conflicts"][0]["message"]


def test_a_file_that_is_only_read_is_not_loaded(build: Build) -> None:
    path = build("libcudart.so.12", cudaRuntimeGetVersion="12040")
    body = f"import mmap; f = open({str(path)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1)"
    assert versions(report(body=body)) == {}


def test_a_library_that_was_replaced_is_not_mistaken_for_the_new_file(build: Build) -> None:
    path = build("libcudart.so.12", cudaRuntimeGetVersion="12040")
    newer = build("libcudart.so.12", folder=path.parent / "new", cudaRuntimeGetVersion="12080")
    body = f"import os; os.replace({str(newer)!r}, {str(path)!r})"
    document = report(path, body=body)
    assert document["stack"].get("cuda") in (None, "12.4")


def test_the_package_beside_a_library_that_cannot_be_asked_tells(
    cudnn: tuple[Path, Path], build: Build, tmp_path: Path
) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    library = site / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    library.parent.mkdir(parents=True)
    library.write_bytes(cudnn[0].read_bytes())
    info = site / "nvidia_cudnn_cu12-9.5.1.17.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Name: nvidia-cudnn-cu12\nVersion: 9.5.1.17\n")
    info.joinpath("RECORD").write_text("nvidia/cudnn/lib/libcudnn.so.9,,\n")
    document = report(library)
    assert versions(document) == {"cudnn": "9.5.1.17+cu12"}
    assert "open" not in document["stack"]


def test_secrets_of_the_environment_do_not_leave(build: Build) -> None:
    document = report(
        AWS_SECRET_ACCESS_KEY="hunter2",
        CUDA_VISIBLE_DEVICES="0",
        NVIDIA_REQUIRE_TOKEN="hunter2",
    )
    assert "hunter2" not in json.dumps(document)
    assert document["process"]["environment"]["CUDA_VISIBLE_DEVICES"] == "0"


def test_reports_are_made_in_threads_and_after_a_fork(build: Build) -> None:
    body = """
import os, threading
results = []
def ask():
    results.append(diagnostics.report()["stack"]["cuda"])
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()  # a fork beside a thread that imports stops any program
child = os.fork()
if child == 0:
    os._exit(0 if diagnostics.report()["stack"]["cuda"] == "12.4" else 1)
assert results == ["12.4"] * 8
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    report(build("libcudart.so.12", cudaRuntimeGetVersion="12040"), body=body)


def test_a_library_may_be_unloaded_after_it_was_asked(build: Build) -> None:
    path = build("libcudart.so.12", cudaRuntimeGetVersion="12040")
    body = f"""
import _ctypes
handle = _ctypes.dlopen({str(path)!r}, 2)
assert diagnostics.report()["stack"]["cuda"] == "12.4"
_ctypes.dlclose(handle)
assert {path.name!r} not in open("/proc/self/maps").read()
"""
    assert versions(report(body=body)) == {}


def test_check_reads_the_report(build: Build, tmp_path: Path, capsys: Any) -> None:
    document = report(build("libcudart.so.12.1.105", cudaRuntimeGetVersion="12040"))
    path = tmp_path / "service.json"
    path.write_text(json.dumps(document))
    pool = ["--pool", "driver=550.54.15,gpu=L4"]
    assert main(["check", "--probe", str(path), *pool, "--stack", "arch=sm_89"]) == 0
    printed = capsys.readouterr()
    assert "CUDA 12.4" in printed.out
    assert "CG902" in printed.out
    assert "12.1.105" not in printed.err


def test_what_is_open_in_a_report_is_no_decision(
    cudnn: tuple[Path, Path], tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "service.json"
    path.write_text(json.dumps(report(cudnn[0])))
    stated = ["--pool", "driver=550.54.15,gpu=L4", "--stack", "cuda=12.4,arch=sm_89"]
    assert main(["check", "--probe", str(path), *stated]) == 3
    assert "except its major, 9" in " ".join(capsys.readouterr().out.split())


def test_the_real_runtime_library_answers(wheel: Callable[[str], Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel("nvidia-cuda-runtime-cu12==12.4.127")) as archive:
        library = Path(archive.extract("nvidia/cuda_runtime/lib/libcudart.so.12", tmp_path))
    document = report(library)
    assert versions(document) == {"cuda": "12.4"}


def test_importing_is_cheap_and_brings_no_framework() -> None:
    program = """
import sys
before = set(sys.modules)
import compatgate.diagnostics
more = {name.partition(".")[0] for name in set(sys.modules) - before}
heavy = more & {"flask", "sqlalchemy", "werkzeug", "msgspec", "ctypes", "yaml", "docker"}
assert not heavy, heavy
from compatgate.diagnostics import report
report()
assert not {"flask", "sqlalchemy", "werkzeug", "docker"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_file_on_its_own_needs_only_python(build: Build, tmp_path: Path) -> None:
    from compatgate.diagnostics import loaded

    copied = tmp_path / "alone" / "loaded.py"
    copied.parent.mkdir()
    copied.write_bytes(Path(str(loaded.__file__)).read_bytes())
    library = build("libcudart.so.12", cudaRuntimeGetVersion="12040")
    program = f"""
import ctypes, sys
sys.path.insert(0, {str(copied.parent)!r})
ctypes.CDLL({str(library)!r})
import loaded
found = loaded.loaded_libraries()
assert loaded.versions(found) == {{"cuda": "12.4"}}, found
assert loaded.paths(found) == {{"cuda": {str(library)!r}}}
assert "compatgate" not in sys.modules
"""
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("name", ["libcudart.so.12", "libnccl.so.2", "libcudnn.so.7"])
def test_a_library_without_the_function_is_open(build: Build, name: str) -> None:
    document = report(build(name, source="int other(void) { return 1; }"))
    assert versions(document) == {}
    assert len(document["stack"]["open"]) == 1
