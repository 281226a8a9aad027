"""``--read-wheels``: what a lock's packages carry is measured from an index, once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from catalogue import own_cache
from cuda_toolkit import toolkit
from gpu_binaries import make_entry, make_fatbin
from pe_files import make_dll
from wheel_server import WheelServer, wheel_server
from wheels import make_shared_object, make_wheel

__all__ = ["toolkit"]

NAME = "gpu_pkg_cu12-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
OTHERS = "gpu_pkg_cu12-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
ARM = "gpu_pkg_cu12-1.0-cp312-cp312-manylinux_2_28_aarch64.whl"
A100 = "driver=580.95.05,gpu=A100-SXM4-80GB"
H100 = "driver=580.95.05,gpu=H100-SXM5-80GB"
STACK = "cuda=12.4"


class Verdict(NamedTuple):
    """What the command answered."""

    status: int
    json: dict[str, Any]
    errors: str

    def said(self, rule: str) -> list[str]:
        return [f["message"] for f in self.json["findings"] if f["rule"] == rule]

    @property
    def notes(self) -> list[str]:
        return [
            line.removeprefix("note: ")
            for line in self.errors.splitlines()
            if line.startswith("note: ")
        ]


@pytest.fixture
def run(command, server, tmp_path, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    """Run a command line as a user whose pip asks the tests' index, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", server.index)
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return command


@pytest.fixture
def check(run) -> Callable[..., Verdict]:
    """``compatgate check --lock ... --read-wheels``."""

    def ask(lock: Path, *options: str, pool: str = A100, how: str = "--read-wheels") -> Verdict:
        fixed = ["check", "--pool", pool, "--stack", STACK, "--format", "json"]
        status, text, errors = run(*fixed, "--lock", str(lock), how, *options)
        assert text, errors
        return Verdict(status, json.loads(text), errors)

    return ask


def content(
    *arches: int, name: str = "gpu-pkg-cu12", level: int | None = None, **members: bytes
) -> bytes:
    code = make_fatbin(*(make_entry("sass", arch) for arch in arches or (80,)))
    library = make_shared_object(needs=["libcudart.so.12"], code=code)
    return make_wheel({"gpu_pkg/lib.so": library, **members}, name=name, level=level)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def uv_lock(folder: Path, server: WheelServer, *names: str, index: str = "", **hashes: str) -> Path:
    """Write a uv.lock of one package with these wheels, and of numpy, which is no GPU package."""
    wheels = ",\n".join(
        f'    {{ url = "{server.address(name)}", '
        f'hash = "sha256:{hashes.get("sha256") or digest(server.files[name])}" }}'
        for name in names
    )
    path = folder / "uv.lock"
    path.write_text(
        f"""\
version = 1
requires-python = ">=3.11"

[[package]]
name = "gpu-pkg-cu12"
version = "1.0"
source = {{ registry = "{index or server.index}" }}
wheels = [
{wheels}
]

[[package]]
name = "numpy"
version = "2.0.0"
source = {{ registry = "{index or server.index}" }}
wheels = [ {{ url = "{server.url}/files/numpy-2.0.0-cp312-cp312-manylinux_2_28_x86_64.whl" }} ]
"""
    )
    return path


def requirements(folder: Path, text: str) -> Path:
    path = folder / "requirements.txt"
    path.write_text(text)
    return path


