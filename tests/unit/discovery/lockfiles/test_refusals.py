"""Whatever is empty, a template, unreadable or something else: never a pass.

What comes through standard input has no name: the content says what it is.

The examples of docs/how-to/lockfiles.md are true.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from known_packages import PACKAGES

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.errors import BadInput, CompatgateError, InconclusiveInput

NAMES = (
    "requirements.txt",
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "pylock.toml",
    "environment.yml",
    "conda-lock.yml",
    "pixi.lock",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", [b"", b" \n\t\n", b"\xef\xbb\xbf\n"])
def test_an_empty_file_is_inconclusive(name, data):
    with pytest.raises(InconclusiveInput, match="is empty") as caught:
        read_lockfile(name, data, known=PACKAGES, platform=Platform())
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "# nothing yet\n"),
        ("uv.lock", 'version = 1\nrequires-python = ">=3.11"\n'),
        (
            "poetry.lock",
            'package = []\n\n[metadata]\nlock-version = "2.1"\npython-versions = "*"\n',
        ),
        ("pdm.lock", '[metadata]\nlock_version = "4.5.0"\n'),
        ("pylock.toml", 'lock-version = "1.0"\ncreated-by = "uv"\npackages = []\n'),
        ("environment.yml", "name: x\ndependencies: []\n"),
        ("conda-lock.yml", "version: 1\nmetadata: {}\npackage: []\n"),
        ("explicit.txt", "@EXPLICIT\n"),
        ("pixi.lock", "version: 6\nenvironments: {}\npackages: []\n"),
    ],
)
def test_a_lock_without_packages_is_inconclusive(read, name, text):
    with pytest.raises(InconclusiveInput, match="has no packages"):
        read(name, text)


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_inconclusive_and_its_line_named(read, name):
    with pytest.raises(InconclusiveInput, match="is a template") as caught:
        read(name, "# header\ntorch=={{ torch_version }}\n")
    assert caught.value.field == f"{name}:2"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("environment.yml", "dependencies:\n- pytorch=${VERSION}\n"),
        ("uv.lock", 'version = 1\n[[package]]\nname = "torch"\nversion = "${V}"\nsource = {}\n'),
        ("pdm.lock", '[[package]]\nname = "torch"\nversion = "$(V)"\n'),
    ],
)
def test_a_variable_that_is_not_filled_in_is_inconclusive(read, name, text):
    with pytest.raises(InconclusiveInput, match="is a template"):
        read(name, text)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("uv.lock", b"\x00\x01\x02\x03"),
        ("uv.lock", b"\xff\xfe\x00"),
        ("requirements.txt", b"torch==\xff\xff\n"),
        ("photo.png", b"\x89PNG\r\n\x1a\n"),
        ("package-lock.json", b'{"lockfileVersion": 3}'),
        ("pyproject.toml", b"[project]\nname = 'x'\n"),
        ("Dockerfile", b"FROM nvidia/cuda:12.4.1-base\n"),
    ],
)
def test_what_is_no_lockfile_is_bad_input(name, data):
    with pytest.raises(BadInput) as caught:
        read_lockfile(name, data, known=PACKAGES, platform=Platform())
    assert caught.value.exit_code == 2
    assert caught.value.field == name


def test_an_unknown_file_is_told_what_is_read():
    with pytest.raises(BadInput, match=r"uv\.lock, collect_env, conda explicit list"):
        read_lockfile("Dockerfile", b"FROM scratch\n", known=PACKAGES, platform=Platform())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uv.lock", "package = " + "[" * 5000 + "]" * 5000),
        ("uv.lock", "a." * 1_000_000 + "a = 1"),
        ("pylock.toml", "a = " + "{ a = " * 3000 + "1" + " }" * 3000),
        ("environment.yml", "dependencies: " + "[" * 5000 + "]" * 5000),
        ("requirements.txt", "torch==2.4.1 ; " + "(" * 5000 + "os_name == ''" + ")" * 5000),
        ("requirements.txt", "torch==" + "9" * 100_000),
    ],
)
def test_what_is_nested_or_long_beyond_reason_is_refused(read, name, text):
    try:
        reading = read(name, text)
    except CompatgateError:
        return
    assert reading.open


def test_too_large_a_file_is_refused_before_it_is_read():
    with pytest.raises(BadInput, match="larger than 32 MiB"):
        read_lockfile("uv.lock", b"#" * (33 << 20), known=PACKAGES, platform=Platform())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("locked.txt", "torch==2.4.1+cu121\nnumpy==1.26.4\n"),
        ("gpu.yaml", "dependencies:\n- cuda-version=12.4\n"),
        (
            "env.lock.yml",
            "version: 1\nmetadata:\n  platforms: [linux-64]\npackage:\n"
            "- {name: cuda-version, version: '12.4', manager: conda, platform: linux-64}\n",
        ),
        (
            "gpu.txt",
            "@EXPLICIT\nhttps://conda.anaconda.org/nvidia/noarch/cuda-version-12.4-1.conda\n",
        ),
    ],
)
def test_an_unusual_name_is_recognised_by_content(read, name, text):
    assert len(read(name, text).observations) == 1


FILES = Path(__file__).parent / "files"
LOCKS = sorted(path for path in FILES.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_lock_says_the_same_without_its_name(path):
    platform = Platform(python="3.11")
    named = read_lockfile(path.name, path.read_bytes(), known=PACKAGES, platform=platform)
    nameless = read_lockfile("standard input", path.read_bytes(), known=PACKAGES, platform=platform)
    assert nameless.format == named.format
    assert [(o.component, o.version) for o in nameless.observations] == [
        (o.component, o.version) for o in named.observations
    ]


@pytest.mark.parametrize("text", ["hello world\n", "torch\n", "{}\n", "a: b\n", "<xml/>\n"])
def test_a_text_that_pins_nothing_is_no_lock(text):
    with pytest.raises(BadInput, match="is not a lockfile in a known format"):
        read_lockfile("standard input", text.encode(), known=PACKAGES, platform=Platform())


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
