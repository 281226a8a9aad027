"""What a wheel is measured to hold is what cuobjdump lists of the libraries in it."""

from __future__ import annotations

from collections import Counter

import pytest
from wheels import make_wheel

from compatgate.discovery.wheels.measure import MeasureOptions, measure_path

ARCHES = ("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]")
SEVERAL = ("one", "two", "three")


@pytest.fixture
def measure(tmp_path):
    def run(path, name="kernel.so"):
        wheel = tmp_path / "pkg-1.0-cp312-cp312-linux_x86_64.whl"
        wheel.write_bytes(make_wheel({f"pkg/{name}": path.read_bytes()}))
        (library,) = measure_path(str(wheel), MeasureOptions()).libraries
        return library

    return run


@pytest.mark.parametrize(
    "flags",
    [
        ARCHES,
        (*ARCHES, "-Xfatbin=-compress-all"),
        (*ARCHES, "-Xfatbin=--compress=false"),
        ("-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_75,code=compute_75"),
    ],
)
def test_units_of_a_library_are_the_entries_that_cuobjdump_lists(toolkit, measure, flags):
    path = toolkit.make(".so", *flags, sources=SEVERAL)
    listing = toolkit.listing(path)
    found = measure(path)
    assert found.sass == dict(Counter(listing.sass))
    assert found.ptx == dict(Counter(listing.ptx))
    # nvcc links the device code of any program: that is one more unit, with machine code alone
    assert found.units == len(SEVERAL) + 1 == max(found.sass.values())
    assert set(found.ptx.values()) == {len(SEVERAL)}
    assert [found.ptx_isa] == sorted(set(listing.isa))
    assert found.opens == ("libcuda.so.1",)  # of the runtime, which is linked in


def test_relocatable_code_counts_as_what_it_is_linked_to(toolkit, measure):
    path = toolkit.make(".so", *ARCHES, "-rdc=true", sources=SEVERAL)
    listing = toolkit.listing(path)
    found = measure(path)
    assert set(found.sass) == set(listing.sass) == {"sm_80", "sm_90"}
    assert (found.sass, found.ptx) == ({"sm_80": 1, "sm_90": 1}, {"compute_90": 1})
    # cuobjdump lists the objects, too
    assert Counter(listing.sass) == {"sm_80": 1 + len(SEVERAL), "sm_90": 1 + len(SEVERAL)}


@pytest.mark.parametrize("form", [".cubin", ".fatbin", ".ptx"])
def test_kernel_files_are_counted_as_cuobjdump_lists_them(toolkit, measure, form):
    flags = ("-arch=sm_90",) if form != ".ptx" else ("-arch=compute_90",)
    found = measure(toolkit.make(form, *flags), f"kernel{form}")
    assert found.units == 1
    assert {*found.sass, *found.ptx} <= {"sm_90", "compute_90"}
    if form == ".ptx":
        assert float(found.ptx_cuda) >= 13.5
