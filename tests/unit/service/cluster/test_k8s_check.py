"""``compatgate k8s check``: exit status, counts, formats, errors."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import xmlschema
import yaml

from compatgate.cli.main import main
from compatgate.errors import BadInput, NotFound, Unauthorized, Unavailable

SCHEMAS = Path(__file__).parents[3] / "fixtures" / "schemas"
MATRIX = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod}
spec:
  pools: [{name: a100, gpu: A100-SXM4-80GB, driver: "580.95.05"}]
  match: {namespaces: ["ml-*"]}
"""
ENTRY = """\
---
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: tf215}
spec:
  targets: [prod]
  components: {cuda: 12.2.*, tensorflow: 2.15.*}
  status: blessed
  reason: x
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 1}]}\n"


def job(stack: str = "", namespace: str = "ml-train", kind: str = "Job") -> str:
    note = f"\n      annotations: {{compatgate.dev/stack: '{stack}'}}" if stack else " {}"
    return f"""\
apiVersion: batch/v1
kind: {kind}
metadata:
  name: train
  namespace: {namespace}
spec:
  template:
    metadata:{note}
    spec:
      containers:
        - name: main
          image: registry.example/train:1
          resources:
            limits:
              nvidia.com/gpu: 1
"""


GOOD, BAD = "cuda=12.4,arch=sm_80", "cuda=12.4,arch=sm_90"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A database and a bundle with one target, as options."""
    folder = tmp_path_factory.mktemp("k8s-check")
    (folder / "matrix.yaml").write_text(MATRIX)
    database, bundle = str(folder / "gate.db"), str(folder / "b.bundle")
    named = ["--database", database]
    assert main(["matrix", "import", str(folder / "matrix.yaml"), "--reason", "x", *named]) == 0
    assert main(["bundle", "export", "--output", bundle, *named]) == 0
    return {"--database": database, "--bundle": bundle}


