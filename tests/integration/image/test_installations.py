"""Two installations in one image: the one that the command names is judged, else the worst."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from image_blobs import Blob

from compatgate.core.request import parse_request

POOL = {"driver": "535.183.01", "gpu": "A100-SXM4-80GB"}
OLD, NEW = "opt/old/lib/python3.11", "opt/new/lib/python3.11"


def python(prefix: str, torch: str, *, venv: bool = True) -> dict[str, bytes]:
    """An interpreter's installation with torch."""
    site = f"{prefix}/lib/python3.11/site-packages"
    text = f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n\n"
    files = {f"{site}/torch-{torch}.dist-info/METADATA": text.encode()}
    if venv:
        files[f"{prefix}/pyvenv.cfg"] = b"home = /usr/bin\ninclude-system-site-packages = false\n"
    return files


OLD_FILES = python("opt/old", "2.4.1+cu121")
NEW_FILES = python("opt/new", "2.9.1+cu130")
PROGRAM = b"\x7fELF" + bytes(2000)
PYTHON = {f"opt/{name}/bin/python": "/usr/bin/python3.11" for name in ("old", "new")}


@pytest.fixture
def push(registry: Any, layer: Callable[..., Blob]) -> Callable[..., str]:
    """Push an image of these layers."""

    def call(*files: dict[str, bytes], **config: Any) -> str:
        links = layer({"usr/bin/python3.11": PROGRAM}, links=PYTHON)
        reference: str = registry.push(links, *map(layer, files), **config).reference
        return reference

    return call


@pytest.fixture
def decide(facts: Any, now: Any) -> Callable[..., Any]:
    from compatgate.core.evaluate import evaluate
    from compatgate.core.request import Target

    def call(body: dict[str, Any]) -> Any:
        request = parse_request(body, facts.gpus)
        return evaluate(request.stack, Target("", (request.pool,)), facts=facts, now=now)

    return call


@pytest.mark.parametrize("files", [(OLD_FILES, NEW_FILES), (NEW_FILES, OLD_FILES)])
def test_the_worst_counts_in_both_orders_of_the_layers(push, read, decide, files) -> None:
    found = read(push(*files))
    assert set(found.installations) == {OLD, NEW}
    verdict = decide({"stack": found.to_request(), "pool": POOL})
    assert not verdict.allowed
    assert any(OLD in f.message and NEW in f.message for f in verdict.findings)
    assert not found.conflicts


@pytest.mark.parametrize("files", [(OLD_FILES, NEW_FILES), (NEW_FILES, OLD_FILES)])
@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (["/opt/old/bin/python", "train.py"], True),
        (["/opt/new/bin/python", "train.py"], False),
        (["/opt/./old//bin/python"], True),
        (["/opt/new/bin/../../old/bin/python"], False),  # links decide where it leads
        (["python", "train.py"], True),  # PATH has the old one first
        (["sh", "-c", "/opt/old/bin/python train.py"], False),
        (["/opt/old/bin/train"], False),
        (["/usr/bin/python3.11"], False),
        ([], False),
    ],
)
def test_a_command_that_names_an_interpreter_decides(
    push, read, decide, files, command, allowed
) -> None:
    found = read(push(*files, env={"PATH": "/opt/old/bin:/opt/new/bin:/usr/bin"}))
    verdict = decide({"stack": found.to_request(command), "pool": POOL})
    assert verdict.allowed == allowed
    program = command[0] if command else ""
    named = program == "python" or (program.endswith("/bin/python") and ".." not in program)
    assert ("alternatives" in verdict.stack) != named


@pytest.mark.parametrize("folder", ["opt/cur", "opt/cur/bin"])
def test_a_folder_of_path_that_is_a_link_is_followed(registry, layer, read, folder) -> None:
    link = layer({}, links={folder: "../old" if folder == "opt/cur" else "../old/bin"})
    links = layer({"usr/bin/python3.11": PROGRAM}, links=PYTHON)
    path = {"PATH": "/opt/cur/bin:/opt/new/bin"}
    image = registry.push(links, layer(OLD_FILES), layer(NEW_FILES), link, env=path)
    body = read(image.reference).to_request(["python"])
    if folder == "opt/cur":  # to /old, where nothing is known
        assert "alternatives" in body
    else:
        assert body["cuda"] == "12.1"
        assert "alternatives" not in body


