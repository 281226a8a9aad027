"""Frameworks have one format: sources count downwards, and a file of one's own adds a framework."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from compatgate.catalog import load_facts, open_library
from compatgate.catalog.build import adapt
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build
from compatgate.errors import BadInput

Write = Callable[..., str]

NEW = """
schema: facts/framework/v1
component: transformer-engine
os: [linux]
releases:
- version: 9.9.0
  source: our build pipeline
  confidence: metadata
  python: {wheels: ['3.12']}
  builds:
  - name: cuda12
    cuda: '12.8'
    accepts: 12.8.*
    default: true
    code: {sass: ['9.0'], ptx: []}
    pins: {cudnn: {spec: ==9.10.2.21}}
"""


def read(**release: Any) -> Build:
    """The one build of a made-up release."""
    told = {"version": "1.0", "source": "the page", "confidence": "published"}
    document = {"component": "torch", "releases": [{**told, **release}]}
    build: Build = adapt("framework/torch", document).releases[0].builds[0]
    return build


def test_what_says_no_source_has_that_of_what_it_is_a_part_of() -> None:
    pins = {
        "cudnn": {"spec": "9.*"},
        "nccl": {"spec": "2.*", "source": "x", "confidence": "derived"},
    }
    plain = {"name": "a", "accepts": "12.*", "pins": pins}
    build = read(builds=[plain])
    assert build.source.title == build.pins["cudnn"].source.title == "the page"
    assert build.pins["cudnn"].source.confidence == "published"
    assert build.pins["nccl"].source.title == "x"
    build = read(builds=[{**plain, "source": "the feed", "confidence": "metadata"}])
    assert build.source.title == build.pins["cudnn"].source.title == "the feed"


def test_builds_share_the_requirements_that_the_document_names() -> None:
    needs = {"packages": ['triton==3.0.0; python_version < "3.13"', "nvidia-nccl-cu12==2.20.5"]}
    group = {**needs, "source": "the wheel", "confidence": "metadata"}
    builds = [
        {"name": "cu121", "accepts": "12.1.*", "requirements": [group]},
        {"name": "cu118", "accepts": "11.8.*"},
    ]
    told = {"version": "1.0", "source": "the page", "confidence": "published", "builds": builds}
    shared = {"packages": ["triton"], "source": "the script", "confidence": "published"}
    document = {"component": "torch", "releases": [told], "shared_requirements": shared}
    own, other = adapt("framework/torch", document).releases[0].builds
    assert own.requires == tuple(needs["packages"])
    expected = 'triton==3.0.0; (python_version < "3.13") and platform_machine == "x86_64"'
    assert other.requires == (expected,)
    assert other.requires_source is not None
    assert other.requires_source.title == "the script"


def test_a_minimum_of_the_release_is_that_of_each_build_that_says_no_other() -> None:
    minimum = {"value": "7.0", "source": "the table", "confidence": "derived"}
    build = read(minimum_capability=minimum, builds=[{"name": "a", "accepts": "12.*"}])
    assert build.minimum_capability == (7, 0)
    assert build.arch_source is not None
    assert build.arch_source.title == "the table"
    own = {"name": "a", "accepts": "12.*", "minimum_capability": {"value": "7.5"}}
    assert read(minimum_capability=minimum, builds=[own]).minimum_capability == (7, 5)


@pytest.mark.parametrize(
    ("accepts", "major"), [("12.4.*", 12), ("13.*", 13), (">=11.2,<12", 11), ("==12.1", 12)]
)
def test_the_cuda_major_is_that_of_what_a_build_accepts(accepts: str, major: int) -> None:
    assert read(builds=[{"name": "a", "accepts": accepts}]).cuda_major == major


def test_code_that_is_not_known_is_not_an_empty_list() -> None:
    assert read(builds=[{"name": "a", "accepts": "12.*"}]).sass is None
    none = {"name": "a", "accepts": "12.*", "code": {"sass": [], "ptx": []}}
    assert read(builds=[none]).sass == ()


class TestAFrameworkOfOnesOwn:
    @pytest.fixture
    def ours(self, overlay: Write) -> Facts:
        return load_facts([overlay(NEW)])

    def test_it_is_a_table_like_the_shipped_ones(self, ours: Facts) -> None:
        assert "transformer-engine" in ours.framework_names
        assert "transformer-engine" not in load_facts([]).framework_names
        table = ours.framework("transformer-engine")
        assert table is not None
        assert table.releases[0].builds[0].sass == ((9, 0),)

    @pytest.mark.parametrize(
        ("gpu", "version", "rule", "outcome"),
        [
            ("H100-SXM5-80GB", "9.9.0", None, "pass"),
            ("A100-SXM4-80GB", "9.9.0", "CG405", "fail"),
            ("H100-SXM5-80GB", "9.9.1", "CG401", "unknown"),
        ],
    )
    def test_rules_judge_it(
        self,
        overlay: Write,
        command: Callable[..., tuple[int, str, str]],
        gpu: str,
        version: str,
        rule: str | None,
        outcome: str,
    ) -> None:
        stack = f"cuda=12.8,cudnn=9.10.2,python=3.12,transformer-engine={version}"
        pool = f"driver=580.65.06,gpu={gpu}"
        arguments = ("--stack", stack, "--pool", pool, "--facts", overlay(NEW), "--format", "json")
        _, out, _ = command("check", *arguments)
        verdict = json.loads(out)
        assert verdict["verdict"] == outcome
        assert rule is None or rule in {finding["rule"] for finding in verdict["findings"]}

    def test_commands_show_it(
        self, overlay: Write, command: Callable[..., tuple[int, str, str]]
    ) -> None:
        path = overlay(NEW)
        assert "transformer-engine  1 releases" in command("facts", "list", "--facts", path)[1]
        shown = command("facts", "show", "transformer-engine", "9.9.0", "--facts", path)
        assert "our build pipeline" in shown[1]
        assert command("facts", "verify", "--facts", path)[0] == 0

    def test_a_file_of_ones_own_is_changed_by_the_next(self, overlay: Write) -> None:
        change = """
        schema: facts/framework/v1
        component: transformer-engine
        releases: [{version: 9.9.0, builds: [{name: cuda12, default: false}]}]
        """
        table = load_facts([overlay(NEW), overlay(change, "2.yaml")]).framework(
            "transformer-engine"
        )
        assert table is not None
        assert not table.releases[0].builds[0].default

    def test_the_digest_names_it(self, overlay: Write) -> None:
        assert load_facts([overlay(NEW)]).digest != load_facts([]).digest
        assert "frameworks/transformer-engine" in open_library([overlay(NEW)]).names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            NEW.replace("  builds:", "  bulids:"),
            "releases[version=9.9.0]: 'builds' is missing",
        ),
        (
            NEW.replace("  confidence: metadata\n", ""),
            "releases[version=9.9.0]: 'confidence' is missing",
        ),
        (
            NEW.replace("  python: {", "  python: {source: x, "),
            "releases[version=9.9.0].python: has the wrong form",
        ),
        ("schema: facts/framework/v1\ncomponent: transformer-engine", "'releases' is missing"),
        (
            NEW.replace("accepts: 12.8.*", "accepts: about 12"),
            "builds[name=cuda12].accepts: 'about 12' is not a range of versions",
        ),
        (
            NEW.replace("transformer-engine", "tensorlow"),
            "component: 'tensorlow' is not a component",
        ),
        (NEW.replace("transformer-engine", "pytorch"), "'pytorch' is an alias of torch"),
        (NEW.replace("component:", "framework:"), "does not name its framework"),
    ],
)
def test_a_mistake_is_named(overlay: Write, text: str, message: str) -> None:
    path = overlay(text)
    with pytest.raises(BadInput) as caught:
        load_facts([path])
    assert caught.value.detail.startswith(path)
    assert message in caught.value.detail


@pytest.mark.parametrize(
    ("before", "component"),
    [
        ("pytorch", "torch"),
        ("tensorflow", "tensorflow"),
        ("jax", "jax"),
        ("onnxruntime", "onnxruntime-gpu"),
        ("vllm", "vllm"),
        ("cupy", "cupy"),
        ("tensorrt", "tensorrt"),
    ],
)
def test_a_file_of_an_earlier_format_says_what_to_write(
    overlay: Write, before: str, component: str
) -> None:
    path = overlay(f"schema: facts/{before}/v1\nreleases: [{{version: 2.4.1}}]")
    with pytest.raises(BadInput) as caught:
        load_facts([path])
    told = str(caught.value)
    assert f"{path}: schema facts/{before}/v1 is no longer supported" in told
    assert f"write schema: facts/framework/v1 and component: {component}" in told
    assert f"compatgate facts show {component}" in told


def test_a_file_named_like_a_framework_needs_no_schema_line(overlay: Write) -> None:
    path = overlay("releases: [{version: 2.4.1, remove: true}]", "torch.yaml")
    torch = load_facts([path]).framework("torch")
    assert torch is not None
    assert all(release.version.text != "2.4.1" for release in torch.releases)
