"""Keys of deploy webhooks that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.cli.main import main


def test_a_gate_is_not_served_with_a_key_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--port", "0", "--database", str(tmp_path / "g.db"), "--hook-secret", "ci=/nowhere"]
    assert main(["serve", *options]) == 2
    assert "--hook-secret ci: cannot read /nowhere" in capsys.readouterr().err
