"""``compatgate triage`` asks about the versions and the GPU that the text states."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., tuple[int, str, str]]
ERROR = "CUDA error: no kernel image is available for execution on the device\n"
STATED = "torch==2.15.0\nDriver Version: 580.95.05\nGPU 0: Tesla V100-SXM2-16GB\n"


def _triage(command: Run, folder: Path, text: str, *options: str) -> dict[str, Any]:
    log = folder / "run.log"
    log.write_text(text)
    status, out, _ = command("triage", str(log), "--format", "json", *options)
    assert status == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_what_the_text_states_is_used_and_shown(command: Run, tmp_path: Path) -> None:
    found = _triage(command, tmp_path, ERROR + STATED)
    assert found["stated"] == {
        "torch": "2.15.0",
        "driver": "580.95.05",
        "gpu": "V100-SXM2-16GB",
    }
    assert found["causes"][0]["here"]["outcome"] == "fails"
    assert found["causes"][0]["rule"] == "CG405"
    _, out, _ = command("triage", str(tmp_path / "run.log"))
    assert out.startswith("stated in the text, and used: torch=2.15.0, driver=580.95.05, gpu=V100")


def test_options_win_over_the_text(command: Run, tmp_path: Path) -> None:
    place = ("--pool", "driver=580.95.05,gpu=H100-SXM5-80GB")
    found = _triage(command, tmp_path, ERROR + STATED, *place)
    assert found["stated"] == {"torch": "2.15.0"}
    assert found["causes"][0]["here"]["outcome"] != "fails"


def test_a_text_that_lacks_a_part_is_triaged_as_it_is(command: Run, tmp_path: Path) -> None:
    found = _triage(command, tmp_path, ERROR + "torch==2.15.0\n")
    assert found["stated"] == {}
    assert "here" not in found["causes"][0]
