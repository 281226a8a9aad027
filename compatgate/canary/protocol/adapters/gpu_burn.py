"""Read gpu-burn: progress lines that overwrite each other, and a verdict per GPU at the end.

Source: https://github.com/wilicc/gpu-burn, ``gpu_burn-drv.cpp`` (its exit status is 0 even when a
GPU was faulty).

Metrics: ``gflops-gpuN`` (GFLOP/s) and ``temperature-gpuN`` (C), one value per report. A report in
which a GPU finished no new work has no value for it, and its first is warm-up. Checks: ``right``
(no wrong result), ``alive`` (every process survived to the end).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from compatgate.canary.protocol.adapters import tool
from compatgate.canary.protocol.adapters.tool import ToolResults
from compatgate.canary.run import Device
from compatgate.discovery.nvidia_smi import formats

_DONE = re.compile(r"(-?\d+) \((\d+) Gflop/s\)")
_ERRORS = re.compile(r"(-?\d+)\s*(\(DIED!\)|\(WARNING!\))?")
_TEMPERATURE = re.compile(r"(\d+) C|--")
_BEHIND = re.compile(r"power: |read\[")
"""Text after the temperatures: the power (newer versions), or an error of another stream."""
_TESTED = re.compile(r"Tested (\d+) GPUs:")
_VERDICT = re.compile(r"\s*GPU (\d+): (OK|FAULTY)\s*")
_NOT_BEGUN = re.compile(r"Couldn't init a GPU test: .*")
_STARTS = re.compile(r"\d+(?:\.\d+)?%\s+proc'd:")


def read_gpu_burn(text: str, found: ToolResults) -> None:
    """Read the whole output."""
    for device in report.devices if (report := formats.parse_list(text)) else ():
        found.gpu(Device(name=device.name, uuid=device.uuid))
    burn = _Burn(found)
    for line in text.splitlines():
        burn.take(line)
    burn.end()


class _Burn:
    """Reader that works line by line."""

    def __init__(self, found: ToolResults) -> None:
        self._found = found
        self._done: dict[int, int] = {}
        self._wrong: dict[int, int] = {}
        self._died: set[int] = set()
        self._reports = 0
        self._tested: int | None = None
        self._verdicts: dict[int, bool] = {}

    def take(self, line: str) -> None:
        if _STARTS.match(line):
            self._progress(line)
        elif _NOT_BEGUN.match(line):
            if not tool.note_gpu_burn(line, self._found):
                self._found.check("alive", False, line)
        elif match := _TESTED.match(line.strip()):
            self._tested = int(match[1])
        elif self._tested is not None and (match := _VERDICT.fullmatch(line)):
            self._verdicts[int(match[1])] = match[2] == "OK"

    def _progress(self, line: str) -> None:
        done_part, _, rest = line.partition("errors: ")
        errors_part, _, rest = rest.partition("temps: ")
        temps_part = _BEHIND.split(rest)[0]
        done, errors = _DONE.findall(done_part), _ERRORS.findall(errors_part)
        temps = _TEMPERATURE.findall(temps_part)
        if not temps or _TEMPERATURE.sub("", temps_part).strip(" -"):
            self._found.problem(f"a report is cut off: {line[:200]}")
            return
        if not len(done) == len(errors) == len(temps):
            self._found.problem(f"a report has different numbers of GPUs: {line.strip()[:200]}")
            return
        self._reports += 1
        for gpu, (report, error, temp) in enumerate(zip(done, errors, temps, strict=True)):
            self._rate(gpu, int(report[0]), float(report[1]))
            if temp:
                self._found.metric(f"temperature-gpu{gpu}", "C", [float(temp)])
            # The count overflows; of a process that died it is uninitialized memory.
            if error[1] == "(DIED!)":
                self._died.add(gpu)
            elif int(error[0]):
                self._wrong.setdefault(gpu, int(error[0]))

    def _rate(self, gpu: int, done: int, rate: float) -> None:
        """Record the rate of a report in which the GPU finished work; the first includes set-up."""
        before = self._done.get(gpu, 0)
        self._done[gpu] = done
        if done <= before:
            return
        name = f"gflops-gpu{gpu}"
        if before == 0:
            self._found.metric(name, "GFLOP/s", [], warmup=[rate])
        else:
            self._found.metric(name, "GFLOP/s", [rate])

    def end(self) -> None:
        result = self._found
        if not self._reports:
            result.problem("the output has no report of gpu-burn")
        if self._tested is None:
            result.problem("the verdict at the end is missing")
        elif sorted(self._verdicts) != list(range(self._tested)) or not self._tested:
            result.problem(f"{len(self._verdicts)} of {self._tested} GPUs have a verdict")
        idle = [gpu for gpu in self._verdicts if self._done.get(gpu, 0) < 1]
        if idle:
            result.problem(f"finished no work, despite its verdict: {_gpus(idle)}")
        faulty = {gpu for gpu, ok in self._verdicts.items() if not ok} | set(self._wrong)
        if faulty:
            self._found.check("right", False, f"wrong results: {_gpus(faulty)}")
        elif self._verdicts and not idle:
            many = len(self._verdicts)
            self._found.check("right", True, f"{many} GPUs without a wrong result")
        if self._died:
            self._found.check("alive", False, f"the process died: {_gpus(self._died)}")
        elif self._verdicts:
            self._found.check("alive", True)


def _gpus(numbers: Iterable[int]) -> str:
    return ", ".join(f"GPU {gpu}" for gpu in sorted(numbers))
