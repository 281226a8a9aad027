"""Extras, groups, members: named when nothing else is there."""

from __future__ import annotations

import pytest

from compatgate.core.stack import parse_stack
from compatgate.discovery.observations import settle
from compatgate.errors import InconclusiveInput

POETRY = """
[[package]]
name = "torch"
version = "2.4.1+cu121"
optional = true
python-versions = ">=3.8"
groups = ["main"]
markers = "extra == \\"gpu\\" and sys_platform == \\"linux\\""
files = []

[extras]
docs = ["sphinx"]
gpu = ["torch"]

[metadata]
lock-version = "2.1"
python-versions = ">=3.10"
content-hash = "00"
"""

WHEEL = "torch-2.4.1%2Bcu121-cp311-cp311-linux_x86_64.whl"

PYLOCK = """lock-version = "1.0"
created-by = "test"
extras = ["docs", "gpu"]
dependency-groups = ["train"]

[[packages]]
name = "torch"
version = "2.4.1+cu121"
marker = "{}"
index = "https://download.pytorch.org/whl/cu121"
wheels = [
    {{ url = "https://example.com/{}", hashes = {{ sha256 = "00" }} }},
]
"""

WORKSPACE = """version = 1
requires-python = ">=3.11"

[manifest]
members = ["app", "trainer"]

[[package]]
name = "app"
version = "0.1.0"
source = {{ {} }}

[[package]]
name = "trainer"
version = "0.1.0"
source = {{ editable = "packages/trainer" }}
dependencies = [{{ name = "torch" }}]

[[package]]
name = "torch"
version = "2.4.1+cu121"
source = {{ registry = "https://download.pytorch.org/whl/cu121" }}
"""


def test_a_package_of_a_poetry_extra_is_named(read):
    assert "extra gpu has torch 2.4.1+cu121" in read("poetry.lock", POETRY).open[0]


def test_an_extra_does_not_bring_what_is_for_another_platform(read):
    with pytest.raises(InconclusiveInput, match="no packages for windows"):
        read("poetry.lock", POETRY, target="windows x86_64 3.11")


@pytest.mark.parametrize(
    ("marker", "named"),
    [("'gpu' in extras", "extra gpu"), ("'train' in dependency_groups", "group train")],
)
def test_a_package_of_a_pylock_extra_or_group_is_named(read, marker, named):
    reading = read("pylock.toml", PYLOCK.format(marker, WHEEL))
    assert reading.observations == ()
    assert f"{named} has torch 2.4.1+cu121" in reading.open[0]


def test_of_a_workspace_the_project_at_its_root_is_installed(read):
    reading = read("uv.lock", WORKSPACE.format('virtual = "."'))
    assert reading.observations == ()
    assert "member trainer has torch 2.4.1+cu121" in reading.open[0]


def test_a_workspace_without_a_project_installs_all_members(stack):
    text = WORKSPACE.format('editable = "packages/app"')
    assert stack("uv.lock", text) == {"torch": "2.4.1+cu121"}


@pytest.mark.parametrize(
    "name",
    [
        "torch-2.4/uv.lock",
        "torch-2.4/pdm.lock",
        "torch-2.11/uv.lock",
        "torch-explicit/poetry.lock",
        "jax/requirements.txt",
        "tensorflow/uv.lock",
        "vllm/uv.lock",
        "conda/conda-lock.yml",
        "conda/explicit.txt",
        "conda/exported.yml",
    ],
)
def test_what_is_read_settles_into_a_stack_without_conflict(read, name):
    reading = read(name)
    body, conflicts = settle(reading.observations)
    assert conflicts == ()
    assert "cuda" in parse_stack(body).components
