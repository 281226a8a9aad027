"""The examples of docs/how-to/lockfiles.md are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compatgate.errors import InconclusiveInput

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "lockfiles.md"
EXAMPLES = re.findall(
    r"^```lockfile (\S+)\n(.*?)^```\n+^```stack\n(.*?)^```", PAGE.read_text(), re.M | re.S
)


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize(("name", "text", "expected"), EXAMPLES)
def test_an_example_of_the_documentation_is_true(read, name, text, expected):
    try:
        reading = read(name, text)
    except InconclusiveInput as error:
        said = [f"inconclusive {error.field}: {error.problem}"]
    else:
        said = [f"{o.component} {o.version} {o.origin}" for o in reading.observations]
        said += [f"open {item}" for item in reading.open]
    assert said == expected.splitlines()
