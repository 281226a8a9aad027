"""What installed files are measured to hold: that of the wheel, and what cuobjdump lists."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import msgspec
import pytest
from installed import SITE, install, unpack

from compatgate.catalog import load_facts
from compatgate.core.facts.records import Record
from compatgate.discovery.local import inspect_path
from compatgate.discovery.wheels.measure import MeasureOptions, list_ptx_toolkits, measure_path
from compatgate.discovery.wheels.names import uses_gpu_libraries

ARCHES = ("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]")


@pytest.fixture(scope="module")
def facts():
    return load_facts(overlays=[])


def test_an_extension_that_was_built_in_place_is_what_cuobjdump_lists(toolkit, facts, tmp_path):
    path = toolkit.make(".so", *ARCHES, sources=("one", "two"))
    listing = toolkit.listing(path)
    parts = install("mine", "0.1.dev3", {"mine/_C.so": path.read_bytes()})
    stack = inspect_path(str(unpack(tmp_path, parts)), facts.arch, facts.packages).stack
    (library,) = stack["measured"]["mine"]["libraries"]
    assert library["sass"] == dict(Counter(listing.sass))
    assert library["ptx"] == dict(Counter(listing.ptx))
    assert library["ptx_cuda"].startswith("13.")


def test_it_is_judged_without_a_record_and_denied_where_it_does_not_run(toolkit, tmp_path):
    flags = ("-gencode=arch=compute_80,code=sm_80",)
    path = toolkit.make(".so", *flags, sources=("one", "two"))
    root = unpack(tmp_path, install("mine", "0.1.dev3", {"mine/_C.so": path.read_bytes()}))
    document = subprocess.run(
        [sys.executable, "-m", "compatgate", "inspect", str(root), "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (tmp_path / "app.json").write_text(document)
    answers = {}
    for gpu in ("A100-SXM4-80GB", "H100-SXM5-80GB"):
        pool = f"driver=580.95.05,gpu={gpu}"
        command = ["check", "--pool", pool, "--probe", str(tmp_path / "app.json")]
        answers[gpu] = subprocess.run(
            [sys.executable, "-m", "compatgate", *command],
            capture_output=True,
            text=True,
            check=False,
        )
    assert answers["A100-SXM4-80GB"].returncode == 0, answers["A100-SXM4-80GB"].stdout
    assert answers["H100-SXM5-80GB"].returncode == 1
    assert "mine/_C.so of mine 0.1.dev3 has no code" in answers["H100-SXM5-80GB"].stdout


def test_an_installed_wheel_is_measured_as_the_wheel_is(wheel, pip, facts, tmp_path):
    path = wheel("torchvision==0.24.0")
    site = tmp_path / SITE
    pip("install", "--no-deps", "--no-compile", "--target", str(site), str(path))
    stack = inspect_path(str(tmp_path), facts.arch, facts.packages).stack
    measured = stack["measured"]["torchvision"]
    found = msgspec.convert({"package": "torchvision", "version": "", **measured}, Record)
    record = measure_path(str(path), MeasureOptions(toolkits=list_ptx_toolkits(facts.arch)))
    assert (found.wheel, found.requires) == (record.wheel, record.requires)
    tied = [one for one in record.libraries if uses_gpu_libraries(one)]
    assert [one.path for one in found.libraries] == [one.path for one in tied]
    for ours, theirs in zip(found.libraries, tied, strict=True):
        assert ours == msgspec.structs.replace(theirs, opens=())
