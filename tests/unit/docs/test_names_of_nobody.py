"""What users copy and open names nothing that anyone could register while no release is published.

Once one is, `compatgate.resources` changes, and with it the first patterns here.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from compatgate import resources

ROOT = Path(__file__).parents[3]
NOT_COPIED = (
    "CHANGELOG.md", "tests/", "bench/", "matrix/facts/",
    "docs/reference/cli.md", "docs/reference/rest-operations.md",
)  # fmt: skip
"""History, figures, what others say, and what is generated from texts of the program."""
IDENTIFIERS = ("problems/", "attestations/verdict/v1", "schema/v1/", "stacks/", "gate")
"""What stands behind ``https://compatgate.dev/`` as a name that is compared and never opened."""
PATTERNS = {
    "an installer takes the name from the public index": re.compile(
        r"\b(?:uvx|(?:pipx?|uv(?: pip| tool)?) (?:install|run|add))(?: -\S+)*"
        r" ['\"]?compatgate(?![\w./-])"
    ),
    "a requirement on the public index": re.compile(r"(?<![\w/.-])compatgate(?:\[|[=~>]=)"),
    "a step of somebody's repository": re.compile(r"uses: *(?!\./)\S*compatgate"),
    "an owner to be filled in": re.compile(r"\bOWNER/"),
    "a repository of a public host": re.compile(
        r"(?:github\.com|gitlab\.com|codeberg\.org)[/:][\w.-]+/compatgate\b"
    ),
    "an image of a public registry": re.compile(
        r"(?:\b(?:image|repository|newName):|docker (?:pull|push|run)(?: -\S+)*) +['\"]?"
        r"(?:(?:ghcr|docker|quay)\.io/[\w./-]*)?compatgate(?::[\w.]+)?['\"]?(?= *(?:#|$))"
    ),
    "a page of a domain that serves none": re.compile(
        rf"https?://(?:[\w-]+\.)?compatgate\.(?!dev/(?:{'|'.join(IDENTIFIERS)}))"
        r"(?:dev|io|com|org|net|ai)\b"
    ),
}
EXAMPLES = {
    "pip install compatgate": 1,
    "pip install 'compatgate[nvml]==1.0'": 2,
    "uv tool install compatgate": 1,
    "pipx run compatgate": 1,
    "bin/pip install --quiet compatgate": 1,
    "uses: OWNER/compatgate/deploy/ci/github@v0.1.0": 2,
    "repo: https://github.com/someone/compatgate": 1,
    "  image: compatgate:local": 1,
    "image: ghcr.io/team/compatgate:1": 1,
    "helpUri: https://compatgate.dev/rules#cg102": 1,
    "runbook_url: https://docs.compatgate.io/how-to/runbook/": 1,
    "pip install '.[nvml]'": 0,
    "pip install ./compatgate-0.2.0-py3-none-any.whl": 0,
    "uses: ./.compatgate/deploy/ci/github": 0,
    "image: registry.example/compatgate:0.2.0": 0,
    "type: https://compatgate.dev/problems/not-found": 0,
    "pip install ., then run compatgate check": 0,
}


def texts() -> dict[str, str]:
    """Return the tracked texts that users read, run or copy, by path."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = {}
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if name.startswith(NOT_COPIED) or not path.is_file():
            continue
        try:
            found[name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
    return found


def objections(text: str) -> list[str]:
    return [why for why, pattern in PATTERNS.items() if pattern.search(text)]


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_patterns_find_what_they_are_for(text: str) -> None:
    assert len(objections(text)) == EXAMPLES[text], objections(text)


def test_nothing_is_installed_run_or_opened_from_a_name_that_nobody_owns() -> None:
    wrong = [
        f"{name}:{number}: {', '.join(why)}: {line.strip()[:120]}"
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if "compatgate" in line or "OWNER" in line
        if (why := objections(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_hint_about_an_extra_names_the_place_of_a_release() -> None:
    assert resources.install_hint("nvml") == "in a checkout of compatgate: pip install '.[nvml]'"
