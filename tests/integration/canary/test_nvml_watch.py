"""What programs may watch through NVML while they run; a stand-in of NVML says it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from canary_programs import compile_library

from compatgate.resources import canary_dir

SOURCE = r"""
typedef struct { void *device; unsigned long long kind, data; unsigned gi, ci; } event;
static int gpu, left = EVENTS;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = &gpu; return 0; }
int nvmlDeviceGetTemperature(void *d, unsigned sensor, unsigned *t) { *t = 83; return sensor; }
int REASONS(void *d, unsigned long long *mask) { *mask = MASK; return 0; }
int nvmlEventSetCreate(void **set) { *set = &left; return 0; }
int nvmlDeviceRegisterEvents(void *d, unsigned long long kinds, void *set) {
    return d == &gpu && kinds == 8 && set == &left ? REFUSED : 2; }
int nvmlEventSetWait_v2(void *set, event *e, unsigned ms) {
    if (set != &left || ms || !left) return 10;
    e->device = &gpu; e->kind = 8; e->data = 70 + left--; return 0; }
"""
CODE = """
import json
from canary_nvml import Nvml
with Nvml() as nvml:
    gpu, = nvml.devices()
    events = nvml.watch_xids()
    seen = None if events is None else [nvml.xids(events), nvml.xids(events)]
    print(json.dumps([nvml.temperature(gpu), nvml.slowdowns(gpu), seen]))
"""
NEW, OLD = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"


def _watched(tmp_path: Path, reasons: str = NEW, **settings: int) -> list[Any]:
    source = tmp_path / "nvml.c"
    source.write_text(SOURCE.replace("REASONS", reasons))
    defines = {"EVENTS": 0, "REFUSED": 0, "MASK": 0, **settings}
    compile_library(source, tmp_path / "libnvidia-ml.so.1", **defines)
    paths = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(canary_dir() / "lib")}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def test_xids_are_told_once_and_in_order(tmp_path: Path) -> None:
    assert _watched(tmp_path, EVENTS=2) == [83, [], [[72, 71], []]]


def test_a_gpu_that_tells_no_events_is_told_from_one_without_any(tmp_path: Path) -> None:
    assert _watched(tmp_path, REFUSED=3)[2] is None
    assert _watched(tmp_path)[2] == [[], []]


@pytest.mark.parametrize("reasons", [NEW, OLD])
def test_heat_slows_down_and_a_power_limit_is_normal(tmp_path: Path, reasons: str) -> None:
    assert _watched(tmp_path, reasons, MASK=0x4)[1] == []
    assert _watched(tmp_path, reasons, MASK=0x4 | 0x20 | 0x80)[1] == ["heat", "power brake"]


def test_a_driver_that_knows_no_reasons_answers_nothing(tmp_path: Path) -> None:
    assert _watched(tmp_path, "nvmlDeviceGetSomethingElse")[1] is None


def test_the_condition_of_the_gpu_at_an_address_is_read(tmp_path: Path) -> None:
    source = tmp_path / "nvml.c"
    source.write_text(SOURCE.replace("REASONS", NEW) + CONDITIONS)
    compile_library(source, tmp_path / "libnvidia-ml.so.1", EVENTS=0, REFUSED=0, MASK=0x25)
    paths = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(canary_dir() / "lib")}
    code = "import canary_conditions as c, json; "
    code += "print(json.dumps([c.watch([{'pci': p}]) for p in ('00000000:9c:00.0', "
    code += "'00000000:9b:00.0')] + [c.read()]))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **paths}, capture_output=True, check=True
    )
    unknown, known, now = json.loads(done.stdout)
    assert (unknown, known) == ("not recorded: NVML does not know the GPU's bus address", "nvml")
    assert now == {
        "sm_mhz": 1980,
        "watts": 612.5,
        "celsius": 83,
        "limits": ["power limit", "heat"],
    }


CONDITIONS = r"""
#include <string.h>
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **d) {
    *d = &gpu; return strcmp(pci, "00000000:9b:00.0") ? 6 : 0; }
int nvmlDeviceGetClockInfo(void *d, unsigned kind, unsigned *mhz) { *mhz = 1980; return kind != 1; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { *mw = 612500; return 0; }
"""
