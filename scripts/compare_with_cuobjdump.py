"""Compares what `compatgate facts measure` counts with what NVIDIA's cuobjdump lists, file by file.

    pip install 'cuda-toolkit[cuobjdump]'
    python scripts/compare_with_cuobjdump.py --out bench/cuobjdump.md torchvision==0.24.0 ...

Each wheel is measured as the command does it. Then each of its libraries and kernel files is
written to a temporary folder, listed and removed again.
Without arguments the wheels of ``WHEELS`` are compared. Exit status 1 where something differs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from compatgate.catalog import load_facts
from compatgate.check.wheels import ProgressLines
from compatgate.core.facts.records import Library, Record
from compatgate.discovery.cache import default_wheel_folder
from compatgate.discovery.gpucode import read_gpu_code
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.registry.transport import Transport
from compatgate.discovery.wheels.byte_files import RangeFile
from compatgate.discovery.wheels.index import PackageIndex, choose_wheel, read_index_settings
from compatgate.discovery.wheels.measure import MeasureOptions, list_ptx_toolkits, measure_file
from compatgate.discovery.wheels.names import is_kernel_file, is_library
from compatgate.errors import CompatgateError

WHEELS = (
    "torchvision==0.24.0",
    "torchaudio==2.9.0",
    "torchao==0.14.1",
    "torchcodec==0.7.0",
    "bitsandbytes==0.48.1",
    "faiss-gpu-cu12==1.14.1.post1",
    "ctranslate2==4.6.0",
    "xgrammar==0.1.25",
    "triton==3.5.0",
    "xformers==0.0.32.post2",
    "xgboost==3.1.1",
    "warp-lang==1.19.0",
    "cupy-cuda12x==13.6.0",
    "nvidia-nvjitlink-cu12==12.4.127",
    "nvidia-curand-cu12==10.3.9.90",
    "nvidia-nvshmem-cu12==3.3.24",
    "nvidia-cufft-cu12==11.3.3.83",
    "nvidia-cusparse-cu12==12.5.8.93",
    "nvidia-cusolver-cu12==11.7.3.90",
    "nvidia-cusparselt-cu12==0.7.1",
    "nvidia-nccl-cu12==2.27.5",
    "sgl-kernel==0.3.7",
    "nvidia-cublas-cu12==12.8.4.1",
)
"""Small and large, compressed and not, PTX of several toolkits, relocatable code."""


class Row(NamedTuple):
    """One file.

    Attributes:
        result: ``same``, ``differs``, or what cuobjdump says where it does not read the file.
    """

    path: str
    result: str
    detail: str = ""


def main() -> int:
    """Compare, and write a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", metavar="PKG==VERSION")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump") or "cuobjdump")
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--out", metavar="FILE", help="append a section for each wheel")
    args = parser.parse_args()
    differing = 0
    for what in args.what or WHEELS:
        try:
            record, rows = compare(what, args.cuobjdump, args.python)
        except CompatgateError as error:
            print(f"{what}: {error.detail}", file=sys.stderr)
            differing += 1
            continue
        differing += sum(row.result == "differs" for row in rows)
        text = section(record, rows)
        print(text, flush=True)
        if args.out:
            with open(args.out, "a", encoding="utf-8") as file:
                file.write(text)
    return 1 if differing else 0


def compare(what: str, cuobjdump: str, python: str) -> tuple[Record, list[Row]]:
    """Measure a wheel, and list each of its files with cuobjdump."""
    name, _, version = what.partition("==")
    toolkits = list_ptx_toolkits(load_facts().arch)
    options = MeasureOptions(toolkits=toolkits, cache=default_wheel_folder())
    rows: list[Row] = []
    with Deadline(7200) as deadline, Transport(ImageOptions(), deadline) as transport:
        index = PackageIndex(read_index_settings()[:1], transport)
        (wheel,) = choose_wheel(index.wheels(name, version), Platform("linux", "x86_64", python))
        record = measure_file(wheel, index, transport, options, ProgressLines())
        libraries = {library.path: library for library in record.libraries}
        remote = RangeFile(transport, wheel.url, wheel.name, size=wheel.size)
        with zipfile.ZipFile(cast("IO[bytes]", remote)) as archive:
            for member in archive.infolist():
                path = member.filename
                if not (is_library(path) or is_kernel_file(path)) or not member.file_size:
                    continue
                remote.plan(member.header_offset + member.compress_size + 4096)
                with tempfile.TemporaryDirectory() as folder:
                    local = Path(folder) / Path(path).name
                    with archive.open(member) as source, open(local, "wb") as target:
                        shutil.copyfileobj(source, target, 1 << 20)
                    rows += _compared(path, libraries.get(path), local, cuobjdump)
    return record, rows