def test_the_advice_of_an_open_package_changes_the_answer_as_printed(
    run, server, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    server.add(NAME, content(80))
    asked = ("check", "--stack", f"{STACK},python=3.12,gpu-pkg-cu12=1.0", "--pool")
    status, out, _ = run(*asked, A100, "--format", "json")
    (finding,) = [f for f in json.loads(out)["findings"] if f["rule"] == "CG410"]
    assert status == 3
    command = finding["need"].partition("run compatgate ")[2].partition(" and start")[0]
    option = finding["need"].partition("start it with ")[2].partition(";")[0]
    status, _, errors = run(*command.split(), "--python", "3.12", "--platform", "linux-x86_64")
    assert status == 0, errors
    assert run(*asked, A100, *option.split())[0] == 0
    assert run(*asked, H100, *option.split())[0] == 1
    assert run(*asked, A100, "--read-wheels")[0] == 0


def test_real_code_decides_and_the_second_run_reads_no_network(server, check, toolkit, tmp_path):
    library = toolkit.make(".so", "-gencode=arch=compute_80,code=sm_80")
    wheel = make_wheel({"gpu_pkg/lib.so": library.read_bytes()}, name="gpu-pkg-cu12")
    server.add(NAME, wheel)
    lock = uv_lock(tmp_path, server, NAME)
    assert check(lock, how="--cached-wheels").status == 3
    assert server.paths == []
    first = check(lock)
    assert first.status == 0, first
    note = f"{NAME} (sha256 {digest(wheel)})"
    size = f"{len(wheel) / 1e6:.1f} MB from 127.0.0.1"
    assert first.notes == [f"gpu-pkg-cu12 1.0: measured now, {note}, {size}"]
    assert any(digest(wheel) in text for text in first.said("CG901"))
    server.paths.clear()
    again = check(lock)
    assert again.notes == [f"gpu-pkg-cu12 1.0: measured before, {note}"]
    assert again.json["id"] == first.json["id"]
    denied = check(lock, how="--cached-wheels", pool=H100)
    assert denied.status == 1
    assert any("has no code for H100" in text for text in denied.said("CG411"))
    assert server.paths == []


def test_the_verdict_depends_on_the_wheel(server, check, tmp_path):
    answers = []
    for arches in ((80,), (80, 90)):
        server.add(NAME, content(*arches))
        answers.append(check(uv_lock(tmp_path, server, NAME)))
    assert [answer.status for answer in answers] == [0, 0]
    assert answers[0].json["id"] != answers[1].json["id"]


def test_only_packages_without_a_record_are_read(server, check, tmp_path):
    server.add(NAME, content())
    server.add("numpy-2.0.0-cp312-cp312-manylinux_2_28_x86_64.whl", content(name="numpy"))
    text = "numpy==2.0.0\nfaiss-gpu-cu12==1.14.1\ngpu-pkg-cu12==1.0\ntorch==2.6.0+cu124\n"
    check(requirements(tmp_path, text))
    assert {path.split("/")[2] for path in server.paths} == {"gpu-pkg-cu12", NAME}


def test_the_platform_and_the_python_choose_the_wheel(server, check, tmp_path):
    server.add(NAME, content())
    server.add(OTHERS, content(70, 80))
    server.add(ARM, content(90))
    lock = uv_lock(tmp_path, server, NAME, OTHERS, ARM)
    assert NAME in check(lock).notes[0]
    assert OTHERS in check(lock, "--stack", "python=3.11").notes[0]
    arm = check(lock, pool="driver=580.95.05,gpu=GH200,cpu=aarch64")
    assert ARM in arm.notes[0]
    assert arm.status == 0


@pytest.mark.parametrize(
    "text",
    [
        "gpu-pkg-cu12==1.0\n",
        "gpu-pkg-cu12==1.0 --hash=sha256:{digest} --hash=sha256:" + "0" * 64 + "\n",
        "--index-url {other}\n--extra-index-url {index}\ngpu-pkg-cu12==1.0\n",
        "gpu-pkg-cu12 @ {url}\n",
        "gpu-pkg-cu12 @ {url}#sha256={digest}\n",
    ],
)
def test_requirements_name_an_index_a_url_or_nothing(server, check, tmp_path, text):
    url = server.add(NAME, content())
    stated = digest(server.files[NAME])
    with wheel_server() as other:
        text = text.format(index=server.index, other=other.index, url=url, digest=stated)
        lock = requirements(tmp_path, text)
        found = check(lock)
    assert found.status == 0, found
    server.paths.clear()
    assert check(lock).json["id"] == found.json["id"]
    assert server.paths == []


def test_poetry_names_its_source_and_the_files(server, check, tmp_path, monkeypatch):
    server.add(NAME, content())
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    lock = tmp_path / "poetry.lock"
    lock.write_text(
        f"""\
# This file is automatically @generated by Poetry 2.1.1 and should not be changed by hand.
[[package]]
name = "gpu-pkg-cu12"
version = "1.0"
groups = ["main"]
files = [{{file = "{NAME}", hash = "sha256:{digest(server.files[NAME])}"}}]
[package.source]
type = "legacy"
url = "{server.index}"
reference = "own"
[metadata]
lock-version = "2.1"
python-versions = ">=3.11"
"""
    )
    assert check(lock).status == 0


def test_a_mirror_stands_for_pypi(server, check, tmp_path):
    server.add(NAME, content())
    lock = uv_lock(tmp_path, server, NAME, index="https://pypi.org/simple")
    lock.write_text(lock.read_text().replace(server.url, "https://files.pythonhosted.org"))
    assert check(lock).status == 0
    assert "/simple/gpu-pkg-cu12/" in server.paths


def test_what_another_index_serves_is_read_whole_and_compared(server, check, tmp_path, monkeypatch):
    data = content(filler=os.urandom(8 * 1024 * 1024))
    monkeypatch.setattr("compatgate.discovery.wheels.measure.SMALL_WHEEL", 0)
    server.add(NAME, data)
    own = check(uv_lock(tmp_path, server, NAME))
    assert own.status == 0
    assert server.sent < len(data)
    with wheel_server() as other:
        other.add(NAME, data)
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/none")
        lied = uv_lock(tmp_path, other, NAME, sha256="0" * 64)
        found = check(lied)
        assert found.status == 3
        assert "SHA-256" in found.said("CG410")[0]
        lock = requirements(tmp_path, f"--index-url {other.index}\ngpu-pkg-cu12==1.0\n")
        other.sent = 0
        other.digests[NAME] = ""
        assert check(lock).status == 0
        assert other.sent >= len(data)


def library_for(cuda: str, arch: int) -> bytes:
    code = make_fatbin(make_entry("sass", arch))
    filler = os.urandom(2 * 1024 * 1024)
    return make_shared_object(needs=[f"libcudart.so.{cuda}"], code=code) + filler


def test_libraries_that_a_question_does_not_need_are_not_read(server, check, tmp_path, monkeypatch):
    monkeypatch.setattr("compatgate.discovery.wheels.measure.SMALL_WHEEL", 0)
    members = {
        "gpu_pkg/libgpu_cuda118.so": library_for("11.0", 80),
        "gpu_pkg/libgpu_cuda124.so": library_for("12", 80),
        "gpu_pkg_cu12.libs/libother.so": library_for("12", 90),
    }
    server.add(NAME, make_wheel(members, name="gpu-pkg-cu12"))
    lock = uv_lock(tmp_path, server, NAME)
    first = check(lock)
    assert first.status == 0, first
    assert "without 2 libraries that this stack does not load" in first.notes[0]
    assert server.sent < 3 * 1024 * 1024
    server.paths.clear()
    again = check(lock, how="--cached-wheels")
    assert again.json["id"] == first.json["id"]
    assert check(lock, "--set", "cuda=11.8", how="--cached-wheels").status == 3
    assert server.paths == []


def test_bundled_libraries_are_read_where_the_package_has_no_code(
    server, check, tmp_path, monkeypatch
):
    monkeypatch.setattr("compatgate.discovery.wheels.measure.SMALL_WHEEL", 0)
    plain = make_shared_object(needs=["libother.so"], code=b"") + os.urandom(2 * 1024 * 1024)
    members = {"gpu_pkg/lib.so": plain, "gpu_pkg_cu12.libs/libother.so": library_for("12", 80)}
    server.add(NAME, make_wheel(members, name="gpu-pkg-cu12"))
    assert check(uv_lock(tmp_path, server, NAME), pool=H100).status == 1


def opens_by_name(found: Verdict, why: str) -> None:
    assert found.status == 3
    (message,) = found.said("CG410")
    assert message.startswith("no record describes the content of gpu-pkg-cu12 1.0: ")
    assert why in message
    (note,) = found.notes
    assert note.startswith("gpu-pkg-cu12 1.0 could not be measured: ")


def test_a_wrong_digest_leaves_the_package_open_and_nothing_is_kept(server, check, tmp_path):
    server.add(NAME, content())
    lock = uv_lock(tmp_path, server, NAME)
    server.files[NAME] = content(90)
    server.digests[NAME] = ""  # of an index that states none
    opens_by_name(check(lock), "has the SHA-256")
    opens_by_name(check(lock, how="--cached-wheels"), "no earlier measurement")
    server.digests.clear()
    opens_by_name(check(lock), "the index states the SHA-256")


def test_a_file_that_is_gone_leaves_the_package_open(server, check, tmp_path):
    server.add(NAME, content())
    lock = uv_lock(tmp_path, server, NAME)
    server.files_at = "../../gone"
    text = lock.read_text().replace("/files/", "/gone/")
    lock.write_text(text)
    opens_by_name(check(lock), "the server does not have this file")


def test_a_wheel_for_another_platform_leaves_the_package_open(server, check, tmp_path):
    server.add(ARM, content())
    lock = requirements(tmp_path, "gpu-pkg-cu12==1.0\n")
    opens_by_name(check(lock), "the index has no wheel of it for linux x86_64")


def test_a_zip_bomb_leaves_the_package_open(server, check, tmp_path):
    bomb = {"gpu_pkg/bomb.so": b"\x7fELF" + bytes(500 * 1024 * 1024)}
    server.add(NAME, content(level=1, **bomb))
    opens_by_name(check(uv_lock(tmp_path, server, NAME)), "bytes")


def test_what_is_no_wheel_leaves_the_package_open(server, check, tmp_path):
    server.add(NAME, b"not a wheel" * 100)
    opens_by_name(check(uv_lock(tmp_path, server, NAME)), NAME)


def test_a_network_that_is_cut_leaves_the_package_open(server, check, tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)  # before each further attempt
    server.add(NAME, content())
    lock = uv_lock(tmp_path, server, NAME)
    server.stop_after = 40
    opens_by_name(check(lock), "does not answer")
    server.stop_after = None
    assert check(lock).status == 0


def test_an_index_that_does_not_answer_leaves_the_package_open(check, tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    opens_by_name(check(requirements(tmp_path, "gpu-pkg-cu12==1.0\n")), "does not answer")


def test_a_wheel_of_another_package_is_no_record_of_this_one(server, check, tmp_path):
    server.add(NAME, content(name="other-pkg"))
    opens_by_name(check(uv_lock(tmp_path, server, NAME)), "its metadata is of other-pkg")


def test_a_stated_package_is_measured_from_the_users_index(server, run):
    server.add(NAME, content())
    options = ["--stack", f"{STACK},gpu-pkg-cu12=1.0", "--read-wheels", "--format", "json"]
    status, text, errors = run("check", "--pool", A100, *options)
    assert status == 0, text
    assert "measured now" in errors


def test_a_bill_of_materials_is_measured_too(server, run, tmp_path):
    server.add(NAME, content())
    part = {"type": "library", "name": "gpu-pkg-cu12", "version": "1.0"}
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.6"}
    bom["components"] = [part | {"purl": "pkg:pypi/gpu-pkg-cu12@1.0"}]
    path = tmp_path / "bom.json"
    path.write_text(json.dumps(bom))
    options = ["--stack", STACK, "--sbom", str(path), "--read-wheels"]
    assert run("check", "--pool", A100, *options)[0] == 0
    status, text, _ = run("inspect", "--sbom", str(path), "--cached-wheels", "--format", "json")
    assert status == 0
    (record,) = json.loads(text)["records"]
    assert (record["wheel"], record["sha256"]) == (NAME, digest(server.files[NAME]))


def test_inspect_shows_what_was_measured_and_what_is_open(server, run, tmp_path):
    server.add(NAME, content())
    lock = requirements(tmp_path, "gpu-pkg-cu12==1.0\nother-cu12==2.0\n")
    status, text, _ = run("inspect", "--lock", str(lock), "--read-wheels")
    assert status == 0
    assert f"gpu-pkg-cu12 {NAME}  sm_80  sha256 {digest(server.files[NAME])}" in text
    assert "other-cu12==2.0: the index has no wheel of that package" in text


def test_a_target_of_a_database_is_judged_by_measured_records(server, run, tmp_path):
    from compatgate.resources import matrix_dir

    server.add(NAME, content())
    base = ["--database", str(tmp_path / "gate.db")]
    assert run("matrix", "import", *base, str(matrix_dir() / "examples"))[0] == 0
    lock = requirements(tmp_path, "gpu-pkg-cu12==1.0\n")
    question = ["check", *base, "--target", "prod-a100", "--stack", STACK, "--lock", str(lock)]
    _, text, _ = run(*question, "--read-wheels", "--format", "json")
    rules = [found["rule"] for found in json.loads(text)["findings"]]
    assert "CG410" not in rules
    _, text, _ = run(*question, "--format", "json")
    assert "CG410" in [found["rule"] for found in json.loads(text)["findings"]]


def test_a_bundle_is_judged_by_measured_records(server, run, tmp_path):
    from compatgate.resources import matrix_dir

    server.add(NAME, content())
    base = ["--database", str(tmp_path / "gate.db")]
    bundle = str(tmp_path / "gate.bundle")
    assert run("matrix", "import", *base, str(matrix_dir() / "examples"))[0] == 0
    assert run("bundle", "export", *base, "-o", bundle)[0] == 0
    lock = requirements(tmp_path, "gpu-pkg-cu12==1.0\n")
    question = ["check", "--bundle", bundle, "--target", "prod-a100", "--stack", STACK]
    _, text, _ = run(*question, "--lock", str(lock), "--read-wheels", "--format", "json")
    assert "CG410" not in [found["rule"] for found in json.loads(text)["findings"]]


def test_a_server_measures_by_itself(run, tmp_path):
    lock = requirements(tmp_path, "gpu-pkg-cu12==1.0\n")
    where = ["--server", "http://127.0.0.1:9", "--pool", A100]
    status, _, errors = run("check", *where, "--lock", str(lock), "--read-wheels")
    assert status == 2
    assert errors.startswith(
        "error: --read-wheels: cannot be combined with --server: the gate uses its own records"
    )


def test_inspect_reads_wheels_of_files_that_name_packages_alone(run, tmp_path):
    status, _, errors = run("inspect", str(tmp_path), "--read-wheels")
    assert status == 2
    assert "does not name wheels" in errors


def test_a_damaged_library_of_windows_leaves_the_package_open(server, check, tmp_path):
    library = b"MZ" + bytes(100) + b"cudart64_12.dll" + bytes(100)
    name = "gpu_pkg_cu12-1.0-cp312-cp312-win_amd64.whl"
    server.add(name, make_wheel({"gpu_pkg/lib.dll": library}, name="gpu-pkg-cu12"))
    lock = requirements(tmp_path, "gpu-pkg-cu12==1.0\n")
    pool = "driver=580.88,gpu=RTX-4090,os=windows"
    for _ in range(2):
        opens_by_name(check(lock, pool=pool), "gpu_pkg/lib.dll: damaged or truncated")


@pytest.mark.parametrize(("gpu", "fails"), [("RTX-4090", False), ("GeForce-RTX-5090", True)])
def test_a_wheel_for_windows_is_measured_and_judged(server, check, tmp_path, gpu, fails):
    library = make_dll(
        imports=[("cudart64_12.dll", ["f"])], code=make_fatbin(make_entry("sass", 80))
    )
    name = "gpu_pkg_cu12-1.0-cp312-cp312-win_amd64.whl"
    server.add(name, make_wheel({"gpu_pkg/lib.dll": library}, name="gpu-pkg-cu12"))
    lock = requirements(tmp_path, "gpu-pkg-cu12==1.0\n")
    found = check(lock, pool=f"driver=580.88,gpu={gpu},os=windows")
    failed = [f for f in found.json["findings"] if f["rule"] == "CG411"]
    assert [f["outcome"] for f in failed] == (["fail"] if fails else [])
    assert found.said("CG410") == []


def test_a_component_is_measured_under_its_name_on_the_index(server, check, tmp_path):
    name = "transformer_engine_cu12-2.99.0-py3-none-manylinux_2_28_x86_64.whl"
    code = make_fatbin(make_entry("sass", 80))
    library = {"te/lib.so": make_shared_object(needs=["libcudart.so.12"], code=code)}
    server.add(name, make_wheel(library, name="transformer-engine-cu12", version="2.99.0"))
    found = check(requirements(tmp_path, "transformer-engine-cu12==2.99.0\n"))
    assert found.notes[0].startswith(f"transformer-engine 2.99.0+cu12: measured now, {name}")
    assert found.said("CG410") == []


def test_packages_of_conda_are_not_read(server, check, tmp_path):
    url = "https://conda.anaconda.org/conda-forge/linux-64/xformers-0.0.99-cuda126_0.conda"
    lock = tmp_path / "explicit.txt"
    lock.write_text(f"# platform: linux-64\n@EXPLICIT\n{url}\n")
    (message,) = check(lock).said("CG410")
    assert "only wheels are measured, not conda packages" in message
    assert server.paths == []