@pytest.fixture
def check(places: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Check a text with every decider; both must answer alike."""

    def run(text: str, *options: str) -> SimpleNamespace:
        path = tmp_path / "m.yaml"
        path.write_text(text)
        found = []
        for option, value in places.items():
            capsys.readouterr()
            status = main(["k8s", "check", str(path), option, value, *options])
            out, err = capsys.readouterr()
            found.append((status, out.replace(str(tmp_path), "."), err))
        assert found[0][0] == found[1][0]
        assert found[0][2] == found[1][2]
        status, out, err = found[0]
        return SimpleNamespace(status=status, out=out, err=err)

    return run


def test_the_worst_object_decides_and_the_others_are_counted(check: Any) -> None:
    table: list[tuple[list[str], int, str]] = [
        ([SERVICE], 0, "1 object, 0 with GPU pods\n"),
        ([SERVICE, job(GOOD)], 0, "2 objects, 1 with GPU pods: 1 allowed\n"),
        ([job(GOOD), job(BAD)], 1, "2 objects, 2 with GPU pods: 1 denied, 1 allowed\n"),
        ([job()], 3, "1 object, 1 with GPU pods: 1 not decided\n"),
        ([job(), job(BAD)], 1, "2 objects, 2 with GPU pods: 1 denied, 1 not decided\n"),
        ([job("cuda")], 1, "1 object, 1 with GPU pods: 1 denied\n"),
        ([job(GOOD, "other")], 3, "1 object, 1 with GPU pods: 1 not checked\n"),
        (
            [job(GOOD), job(GOOD, "other")],
            3,
            "2 objects, 2 with GPU pods: 1 not checked, 1 allowed\n",
        ),
        (
            [job(BAD), job(GOOD, "other")],
            1,
            "2 objects, 2 with GPU pods: 1 denied, 1 not checked\n",
        ),
    ]
    for texts, status, counts in table:
        found = check("---\n".join(texts))
        assert (found.status, found.err) == (status, counts), texts


def test_an_object_of_an_operator_that_asks_for_no_gpu_is_named(check: Any) -> None:
    service = (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\n"
        "metadata: {name: onnx, namespace: ml}\n"
        "spec: {predictor: {model: {modelFormat: {name: onnx}}}}\n"
    )
    found = check(service)
    counts, note = found.err.splitlines()
    assert (found.status, counts) == (0, "1 object, 0 with GPU pods")
    why = "asks for no GPU; pods that its operator adds were not checked"
    assert note == f"InferenceService ml/onnx: {why}"


@pytest.mark.parametrize(
    ("options", "status", "answer"),
    [
        ((), 3, "NO DECISION: container main"),
        (("--fail-open",), 0, "NO DECISION: container main"),
        (("--unmatched", "warn"), 0, "ALLOWED, with warnings: container main"),
        (("--unmatched", "allow"), 0, "ALLOWED: container main"),
        (("--unmatched", "deny"), 1, "DENIED: container main"),
    ],
)
def test_a_pod_without_a_target_passes_only_where_the_command_says_so(
    check: Any, options: tuple[str, ...], status: int, answer: str
) -> None:
    found = check(job(GOOD, "other"), *options)
    assert (found.status, answer in found.out) == (status, True), found.out
    assert "matches no target, so nothing was checked" in " ".join(found.out.split())


def test_an_image_that_was_not_read_leads_as_the_webhook_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "matrix.yaml").write_text(
        MATRIX + "  policy: {requireEntry: true, onUnknown: fail}\n" + ENTRY
    )
    (tmp_path / "m.yaml").write_text(job())
    named = ["--database", str(tmp_path / "gate.db")]
    assert main(["matrix", "import", str(tmp_path / "matrix.yaml"), "--reason", "x", *named]) == 0
    capsys.readouterr()
    for form, at in (("text", "CG"), ("github", "title=CG"), ("markdown", "`CG")):
        assert main(["k8s", "check", str(tmp_path / "m.yaml"), "--format", form, *named]) == 1
        said = capsys.readouterr().out
        assert said.partition(at)[2].startswith("901"), said
        assert "CG801" in said
    assert main(["k8s", "check", str(tmp_path / "m.yaml"), "--format", "json", *named]) == 1
    first = json.loads(capsys.readouterr().out)[0]
    lead = first["findings"][0]
    assert "the image is not known" in lead["message"]
    assert lead["need"] in first["manifest"]["messages"][0]
    assert lead["message"] in first["manifest"]["messages"][0]


def test_options_of_admission_decide_without_a_server(check: Any, tmp_path: Path) -> None:
    other = job(BAD).replace("nvidia.com/gpu", "example.com/gpu")
    assert check(other).err == "1 object, 0 with GPU pods\n"
    kinds = tmp_path / "kinds.yaml"
    kinds.write_text("resources: [example.com/gpu]\n")
    assert check(other, "--kinds", str(kinds)).status == 1


CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: device%s}
spec: {spec: {devices: {requests: [{name: d, exactly: {deviceClassName: %s}}]}}}
"""


def test_claims_of_the_same_files_say_what_a_pod_asks_for(check: Any) -> None:
    claiming = job(BAD).replace("limits:\n              nvidia.com/gpu: 1", "claims: [{name: d}]")
    claiming += "      resourceClaims: [{name: d, resourceClaimTemplateName: device}]\n"
    network, gpu, unknown = "dra.cpu", "gpu.nvidia.com", "nic.example.com"
    elsewhere = CLAIM.replace("metadata: {", "metadata: {namespace: other, ")
    table: list[tuple[list[str], str, int, str]] = [
        ([claiming], "ml-train", 1, "1 object, 1 with GPU pods: 1 denied\n"),
        ([claiming, CLAIM % ("", gpu)], "ml-train", 1, "2 objects, 1 with GPU pods: 1 denied\n"),
        ([claiming, CLAIM % ("", unknown)], "ml-train", 1, "2 objects, 1 with GPU pods: 1 den"),
        ([CLAIM % ("", network), claiming], "ml-train", 0, "2 objects, 0 with GPU pods\n"),
        ([claiming, CLAIM % ("-b", network)], "ml-train", 1, "2 objects, 1 with GPU pods: 1 den"),
        ([claiming, elsewhere % ("", network)], "ml-train", 1, "2 objects, 1 with GPU pods: 1 d"),
        ([claiming, CLAIM % ("", network)], "other", 1, "2 objects, 1 with GPU pods: 1 denied\n"),
    ]
    for texts, namespace, status, counts in table:
        found = check("---\n".join(texts), "--namespace", namespace)
        assert (found.status, found.err[: len(counts)]) == (status, counts), texts


def test_an_object_that_says_it_is_going_is_checked_like_any_other(check: Any) -> None:
    for kind in ("Job", "Thing"):
        text = job(BAD, kind=kind).replace(
            "  name: train\n", "  name: train\n  deletionTimestamp: '2026-01-01T00:00:00Z'\n"
        )
        assert check(text).status == 1


def test_what_admission_leaves_out_or_searches_is_said(check: Any) -> None:
    found = check(job(BAD, kind="Thing"))
    assert found.status == 1
    assert "Thing is not of a kind that compatgate knows" in found.out
    assert check(SERVICE.replace("Service", "Thing")).out == ""
    left = check(job(BAD, "gpu-operator"))
    assert left.status == 0
    assert "the webhook leaves out namespace gpu-operator" in left.out


def test_no_decision_passes_only_where_it_is_asked_for(check: Any) -> None:
    found = check(job(), "--fail-open")
    assert (found.status, "UNCHECKED" in found.err) == (0, True)
    assert check(job() + "---\n" + job(BAD), "--fail-open").status == 1


def test_the_namespace_counts_where_an_object_states_none(check: Any) -> None:
    text = job(BAD).replace("  namespace: ml-train\n", "")
    assert check(text).status == 3
    assert check(text, "--namespace", "ml-x").status == 1
    assert check(text, "--namespace", "No!").status == 2


def test_every_format_names_the_line(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    text = SERVICE + "---\n" + job(BAD) + "---\n" + job("cuda")
    lines = text.splitlines()
    stated, note = (n for n, line in enumerate(lines, 1) if "compatgate.dev/stack" in line)
    found = {
        form: check(text, "--format", form)
        for form in ("text", "json", "sarif", "junit", "github", "markdown", "gitlab-codequality")
    }
    assert {one.status for one in found.values()} == {1}
    first, second = json.loads(found["json"].out)
    assert first["findings"][0]["rule"] == "CG201"
    assert first["manifest"]["object"] == "Job ml-train/train"
    assert first["manifest"]["containers"] == ["main"]
    assert "may not run on prod" in first["manifest"]["messages"][0]
    assert lines[first["manifest"]["line"] - 1].strip() == "image: registry.example/train:1"
    assert (second["manifest"]["line"], second["findings"][0]["rule"]) == (note, "CG835")
    log = json.loads(found["sarif"].out)
    schema = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text())
    formats = jsonschema.Draft7Validator.FORMAT_CHECKER
    jsonschema.Draft7Validator(schema, format_checker=formats).validate(log)
    results = log["runs"][0]["results"]
    places = {
        (r["ruleId"], r["locations"][0]["physicalLocation"]["region"]["startLine"]) for r in results
    }
    assert {("CG201", stated), ("CG835", note)} <= places
    assert f",line={stated},title=CG201" in found["github"].out
    assert f",line={note},title=CG835" in found["github"].out
    quality = json.loads(found["gitlab-codequality"].out)
    assert {one["location"]["lines"]["begin"] for one in quality} >= {stated, note}
    assert "Job ml-train/train, container main" in found["junit"].out
    xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd").validate(found["junit"].out)
    assert found["markdown"].out.startswith("<!-- compatgate: manifests -->")
    assert "DENIED: CUDA 12.4, sm_90 on target prod" in found["text"].out


def test_remarks_are_at_the_container_or_annotation_that_they_name(check: Any) -> None:
    pod = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: ml-x
  annotations:
    compatgate.dev/stack: cuda=12.4,arch=sm_80
    compatgate.dev/gpu: "false"
spec:
  resourceClaims: [{name: g, resourceClaimName: g}]
  containers:
    - name: side
      image: i:1
    - name: main
      image: i:1
      resources: {claims: [{name: g}]}
"""
    answers = json.loads(check(pod, "--format", "json").out)
    said = {a["manifest"]["messages"][0]: a["manifest"]["line"] for a in answers if not a["id"]}
    assert [line for text, line in said.items() if "is taken for a GPU" in text] == [14]
    assert [line for text, line in said.items() if "is ignored" in text] == [8]


def test_nothing_to_say_is_a_valid_report(check: Any) -> None:
    assert check(SERVICE).out == ""
    assert json.loads(check(SERVICE, "--format", "json").out) == []
    assert json.loads(check(SERVICE, "--format", "sarif").out)["runs"][0]["results"] == []


def test_mistakes_are_annotated_at_their_lines(check: Any) -> None:
    found = check("kind: Pod\n---\nkind: Pod\n", "--format", "github")
    assert found.status == 2
    assert "/m.yaml,line=1::is missing" in found.out
    assert "/m.yaml,line=3::is missing" in found.out
    assert "Traceback" not in found.err


def test_standard_input_is_read(
    places: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ["--bundle", places["--bundle"]]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(job(BAD).encode())))
    assert main(["k8s", "check", "-", *named]) == 1
    assert "stdin:13: Job ml-train/train" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["k8s", "check", "-", *named]) == 2
    assert "<stdin>: contains no Kubernetes object" in capsys.readouterr().err


def test_a_gate_decides_with_its_own_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(job(GOOD))
    gate = ["--server", "https://gate.example"]
    for option in (["--kinds", "/dev/null"], ["--registry", "r.example"]):
        assert main(["k8s", "check", str(path), *gate, *option]) == 2
        assert (
            f"{option[0]}: cannot be combined with --server: the gate uses its own setting"
            in capsys.readouterr().err
        )


@pytest.mark.parametrize(
    ("error", "status", "asked"),
    [
        (Unavailable("the gate does not answer"), 3, 1),
        (Unauthorized("the token is unknown"), 2, 1),
        (NotFound("there is no such route"), 2, 1),
        (BadInput("object: is malformed"), 2, 3),
    ],
)
def test_after_nobody_answers_no_more_is_asked(
    error: Exception,
    status: int,
    asked: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls = []

    def fails(*args: Any, **_: Any) -> Any:
        calls.append(args)
        raise error

    monkeypatch.setattr("compatgate.cli.cluster.check.ask_server", fails)
    path = tmp_path / "m.yaml"
    path.write_text("---\n".join([job(GOOD), job(), job(BAD)]))
    assert main(["k8s", "check", str(path), "--server", "http://127.0.0.1:1"]) == status
    assert len(calls) == asked
    out, err = capsys.readouterr()
    if status == 3:
        assert "not decided: the gate does not answer" in out
        assert "3 with GPU pods: 3 not decided" in err


def test_the_kinds_file_of_a_report_is_not_overwritten(
    check: Any, places: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "m.yaml"
    text = yaml.safe_dump(yaml.safe_load(job(GOOD)))
    assert check(text, "--format", f"json={path}").status == 2
    assert path.read_text() == text