def test_an_interpreter_in_any_folder_of_path_is_seen(push, read) -> None:
    found = read(
        push(OLD_FILES, NEW_FILES, {"opt/x/python": PROGRAM}, env={"PATH": "/opt/x:/opt/old/bin"})
    )
    assert "alternatives" in found.to_request(["python"])


def test_variables_that_steer_an_interpreter_leave_the_worst(push, read) -> None:
    found = read(push(OLD_FILES, NEW_FILES, env={"PYTHONPATH": "/opt/new/lib"}))
    assert "alternatives" in found.to_request(["/opt/old/bin/python"])


def test_a_venv_with_the_system_s_packages_is_not_alone(push, read) -> None:
    shared = {"opt/old/pyvenv.cfg": b"include-system-site-packages = true\n"}
    found = read(push({**OLD_FILES, **shared}, NEW_FILES))
    assert "alternatives" in found.to_request(["/opt/old/bin/python"])


SCRIPT = b'#!/bin/sh\nexec /opt/new/bin/python "$@"\n'
LEAD = "opt/old/lib/python3.11/site-packages/base.pth"


@pytest.mark.parametrize(
    ("files", "links", "named"),
    [
        ({}, {}, True),
        ({"opt/old/bin/python": SCRIPT}, {}, False),
        ({"opt/old/bin/python": SCRIPT + bytes(2000)}, {}, False),
        ({"usr/bin/python3.11": SCRIPT}, {}, False),
        ({"opt/start": SCRIPT}, {"opt/old/bin/python": "../../start"}, False),
        ({}, {"opt/old/bin/python": "/usr/bin/env"}, False),
        ({LEAD: b"/opt/new/lib/python3.11/site-packages\n"}, {}, False),
        ({LEAD: b"# x\n../../../../new/lib/python3.11/site-packages/"}, {}, False),
        ({LEAD: b"import _virtualenv\n/workspace/src\n."}, {}, True),
    ],
)
def test_what_a_file_called_python_starts_must_be_known(
    registry, layer, read, files, links, named
) -> None:
    base = layer({"usr/bin/python3.11": PROGRAM}, links=PYTHON)
    top = layer(files, links=links)
    image = registry.push(base, layer(OLD_FILES), layer(NEW_FILES), top)
    body = read(image.reference).to_request(["/opt/old/bin/python", "train.py"])
    assert ("alternatives" not in body) == named


def test_equal_installations_are_one(push, read) -> None:
    found = read(push(OLD_FILES, python("opt/new", "2.4.1+cu121")))
    assert found.installations == ()
    assert "alternatives" not in found.stack_body


def test_conda_environments_and_interpreters_are_told_apart(push, read) -> None:
    record = b'{"name": "pytorch", "version": "2.4.1", "build": "py3.11_cuda12.1_cudnn9_0"}'
    conda = {"opt/conda/conda-meta/pytorch-2.4.1-py3.11_cuda12.1_cudnn9.1.0_0.json": record}
    found = read(push(conda, python("usr/local", "2.9.1+cu130", venv=False)))
    assert set(found.installations) == {"opt/conda", "usr/local/lib/python3.11"}


def test_two_toolkits_are_two_stacks(push, read) -> None:
    def toolkit(version: str) -> dict[str, bytes]:
        text = f'{{"cuda": {{"name": "CUDA SDK", "version": "{version}"}}}}'
        return {f"usr/local/cuda-{version[:4]}/version.json": text.encode()}

    for files in itertools.permutations((toolkit("12.1.1"), toolkit("13.0.0"))):
        found = read(push(*files))
        assert found.installations == ("usr/local/cuda-12.1", "usr/local/cuda-13.0")
        assert found.stack_body["alternatives"]["usr/local/cuda-13.0"]["cuda"] == "13.0.0"


def test_libraries_of_another_major_outside_of_an_installation_count(push, read) -> None:
    library = {"usr/lib/x86_64-linux-gnu/libcudart.so.13.0.48": b"x"}
    found = read(push(OLD_FILES, library))
    assert found.installations == (OLD, "outside of installations")
    near = {"usr/lib/x86_64-linux-gnu/libcudart.so.12.4.127": b"x"}
    assert read(push(OLD_FILES, near)).installations == ()
