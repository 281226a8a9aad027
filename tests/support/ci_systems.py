"""Runs the steps of CI templates as their systems do: variables, interpolation, shells, outputs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import prepared
import yaml

ROOT = Path(__file__).parents[2]
CI = ROOT / "deploy" / "ci"
ACTION = CI / "github" / "action.yml"
COMPONENT = CI / "gitlab" / "templates" / "check.yml"
MATRIX_ACTION = CI / "github" / "matrix" / "action.yml"
MATRIX_COMPONENT = CI / "gitlab" / "templates" / "matrix.yml"
JENKINSFILE = CI / "jenkins" / "Jenkinsfile"
TASK = CI / "tekton" / "compatgate-check.yaml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"


class Outcome(NamedTuple):
    """How a job ended, what it printed, and what it gave to those that follow."""

    status: int
    stdout: str
    stderr: str
    outputs: Mapping[str, str]


class Machine:
    """A machine of a CI system: a workspace, and compatgate on its path.

    Args:
        folder: of its own; the workspace is in it.
    """

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.temp = folder / "temp"
        self.programs = folder / "bin"
        for made in (self.workspace, self.temp, self.programs):
            made.mkdir()
        shutil.copy2(prepared.program(), self.programs)
        self.env = {k: os.environ[k] for k in ("LANG", "HOME") if k in os.environ}
        self.env |= prepared.of_interpreter()
        self.env |= {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "XDG_DATA_HOME": str(folder),
            "TMPDIR": str(self.temp),
        }

    def program(self, name: str, script: str) -> None:
        """Put a shell script on the path."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, shell: list[str], script: str, env: Mapping[str, str]) -> Outcome:
        """Run a script in the workspace."""
        file = self.temp / "script"
        file.write_text(script)
        done = subprocess.run(
            [*shell, str(file)],
            cwd=self.workspace,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr, {})


def load(path: Path) -> Any:
    """The only YAML document of a file."""
    return yaml.load(path.read_text(), yaml.CSafeLoader)


