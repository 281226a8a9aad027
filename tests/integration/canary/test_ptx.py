"""The PTX that canary/ptx-jit hands to drivers is real: NVIDIA's assembler takes every version."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cuda_toolkit import Toolkit

from compatgate.resources import canary_dir

TABLE: dict[str, Any] = json.loads((canary_dir() / "ptx-jit" / "versions.json").read_text())


@pytest.fixture
def ptx(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(canary_dir() / "lib"))
    yield import_module("canary_ptx")
    sys.modules.pop("canary_ptx")


@pytest.mark.parametrize("isa", [row["isa"] for row in TABLE["versions"]])
@pytest.mark.parametrize("rounds", [4, 2000])
def test_every_claimed_version_assembles(
    toolkit: Toolkit, ptx: ModuleType, tmp_path: Path, isa: str, rounds: int
) -> None:
    text = tmp_path / "kernel.ptx"
    text.write_text(ptx.kernel(isa, TABLE["target"], 7, rounds))
    # Pointed at a GPU as the driver does, though the text is for an older one.
    toolkit.run("ptxas", "-arch=sm_80", text, "-o", tmp_path / "kernel.cubin")
    assert (tmp_path / "kernel.cubin").stat().st_size > 0


def test_a_version_that_is_newer_than_the_assembler_is_refused(
    toolkit: Toolkit, ptx: ModuleType, tmp_path: Path
) -> None:
    text = tmp_path / "kernel.ptx"
    text.write_text(ptx.kernel("99.0", TABLE["target"], 7, 1))
    with pytest.raises(AssertionError, match=r"Unsupported \.version 99\.0"):
        toolkit.run("ptxas", "-arch=sm_80", text, "-o", tmp_path / "kernel.cubin")


def test_each_text_is_another_one_for_a_cache(ptx: ModuleType) -> None:
    texts = {ptx.kernel("7.0", "sm_52", nonce, 4) for nonce in range(100)}
    assert len(texts) == 100
    assert ptx.expected(1, 4, 8) != ptx.expected(2, 4, 8)
