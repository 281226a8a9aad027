"""``compatgate facts measure``: from an index, a URL and a file, and from servers that fail."""

from __future__ import annotations

import hashlib
import random

import pytest
import yaml
from gpu_binaries import make_entry, make_fatbin
from pe_files import make_dll
from wheels import make_shared_object, make_wheel

from compatgate.catalog.records import parse_records

UNIT = make_fatbin(make_entry("sass", 80), make_entry("ptx", 90, isa=(8, 7)))
NAME = "gpu_pkg-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
MIB = 1024 * 1024


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that do not compress; the same ones over and over, since drawing them takes long."""
    block = random.Random(seed).randbytes(MIB)
    return (block * (size // MIB + 1))[:size]


def wheel(level: int | None = None, **members: bytes) -> bytes:
    files = {
        "gpu_pkg/lib_cuda126.so": make_shared_object(
            soname="lib_cuda126.so", needs=["libcudart.so.12", "libc.so.6"], code=UNIT + UNIT
        ),
        "gpu_pkg/lib_cuda130.so": make_shared_object(needs=["libcudart.so.13"], code=UNIT),
        "gpu_pkg/plain.so": make_shared_object(needs=["libz.so.1"]),
        "gpu_pkg/kernel.cu": b"__global__ void f() {}",
        "gpu_pkg/__init__.py": b"",
    }
    requires = ["torch==2.9.0", "numpy"]
    return make_wheel(files | members, name="gpu-pkg", requires=requires, level=level)


EXPECTED = [
    {
        "path": "gpu_pkg/lib_cuda126.so",
        "soname": "lib_cuda126.so",
        "needs": ["libcudart.so.12"],
        "sass": {"sm_80": 2},
        "ptx": {"compute_90": 2},
        "units": 2,
        "ptx_isa": "8.7",
        "ptx_cuda": "12.8",
    },
    {
        "path": "gpu_pkg/lib_cuda130.so",
        "needs": ["libcudart.so.13"],
        "sass": {"sm_80": 1},
        "ptx": {"compute_90": 1},
        "units": 1,
        "ptx_isa": "8.7",
        "ptx_cuda": "12.8",
    },
]


def test_a_release_a_url_and_a_file_give_the_same_record(server, measure, tmp_path):
    content = wheel()
    url = server.add(NAME, content)
    path = tmp_path / NAME
    path.write_bytes(content)
    found = measure("gpu-pkg==1.0", url, str(path), "--python", "3.12", "--no-cache")
    assert found.status == 0, found.errors
    released, at_url, from_file = found.records
    assert released == {
        "package": "gpu-pkg",
        "version": "1.0",
        "wheel": NAME,
        "sha256": hashlib.sha256(content).hexdigest(),
        "requires": ["torch==2.9.0", "numpy"],
        "requires_python": ">=3.9",
        "libraries": EXPECTED,
        "alternatives": [["gpu_pkg/lib_cuda126.so", "gpu_pkg/lib_cuda130.so"]],
        "kernel_sources": 1,
        "built_for_torch": "2.9",
        "source": url,
    }
    assert at_url == released
    assert {**from_file, "source": url} == released


def test_a_wheel_that_carries_nothing_says_so_with_every_field_of_the_contract(server, measure):
    content = make_wheel({"gpu_pkg/plain.so": make_shared_object(needs=["libz.so.1"])})
    url = server.add("pkg-1.0-py3-none-any.whl", content)
    (record,) = measure(url).records
    contract = {"package", "version", "wheel", "sha256", "requires", "requires_python"}
    assert set(record) >= contract | {"libraries", "alternatives"}
    assert record["libraries"] == record["alternatives"] == []
    assert "has no GPU code" in measure(url, json_format=False).text


def test_windows_libraries_are_read_as_those_of_linux(server, measure):
    content = make_wheel(
        {
            "pkg/_C.pyd": make_dll(
                imports=[("c10.dll", ["?warn@c10@@YAXXZ"]), ("KERNEL32.dll", ["Sleep"])],
                data=noise(300_000) + b"\0cudnn64_9.dll\0",
                code=UNIT,
            ),
            "pkg/libpkg_cuda124.dll": make_dll(imports=[("cudart64_12.dll", ["f"])], code=UNIT),
            "pkg/libpkg_cuda128.dll": make_dll(imports=[("cudart64_12.dll", ["f"])], code=UNIT),
            "pkg/plain.dll": make_dll(imports=[("KERNEL32.dll", ["Sleep"])], data=noise(300_000)),
        }
    )
    url = server.add("pkg-1.0-py3-none-win_amd64.whl", content)
    (record,) = measure(url).records
    extension, *alternatives = record["libraries"]
    assert extension["path"] == "pkg/_C.pyd"
    assert (extension["needs"], extension["opens"]) == (["c10.dll"], ["cudnn64_9.dll"])
    assert extension["torch"]["symbols"] == 1
    assert extension["sass"] == alternatives[0]["sass"] == {"sm_80": 1}
    assert record["alternatives"] == [["pkg/libpkg_cuda124.dll", "pkg/libpkg_cuda128.dll"]]
    assert "unread" not in record


@pytest.mark.parametrize(
    "library", [b"MZ" + bytes(300), make_dll(code=UNIT)[:1100], b"MZ" + noise(9000)]
)
def test_a_damaged_library_of_windows_makes_no_record(server, measure, library):
    url = server.add("pkg-1.0-py3-none-win_amd64.whl", make_wheel({"pkg/_C.pyd": library}))
    found = measure(url)
    assert (found.status, found.records) == (2, [])
    assert found.errors.count("damaged or truncated") == 1


def test_libraries_that_the_wheel_brings_and_that_do_not_matter_are_not_needed(server, measure):
    members = {
        "pkg/_C.so": make_shared_object(needs=["libgomp-24e2.so.1", "libcudart-9f.so.12"]),
        "pkg.libs/libgomp-24e2.so.1": make_shared_object(soname="libgomp-24e2.so.1"),
        "pkg.libs/libcudart-9f.so.12": make_shared_object(soname="libcudart-9f.so.12"),
    }
    (record,) = measure(server.add("pkg-1.0-py3-none-any.whl", make_wheel(members))).records
    assert {row["path"]: row["needs"] for row in record["libraries"]} == {
        "pkg/_C.so": ["libcudart-9f.so.12"],
        "pkg.libs/libcudart-9f.so.12": [],
    }


def test_metadata_comes_from_beside_the_wheel_where_the_index_has_it(server, measure):
    server.add(NAME, wheel())
    text = b"Metadata-Version: 2.1\nName: gpu-pkg\nVersion: 1.0\nRequires-Dist: torch==2.10.0\n"
    server.metadata[NAME] = text
    (record,) = measure("gpu-pkg==1.0", "--python", "3.12").records
    assert (record["requires"], record["built_for_torch"]) == (["torch==2.10.0"], "2.10")
    server.metadata[NAME] = text.replace(b"1.0", b"1.1", 1)
    found = measure("gpu-pkg==1.0", "--python", "3.12", "--no-cache")
    assert found.status == 2
    assert "its metadata is of gpu-pkg 1.1" in found.errors


def test_a_requirement_that_metadata_repeats_is_kept_once(server, measure):
    server.add(NAME, wheel())
    text = b"Metadata-Version: 2.1\nName: gpu-pkg\nVersion: 1.0\n"
    server.metadata[NAME] = text + b"Requires-Dist: torch>=2.8\n" * 2
    (record,) = measure("gpu-pkg==1.0", "--python", "3.12").records
    assert record["requires"] == ["torch>=2.8"]


def test_several_are_measured_although_one_cannot_be(server, measure):
    url = server.add(NAME, wheel())
    found = measure("gpu-pkg==9.9", url, "nonsense", "--no-cache")
    assert found.status == 2
    assert len(found.records) == 1
    errors = [line for line in found.errors.splitlines() if line.startswith("error: ")]
    assert len(errors) == 2
    assert "2 of 3 could not be measured" in found.errors


def test_a_record_is_kept_by_its_digest_for_ever(server, measure):
    server.add(NAME, wheel())
    (first,) = measure("gpu-pkg==1.0", "--python", "3.12").records
    server.sent = 0
    (second,) = measure("gpu-pkg==1.0", "--python", "3.12").records
    assert second == first
    assert server.sent == 0
    assert len(measure("gpu-pkg==1.0", "--python", "3.12", "--no-cache").records) == 1
    assert server.sent > 0


def test_a_wrong_digest_ends_in_one_line_and_no_record_not_even_the_next_time(server, measure):
    library = make_shared_object(code=UNIT, data=noise(66 * MIB))  # more than is always read whole
    content = wheel(0, **{"gpu_pkg/big.so": library})
    server.add(NAME, content)
    server.digests[NAME] = "0" * 64
    for _ in range(2):
        found = measure("gpu-pkg==1.0", "--python", "3.12")
        assert (found.status, found.records) == (2, [])
        (line,) = [e for e in found.errors.splitlines() if e.startswith("error: ")]
        assert f"has the SHA-256 {hashlib.sha256(content).hexdigest()}, not {'0' * 64}" in line


def test_a_digest_in_the_url_is_compared(server, measure):
    content = wheel()
    url = server.add(NAME, content)
    good = measure(f"{url}#sha256={hashlib.sha256(content).hexdigest()}")
    assert good.status == 0
    assert measure(f"{url}#sha256={'1' * 64}").status == 2


@pytest.mark.parametrize("lie", ["start", "total", "status", "etag", "endless"])
def test_a_server_that_lies_ends_in_one_line_and_no_record(server, measure, lie):
    url = server.add(NAME, wheel(0, **{"gpu_pkg/data.bin": noise(3 * MIB)}))
    server.lie = lie
    found = measure(url)
    assert (found.status, found.records) == (2, [])
    assert len([e for e in found.errors.splitlines() if e.startswith("error: ")]) == 1


def test_a_zip_bomb_ends_in_one_line_and_little_memory(server, measure):
    url = server.add(NAME, wheel(1, **{"gpu_pkg/bomb.so": b"\x7fELF" + bytes(500 * MIB)}))
    found = measure(url)
    assert (found.status, found.records) == (2, [])
    assert "a compression bomb" in found.errors
    assert found.peak < 300


def test_a_connection_that_is_cut_now_and_then_does_not_matter(server, measure):
    library = make_shared_object(needs=["libcudart.so.12"], code=UNIT, data=noise(8 * MIB))
    server.add(NAME, wheel(0, **{"gpu_pkg/big.so": library}))
    server.cut_after = 3 * MIB
    (record,) = measure("gpu-pkg==1.0", "--python", "3.12").records
    assert record["libraries"][0]["path"] == "gpu_pkg/big.so"


def test_a_measurement_that_was_cut_off_goes_on_where_it_was(server, measure):
    libraries = {
        f"gpu_pkg/part{n}.so": make_shared_object(code=UNIT, data=noise(30 * MIB, n))
        for n in range(3)
    }
    content = wheel(0, **libraries)
    server.add(NAME, content)
    server.stop_after = 75 * MIB
    stopped = measure("gpu-pkg==1.0", "--python", "3.12")
    assert (stopped.status, stopped.records) == (2, [])
    assert "run the command again" in stopped.errors
    server.stop_after, server.sent = None, 0
    found = measure("gpu-pkg==1.0", "--python", "3.12")
    assert found.status == 0, found.errors
    assert len(found.records[0]["libraries"]) == 5
    assert server.sent < 45 * MIB


def test_400_mb_over_http_stay_below_300_mib_and_cost_only_what_is_needed(server, measure):
    library = make_shared_object(
        needs=["libcudart.so.12"], front=noise(150 * MIB), code=UNIT, behind=noise(40 * MIB, 2)
    )
    content = make_wheel(
        {"gpu_pkg/big.so": library, "gpu_pkg/weights.bin": noise(220 * MIB, 3)},
        name="gpu-pkg",
        stored=True,
    )
    server.add(NAME, content)
    assert len(content) > 400 * 1000 * 1000
    found = measure("gpu-pkg==1.0", "--python", "3.12")
    assert found.status == 0, found.errors
    (record,) = found.records
    assert record["libraries"][0]["needs"] == ["libcudart.so.12"]
    assert record["verified"] == "members"
    assert found.peak < 300
    # the tables stand in the middle of this library, so that it is read up to there a second time
    assert server.sent < 0.9 * len(content)


def test_with_whole_all_bytes_are_read_and_compared(server, measure):
    content = make_wheel(
        {"gpu_pkg/a.so": make_shared_object(code=UNIT), "gpu_pkg/b.bin": noise(90 * MIB)},
        name="gpu-pkg",
        stored=True,
    )
    server.add(NAME, content)
    (part,) = measure("gpu-pkg==1.0", "--python", "3.12", "--no-cache").records
    assert part["verified"] == "members"
    assert server.sent < 5 * MIB
    (whole,) = measure("gpu-pkg==1.0", "--python", "3.12", "--no-cache", "--whole").records
    assert whole == {key: value for key, value in part.items() if key != "verified"}
    server.digests[NAME] = "0" * 64
    assert measure("gpu-pkg==1.0", "--python", "3.12", "--no-cache", "--whole").status == 2


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("gpu-pkg", "is not a release of a package"),
        ("gpu-pkg>=1.0", "is not a release of a package"),
        ("gpu-pkg==1.*", "is not a release of a package"),
        ("ftp://x.example/a-1.0-py3-none-any.whl", "is not the URL of a wheel"),
        ("no-such-file-1.0-py3-none-any.whl", "the file does not exist"),
    ],
)
def test_what_names_no_wheel_is_an_error_that_says_what_would(measure, what, message):
    found = measure(what)
    assert found.status == 2
    assert message in found.errors


def test_a_release_without_a_wheel_for_the_platform_says_what_it_has(server, measure):
    server.add(NAME, wheel())
    found = measure("gpu-pkg==1.0", "--platform", "windows-x86_64")
    assert found.status == 2
    assert NAME in found.errors
    assert len(measure("gpu-pkg==1.0", "--platform", "windows-x86_64", "--all").records) == 1


def test_records_are_kept_in_a_file_of_facts_of_one_package(server, measure, tmp_path):
    kept = tmp_path / "pkg.yaml"
    other = NAME.replace("cp312", "cp311")
    for name in (NAME, other):
        url = server.add(name, wheel())
        assert measure(url, "--overlay", str(kept)).status == 0
    assert kept.read_text().startswith("schema: facts/packages/v1\npackage: gpu-pkg\n")
    records = parse_records("gpu-pkg", yaml.safe_load(kept.read_text()), "")
    assert [record.wheel for record in records] == [other, NAME]
    stranger = server.add("pkg-1.0-py3-none-any.whl", make_wheel({}))
    found = measure(stranger, "--overlay", str(kept))
    assert found.status == 2
    assert "has the records of gpu-pkg, not of pkg" in found.errors
    nowhere = measure(stranger, "--overlay", str(tmp_path / "no" / "pkg.yaml"))
    assert nowhere.status == 2
    assert "--overlay: cannot be written" in nowhere.errors