def run_action(machine: Machine, inputs: Mapping[str, str]) -> Outcome:
    """The composite action with inputs, as the runner of GitHub Actions runs it."""
    action = load(ACTION)
    unknown = set(inputs) - set(action["inputs"])
    assert not unknown, f"there is no input {unknown}"
    given = {name: str(spec["default"]) for name, spec in action["inputs"].items()} | dict(inputs)
    outputs: dict[str, dict[str, str]] = {}
    stdout = stderr = ""
    status = 0
    for number, step in enumerate(action["runs"]["steps"]):
        files = {name: machine.temp / f"{name}-{number}" for name in ("OUTPUT", "PATH", "SUMMARY")}
        env = {k: _expression(str(v), inputs=given) for k, v in step.get("env", {}).items()}
        env |= {
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ACTION.parent),
            "GITHUB_OUTPUT": str(files["OUTPUT"]),
            "GITHUB_PATH": str(files["PATH"]),
            "GITHUB_STEP_SUMMARY": str(files["SUMMARY"]),
            "RUNNER_TEMP": str(machine.temp),
        }
        shells = {"bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}
        done = machine.run(shells[step["shell"]], step["run"], env)
        stdout, stderr, status = stdout + done.stdout, stderr + done.stderr, done.status
        outputs[step.get("id", str(number))] = _github_outputs(files["OUTPUT"])
        if status:
            break
    values = {
        name: _expression(spec["value"], steps=outputs) for name, spec in action["outputs"].items()
    }
    return Outcome(status, stdout, stderr, values)


def _expression(text: str, **contexts: Any) -> str:
    def value(match: re.Match[str]) -> str:
        found: Any = contexts
        for part in match[1].strip().split("."):
            found = found.get(part, {}) if part != "outputs" or part in found else found
        return found if isinstance(found, str) else ""

    return re.sub(r"\$\{\{(.*?)\}\}", value, text)


def _github_outputs(path: Path) -> dict[str, str]:
    values: dict[str, str] = {}
    lines = iter(path.read_text().splitlines() if path.exists() else ())
    for line in lines:
        name, _, delimiter = line.partition("<<")
        values[name] = "\n".join(iter(lambda end=delimiter: next(lines), delimiter))
    return values


def run_component(
    machine: Machine, inputs: Mapping[str, Any], variables: Mapping[str, str], shell: str = "bash"
) -> Outcome:
    """The GitLab component with inputs and the project's variables, as a runner runs its job."""
    _, job = component(inputs)
    (found,) = job.values()
    env = {
        name: str(value["value"] if isinstance(value, dict) else value)
        for name, value in found["variables"].items()
    }
    script = "\n".join(found["script"])
    options = ["-eo", "pipefail"] if shell == "bash" else ["-e"]
    done = machine.run([shell, *options], script, {**variables, **env, "CI": "true"})
    reports = found["artifacts"]["reports"]
    dotenv = machine.workspace / reports["dotenv"]
    lines = dotenv.read_text().splitlines() if dotenv.exists() else ()
    return done._replace(outputs=dict(line.split("=", 1) for line in lines))


def component(
    inputs: Mapping[str, Any], path: Path = COMPONENT
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The component's header, and its jobs with inputs filled in."""
    head, body = path.read_text().split("\n---\n")
    header = yaml.load(head, yaml.CSafeLoader)
    known = header["spec"]["inputs"]
    unknown = set(inputs) - set(known)
    assert not unknown, f"there is no input {unknown}"
    given = {n: spec["default"] for n, spec in known.items() if "default" in spec} | dict(inputs)

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {filled(k): filled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [filled(item) for item in value]
        if not isinstance(value, str):
            return value
        return re.sub(
            r"\$\[\[ inputs\.(\w+) \]\]",
            lambda m: (
                str(given[m[1]]).lower() if given[m[1]] in (True, False) else str(given[m[1]])
            ),
            value,
        )

    return header, filled(yaml.load(body, yaml.CSafeLoader))


def run_jenkins(machine: Machine, variables: Mapping[str, str]) -> Outcome:
    """The shell steps of the Jenkinsfile, with its environment under the given one."""
    text = JENKINSFILE.read_text()
    (block,) = re.findall(r"environment \{\n(.*?)\n  \}", text, re.DOTALL)
    stated = dict(re.findall(r"^ +(\w+) = '(.*)'$", block, re.MULTILINE))
    done = Outcome(0, "", "", {})
    for script in re.findall(r"sh '''(.*?)'''", text, re.DOTALL):
        done = machine.run(["sh", "-xe"], script, {**stated, **variables})
        if done.status:
            break
    return done


def run_task(
    machine: Machine, params: Mapping[str, str], token: str = "", mounted: Path | None = None
) -> Outcome:
    """The Tekton task with parameters, as its step's container runs the script.

    Args:
        machine: whose workspace is the task's.
        params: of the run.
        token: in the secret; empty: there is no secret.
        mounted: folder in the place of the only volume; None: its config map is missing.
    """
    task = load(TASK)["spec"]
    results = machine.temp / "results"
    results.mkdir(exist_ok=True)
    given = {p["name"]: p.get("default") for p in task["params"]} | dict(params)
    assert not [name for name, value in given.items() if value is None], "a parameter is missing"

    def filled(text: str) -> str:
        text = re.sub(r"\$\(params\.([\w-]+)\)", lambda m: str(given[m[1]]), text)
        text = re.sub(r"\$\(results\.([\w-]+)\.path\)", lambda m: str(results / m[1]), text)
        return text.replace("$(workspaces.source.path)", str(machine.workspace))

    (step,) = task["steps"]
    env = {e["name"]: filled(e["value"]) for e in step["env"] if "value" in e}
    (mount,) = step["volumeMounts"]
    place = mounted or machine.temp / "nothing"
    script = filled(step["script"]).replace(f"{mount['mountPath']}/", f"{place}/")
    shell = script.partition("\n")[0].removeprefix("#!").split()
    done = machine.run(shell, script, {**env, "COMPATGATE_TOKEN": token})
    return done._replace(outputs={file.name: file.read_text() for file in results.iterdir()})
