"""Each CI template against a running gate: allowed, denied, no decision, and no gate at all."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from ci_systems import (
    HOOKS,
    ROOT,
    Machine,
    Outcome,
    component,
    run_action,
    run_component,
    run_jenkins,
    run_task,
)
from jwt_issuer import GITLAB, serving_jobs
from tables import read_table

MATRIX = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod-a100}
spec:
  pools:
    - {name: a100, gpu: A100-SXM4-80GB, driver: 580.95.05, os: linux, count: 512}
  policy: {mode: enforce, onUnknown: fail}
  match: {namespaces: [ml-train]}
"""
ALLOWED = "torch==2.4.1+cu121\nnvidia-cudnn-cu12==9.1.0.70\n"
DENIED = "torch==2.4.1+cu121\nnvidia-cudnn-cu12==8.9.7.29\n"
UNKNOWN = "torch>=2.4\n"
NOBODY = "http://127.0.0.1:9"
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  annotations: {compatgate.dev/stack: "%s"}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: train
          image: registry.example/train:1
          resources: {limits: {nvidia.com/gpu: 1}}
"""
MANIFESTS = {
    "allowed": (JOB % "cuda=12.4,arch=sm_80", 0, "pass"),
    "denied": (JOB % "cuda=12.4,arch=sm_90", 1, "fail"),
    "undecided": (JOB % "", 3, "unknown"),
    "wrong": ("kind: Job\n", 2, "unknown"),
}
CASES = {
    "allowed": (ALLOWED, 0, "pass", "true"),
    "denied": (DENIED, 1, "fail", "false"),
    "undecided": (UNKNOWN, 3, "unknown", "false"),
    "unreachable": (ALLOWED, 3, "unknown", "false"),
}
HOSTILE = ("$(touch pwned)", "`touch pwned`", '"; touch pwned; "', "a\n$(touch pwned)", "--help")
PAGE = ROOT / "docs" / "how-to" / "ci.md"
EXAMPLES = [
    yaml.load(block, yaml.CSafeLoader)
    for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
]


@pytest.fixture(scope="module")
def gate(start_shared_server, tmp_path_factory):
    """A gate that answers nobody without a token."""
    matrix = tmp_path_factory.mktemp("matrix") / "matrix.yaml"
    matrix.write_text(MATRIX)
    return start_shared_server("--matrix", str(matrix), "--anonymous", "none")


@pytest.fixture(scope="module")
def token(gate) -> str:
    return gate.admin("POST", "tokens", {"name": "ci", "scopes": ["read", "gate"]})["secret"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(params=CASES)
def case(request, machine, gate):
    """A lockfile in the workspace, the server to ask, and the answer to expect."""
    lock, *expected = CASES[request.param]
    (machine.workspace / "requirements.txt").write_text(lock)
    return NOBODY if request.param == "unreachable" else gate.url, *expected


def example(kind: str):
    """The example of docs/how-to/ci.md that has this key."""
    (found,) = (document for document in EXAMPLES if kind in document)
    return found


def said(outcome: Outcome) -> str:
    return f"{outcome.stdout}\n{outcome.stderr}"


def test_the_action_answers_as_documented(case, machine, token, gate):
    server, status, verdict, allowed = case
    (step,) = (s for s in example("jobs")["jobs"]["compatgate"]["steps"] if "id" in s)
    assert step["with"]["token"] == "${{ secrets.COMPATGATE_TOKEN }}"
    inputs = {**step["with"], "lock": "requirements.txt", "server": server, "token": token}
    done = run_action(machine, inputs)
    assert done.status == status, said(done)
    assert (done.outputs["verdict"], done.outputs["allowed"]) == (verdict, allowed)
    assert token not in said(done)
    if server == NOBODY:
        assert "::error title=compatgate::" in done.stdout
        assert not (machine.workspace / "comment.md").exists()
        return
    assert done.outputs["id"].startswith("vd_")
    assert done.outputs["markdown"].startswith("<!-- compatgate: target prod-a100 -->")
    assert f"[verdict]({gate.url}/v/{done.outputs['id']})" in done.outputs["markdown"]
    assert gate.call("GET", f"verdicts/{done.outputs['id']}", token=token)[0] == 200
    assert json.loads((machine.workspace / "compatgate.sarif").read_text())["version"] == "2.1.0"
    assert ("::error file=requirements.txt,line=" in done.stdout) is (allowed == "false")


def test_the_action_may_fail_open(machine, gate, token):
    (machine.workspace / "requirements.txt").write_text(ALLOWED)
    inputs = {"target": "prod-a100", "lock": "requirements.txt", "server": NOBODY}
    done = run_action(machine, {**inputs, "fail-open": "true"})
    assert done.status == 0
    assert "::warning title=compatgate::" in done.stdout
    assert "NO DECISION WAS MADE" in done.stderr
    assert done.outputs["allowed"] == "false"


@pytest.fixture(scope="module")
def jobs():
    with serving_jobs() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def trusting_gate(start_shared_server, tmp_path_factory, jobs):
    """A gate that trusts an issuer of job tokens."""
    folder = tmp_path_factory.mktemp("trusting")
    (folder / "matrix.yaml").write_text(MATRIX)
    claims = {"repository": "acme/trainer", "environment": "prod"}
    gitlab = {"project_path": "acme/trainer", "ref_protected": True}
    rules = [
        {"name": name, "claims": these, "scopes": ["read", "gate"], "targets": ["prod-*"]}
        for name, these in (("github", claims), ("gitlab", gitlab))
    ]
    trusted = {"issuer": jobs.url, "audience": "https://gate.example", "rules": rules}
    (folder / "oidc.json").write_text(json.dumps({"jobs": [trusted]}))
    oidc = ["--oidc", str(folder / "oidc.json"), "--anonymous", "none"]
    return start_shared_server("--matrix", str(folder / "matrix.yaml"), *oidc)


@pytest.mark.parametrize("audience", ["https://gate.example", "https://another.example", ""])
def test_the_action_asks_with_githubs_token(machine, jobs, trusting_gate, audience):
    (machine.workspace / "requirements.txt").write_text(ALLOWED)
    machine.env["ACTIONS_ID_TOKEN_REQUEST_URL"] = f"{jobs.url}/token?api-version=2"
    machine.env["ACTIONS_ID_TOKEN_REQUEST_TOKEN"] = "of the job"
    job = example("compatgate")["compatgate"]
    assert job["permissions"]["id-token"] == "write"
    (step,) = (s for s in job["steps"] if s["uses"].startswith("./"))
    inputs = {**step["with"], "lock": "requirements.txt", "server": trusting_gate.url}
    done = run_action(machine, {**inputs, "audience": audience})
    if audience == "https://gate.example":
        assert done.status == 0, said(done)
        assert done.outputs["verdict"] == "pass"
        return
    assert done.status == 2
    assert f"aud does not match: {audience or trusting_gate.url}" in said(done)


def test_the_action_says_which_permission_is_missing(machine, trusting_gate):
    (machine.workspace / "requirements.txt").write_text(ALLOWED)
    inputs = {"target": "prod-a100", "lock": "requirements.txt", "server": trusting_gate.url}
    done = run_action(machine, {**inputs, "id-token": "true"})
    assert done.status == 2
    assert (
        "::warning title=compatgate::No ID token: add permissions: id-token: write" in done.stdout
    )


def test_the_component_asks_with_gitlabs_token(machine, jobs, trusting_gate):
    (machine.workspace / "uv.lock").write_text("")
    inputs = {"target": "prod-a100", "stack": "torch=2.4.1+cu121,cudnn=9.1.0"}
    inputs |= {"server": trusting_gate.url, "audience": "https://gate.example"}
    _, body = component(inputs)
    (job,) = body.values()
    (named,) = job["id_tokens"].items()
    assert named == ("COMPATGATE_ID_TOKEN", {"aud": "https://gate.example"})
    variables = {"COMPATGATE_ID_TOKEN": jobs.token(GITLAB), "COMPATGATE_TOKEN": "cg_of_nobody"}
    done = run_component(machine, inputs, variables)
    assert done.status in (0, 1), said(done)
    variables["COMPATGATE_ID_TOKEN"] = jobs.token({**GITLAB, "ref_protected": "false"})
    done = run_component(machine, inputs, variables)
    assert done.status == 2
    assert "no rule of this gate matches the job: ref_protected is 'false'" in said(done)


def test_the_action_takes_several_files_and_pools(machine):
    for name, lock in (("a.txt", ALLOWED), ("b.txt", DENIED)):
        (machine.workspace / name).write_text(lock)
    pools = "driver=580.95.05,gpu=A100-SXM4-80GB\n  driver=580.95.05,gpu=L4  \n"
    done = run_action(machine, {"pool": pools, "lock": "a.txt\nb.txt\n"})
    assert done.status == 1, said(done)
    assert "a.txt: ALLOWED" in done.stdout
    assert "b.txt: DENIED" in done.stdout


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_template_asks_about_manifests(name, machine, gate, token):
    """Each system checks a folder of rendered manifests, and its reports name the line."""
    text, status, verdict = MANIFESTS[name]
    folder = machine.workspace / "rendered"
    folder.mkdir()
    (folder / "job.yaml").write_text(text)
    inputs = {"manifests": "rendered", "namespace": "ml-train", "server": gate.url}
    action = run_action(machine, {**inputs, "manifests": "\n  rendered \n", "token": token})
    assert action.status == status, said(action)
    assert action.outputs["verdict"] == verdict
    if status in (1, 3):
        assert re.search(r"::error file=rendered/job\.yaml,line=\d+,title=CG", action.stdout)
    component = run_component(machine, inputs, {"COMPATGATE_TOKEN": token}, "sh")
    assert component.status == status, said(component)
    if status != 2:
        assert component.outputs["COMPATGATE_VERDICT"] == verdict
        quality = json.loads((machine.workspace / "compatgate.json").read_text())
        assert all(one["location"]["path"] == "rendered/job.yaml" for one in quality)
    (machine.workspace / "requirements.txt").write_text(ALLOWED)
    variables = {"COMPATGATE_SERVER": gate.url, "COMPATGATE_TOKEN": token}
    variables |= {"GPU_LOCK": "requirements.txt", "GPU_NAMESPACE": "ml-train"}
    jenkins = run_jenkins(machine, {**variables, "GPU_MANIFESTS": "rendered"})
    assert jenkins.status == status, said(jenkins)
    assert (machine.workspace / "compatgate-manifests.xml").exists() is (status != 2)
    task = run_task(machine, inputs, token)
    assert task.status == status, said(task)
    assert task.outputs["verdict"] == verdict


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_input_of_the_action_is_part_of_a_command(machine, hostile):
    names = ("target", "pool", "stack", "image", "lock", "sbom", "server", "token")
    inputs = dict.fromkeys((*names, "fail-open", "format", "show-at"), hostile)
    manifests = {"manifests": hostile, "namespace": hostile, "server": hostile}
    for given in (inputs, manifests, {"manifests": hostile}):
        done = run_action(machine, given)
        assert done.status == 2, said(done)
        assert not list(machine.workspace.iterdir())


@pytest.mark.parametrize(
    ("package", "installed"),
    [
        ("dist/compatgate-0.1.0-py3-none-any.whl", "dist/compatgate-0.1.0-py3-none-any.whl"),
        ("1 $(touch pwned)", "1 $(touch pwned)"),
        ("", f"{ROOT}/deploy/ci/github/../../..[sbom]"),
    ],
)
def test_the_action_installs_a_package_or_itself_where_there_is_none(machine, package, installed):
    """With a Python whose environments have a pip that writes down what it is asked for."""
    if not package:
        (machine.programs / "compatgate").unlink()
    pip = 'for word; do printf "%s\\n" "$word"; done > "$RUNNER_TEMP/asked"'
    made = f"printf '%s\\n' '#!/bin/sh' {shlex.quote(pip)} > \"$3/bin/pip\""
    machine.program("python3", f'mkdir -p "$3/bin" && {made} && chmod +x "$3/bin/pip"')
    run_action(machine, {"package": package, "pool": "driver=580.95.05,gpu=L4"})
    asked = (machine.temp / "asked").read_text().splitlines()
    assert asked == ["install", "--quiet", "--", installed]
    assert (machine.temp / "PATH-0").read_text() == f"{machine.temp}/compatgate/bin\n"
    assert not list(machine.workspace.iterdir())


def test_the_component_answers_as_documented(case, machine, token):
    server, status, verdict, allowed = case
    (include,) = example("include")["include"]
    inputs = {**include["inputs"], "lock": "requirements.txt", "server": server}
    done = run_component(machine, inputs, {"COMPATGATE_TOKEN": token})
    assert done.status == status, said(done)
    reports = {path.name for path in machine.workspace.iterdir()} - {"requirements.txt"}
    if server == NOBODY:
        assert not reports
        return
    assert reports == {"compatgate.xml", "compatgate.json", "compatgate.env", "compatgate.md"}
    assert done.outputs["COMPATGATE_VERDICT"] == verdict
    assert done.outputs["COMPATGATE_ALLOWED"] == allowed


def test_the_component_takes_no_package_from_the_public_index(machine):
    (machine.programs / "compatgate").unlink()
    machine.program("pip", "echo installed; exit 1")
    inputs = {"target": "prod-a100", "stack": "cuda=12.4", "server": NOBODY}
    done = run_component(machine, inputs, {}, "sh")
    assert (done.status, done.stdout) == (2, "")
    assert "name its image in python_image, or a wheel in package" in done.stderr
    done = run_component(machine, {**inputs, "package": "compatgate.whl"}, {}, "sh")
    assert (done.status, done.stdout) == (1, "installed\n")


def test_the_component_may_fail_open(machine):
    inputs = {"target": "prod-a100", "stack": "cuda=12.4", "server": NOBODY, "fail_open": True}
    for shell in ("bash", "sh"):
        assert run_component(machine, inputs, {}, shell).status == 0


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_input_of_the_component_is_part_of_a_command(machine, hostile):
    names = ("target", "pool", "stack", "image", "lock", "sbom", "server")
    for given in (names, ("manifests", "namespace", "server"), ("manifests",)):
        done = run_component(machine, dict.fromkeys(given, hostile), {}, "sh")
        assert done.status == 2, said(done)
        assert not list(machine.workspace.iterdir())


def test_the_jenkinsfile_answers(case, machine, token):
    server, status, _, _ = case
    variables = {
        "COMPATGATE_SERVER": server,
        "COMPATGATE_TOKEN": token,
        "GPU_LOCK": "requirements.txt",
    }
    done = run_jenkins(machine, variables)
    assert done.status == status, said(done)
    assert (machine.workspace / "compatgate.xml").exists() is (server != NOBODY)
    assert token not in said(done)


def test_the_task_answers_and_has_its_results(case, machine, token):
    server, status, verdict, allowed = case
    params = {"server": server, "target": "prod-a100", "lock": "requirements.txt"}
    done = run_task(machine, params, token)
    assert done.status == status, said(done)
    assert (done.outputs["verdict"], done.outputs["allowed"]) == (verdict, allowed)
    assert done.outputs["id"].startswith("vd_") is (server != NOBODY)


def test_the_run_of_the_task_in_the_documentation_names_its_parameters(machine):
    run = example("spec")["spec"]
    params = {param["name"]: param["value"] for param in run["params"]}
    assert run["taskRef"]["name"] == "compatgate-check"
    done = run_task(machine, {**params, "server": NOBODY, "image": "", "stack": "cuda=12.4"})
    assert done.status == 3
    assert dict(done.outputs) == {"verdict": "unknown", "allowed": "false", "id": ""}
    assert run_task(machine, {**params, "server": NOBODY, "fail-open": "true"}).status == 0


def test_the_hook_answers_for_each_lockfile_through_pre_commit(machine):
    """The hook as published, run by pre-commit itself; only its installation is left out."""
    (hook,) = read_table(HOOKS)
    (stated,) = example("repos")["repos"][0]["hooks"]
    local = {**hook, **stated, "language": "system"}
    config = {"repos": [{"repo": "local", "hooks": [local]}]}
    (machine.workspace / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    for name, text in {
        "app/requirements.txt": DENIED,
        "docs/requirements.txt": "flask==3.1.0\n",
        "other/requirements.txt": ALLOWED,
        "notes.txt": "not a lock\n",
    }.items():
        path = machine.workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    programs = Path(yaml.__file__).parents[4] / "bin"
    run = f"git init -q . && git add -A && {programs}/pre-commit run --all-files --verbose"
    env = {"HOME": str(machine.temp), "PRE_COMMIT_HOME": str(machine.temp / "cache")}
    done = machine.run(["sh"], run, env)
    assert done.status == 1, said(done)
    assert "app/requirements.txt\nDENIED" in done.stdout
    assert "other/requirements.txt\nALLOWED" in done.stdout
    assert "note: skipped docs/requirements.txt: it has no GPU components" in done.stdout
    assert "notes.txt" not in done.stdout
    assert "exit code: 1" in done.stdout
    (machine.workspace / "app/requirements.txt").write_text(ALLOWED)
    assert machine.run(["sh"], run, env).status == 0


def test_the_hints_of_a_target_come_from_the_gate(machine, gate, token):
    page = (ROOT / "docs/how-to/build-hints.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    job = yaml.load(text, yaml.CSafeLoader)["jobs"]["build"]
    (script,) = (s["run"] for s in job["steps"] if "compatgate env" in s.get("run", ""))
    assert set(job["env"]) == {"COMPATGATE_SERVER", "COMPATGATE_TOKEN"}
    variables = {"COMPATGATE_SERVER": gate.url, "GITHUB_ENV": str(machine.temp / "env")}
    script = script.replace("--target prod ", "--target prod-a100 ")
    done = machine.run(["bash", "-e"], script, {**variables, "COMPATGATE_TOKEN": token})
    assert done.status == 0, said(done)
    assert "UV_CUDA_DRIVER_VERSION=580.95.05\n" in (machine.temp / "env").read_text()
    assert machine.run(["bash", "-e"], script, variables).status == 2
    unreachable = {**variables, "COMPATGATE_SERVER": NOBODY}
    assert machine.run(["bash", "-e"], script, unreachable).status == 3
