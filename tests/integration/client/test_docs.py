"""The examples of docs/reference/client.md, run in order on a service of their own."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest
from serving import Server

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "client.md"
NEW = """
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: torch26-cu126}
spec: {targets: [prod-a100], components: {torch: 2.6.*}, status: candidate}
"""


def test_the_examples_print_what_the_page_says(
    server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "matrix.yaml").write_text(NEW)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```pycon\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    text = "\n".join(blocks).replace("http://127.0.0.1:8080", url)
    names: dict[str, Any] = {"TOKEN": server.token}
    test = doctest.DocTestParser().get_doctest(text, names, PAGE.name, str(PAGE), 0)
    told: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    assert runner.run(test, out=told.append).failed == 0, "".join(told)
    assert len(test.examples) > 20