def _compared(path: str, library: Library | None, file: Path, cuobjdump: str) -> Iterator[Row]:
    """Compare the list of cuobjdump with what is found; nothing where neither has any code.

    cuobjdump lists entries, the record counts translation units: the file is read once more, by its
    tables and not as a stream, for the entries, and for the units that the record has to have.
    """
    with open(file, "rb") as opened:
        if opened.read(4) not in (b"\x7fELF", b"!<ar", b"\x50\xed\x55\xba"):
            return
    listed, problem, isa = listing(cuobjdump, file)
    code = read_gpu_code(file)
    found = Counter(entry.name for entry in code.entries if entry.kind != "lto")
    units = (library.sass, library.ptx, library.units) if library else ({}, {}, 0)
    tables = (code.units.sass, code.units.ptx, code.units.count)
    if units != tables:
        yield Row(path, "differs", f"recorded {units}, by its tables {tables}")
    elif listed == found and isa == code.ptx_isa:
        if listed:
            yield Row(path, "same", _counts(units[0] | units[1]))
    elif problem:
        yield Row(
            path, "not listed", f"{problem}; listed {_counts(listed)}; found {_counts(found)}"
        )
    elif +Counter(_plain(listed)) == +Counter(_plain(found)):
        yield Row(path, "same but for the f of cubins", _counts(found))
    else:
        yield Row(path, "differs", f"listed {_counts(listed)} {isa}; found {_counts(found)}")


def _counts(counts: Mapping[str, int]) -> str:
    return " ".join(f"{arch}:{count}" for arch, count in sorted(counts.items())) or "nothing"


def _plain(counts: Mapping[str, int]) -> Counter[str]:
    """Return counts without the letter ``f``, which cuobjdump leaves out."""
    plain: Counter[str] = Counter()
    for arch, count in counts.items():
        plain[arch.removesuffix("f")] += count
    return plain


def listing(cuobjdump: str, file: Path) -> tuple[Counter[str], str, str | None]:
    """Return what cuobjdump lists: entries by architecture, complaint, newest PTX version."""
    found: Counter[str] = Counter()
    versions: set[tuple[int, int]] = set()
    process = subprocess.Popen(  # noqa: S603 - the caller chose it
        [cuobjdump, "-all", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    complaint = ""
    kind = arch = ""
    for line in cast("IO[str]", process.stdout):
        if match := re.match(r"Fatbin (\w+)(?: \w+)? code:", line):
            kind = match[1]
        elif line.startswith("cuobjdump ") and not complaint:
            complaint = line.strip().replace(str(file), file.name)
        elif match := re.match(r"\s*arch = sm_(\w+)", line):
            arch = match[1]
            name = {"elf": "sm", "ptx": "compute"}.get(kind)
            if name:
                found[f"{name}_{arch}"] += 1
        elif kind == "ptx" and (match := re.match(r"\s*code version = \[(\d+),(\d+)\]", line)):
            versions.add((int(match[1]), int(match[2])))
    process.wait()
    newest = ".".join(map(str, max(versions))) if versions else None
    return found, complaint, newest


def section(record: Record, rows: list[Row]) -> str:
    """Return a section of the page."""
    counts: Any = Counter(row.result for row in rows)
    summary = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    lines = [f"## {record.package} {record.version}", "", f"`{record.wheel}`", ""]
    lines += [f"SHA-256 `{record.sha256}`: {summary or 'no GPU code, by both'}", ""]
    lines += [
        f"- `{row.path}`: {row.result}" + (f" ({row.detail})" if row.detail else "")
        for row in rows
        if row.result != "same" or len(rows) <= 4
    ]
    return "\n".join(lines).rstrip() + "\n\n"


if __name__ == "__main__":
    sys.exit(main())
