"""Reading manifests: what kubectl applies is read, and every mistake names its file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatgate.errors import BadInput, CompatgateError
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.cluster.manifests import Manifests, read_manifests

KINDS = load_kinds()
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
    - name: c
      image: i:1
"""
DEEP = "a: " + "[" * 200 + "]" * 200
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
)
WRONG = {
    "a tab": ("kind: Pod\n\tmetadata: {}\n", ":2: ", "begins with a tab"),
    "a bracket": ("kind: Pod\nspec: [a\n", ":3: ", "not valid YAML"),
    "a control character": (POD.replace("i:1", "\0"), ":7: ", "U+0000 is not allowed"),
    "not an object": ("--- just text\n", ":1: ", "is not a Kubernetes object"),
    "no kind": (f"{POD}---\napiVersion: v1\nmetadata: {{}}\n", ":9: kind: ", "is missing"),
    "no version": ("kind: Pod\nmetadata: {}\n", ":1: apiVersion: ", "is missing"),
    "a number as kind": ("apiVersion: v1\nkind: 3\n", ":2: kind: ", "must be text"),
    "no metadata": ("apiVersion: v1\nkind: Pod\nspec: {}\n", ":1: metadata: ", "is missing"),
    "a key twice": (POD + "    - image: j\n      image: k\n", ":9: ", "stated twice"),
    "deep": (f"apiVersion: v1\nkind: Pod\n{DEEP}\n", ":3: ", "nested too deeply"),
    "aliases": (f"apiVersion: v1\nkind: Pod\n{BOMB}\n", ":", "aliases expand to far more"),
    "an alias of itself": (f"{POD}  a: &a [*a]\n", ":8: ", "an alias contains itself"),
    "a tag": (POD.replace("i:1", "!Ref Image"), ":7: ", "the tag !Ref is not supported"),
    "a template in blocks": (
        "apiVersion: v1\n{{- if .Values.on }}\nkind: Pod\n{{- end }}\n", ":2: ", "helm template",
    ),
    "a template as value": (POD.replace("i:1", "{{ .Values.image }}"), ":7: ", "helm template"),
    "a template in quotes": (POD.replace("i:1", '"{{ .Values.i }}"'), ":7: ", "helm template"),
    "a template as name": (
        POD.replace("name: p", 'name: "{{ include "x" . }}"'), ":3: ", "not rendered",
    ),
    "a variable as image": (POD.replace("i:1", "${IMAGE}"), ":7: ", "envsubst"),
    "a variable in an image": (POD.replace("i:1", "team/app:$TAG"), ":7: ", "not rendered"),
    "a variable as amount": (
        f"{POD}      resources: {{limits: {{nvidia.com/gpu: '${{GPUS}}'}}}}\n", ":8: ", "envsubst",
    ),
    "an item of a list": (
        "apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n", ":4: items[0].apiVersion: ", "missing",
    ),
    "nothing": ("# nothing\n---\n", "m.yaml: contains no Kubernetes object", "exit status"),
}  # fmt: skip


def read(path: Path, namespace: str = "here") -> Manifests:
    return read_manifests([str(path)], namespace, KINDS)


def test_mistakes_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    for name, (text, place, why) in WRONG.items():
        path.write_text(text)
        with pytest.raises(CompatgateError) as wrong:
            read(path)
        said = wrong.value.detail
        assert wrong.value.exit_code == 2, name
        assert "m.yaml" in said, name
        assert place in said, (name, said)
        assert why in said, (name, said)


def test_variables_of_kubernetes_are_no_template(tmp_path: Path) -> None:
    """``$(NAME)`` is Kubernetes'; a shell in a command has variables of its own."""
    (tmp_path / "m.yaml").write_text(f"{POD}      args: ['$(NAME)', 'echo $HOME']\n")
    assert len(read(tmp_path / "m.yaml").found) == 1


def test_every_mistake_of_a_file_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("kind: Pod\n---\napiVersion: v1\n---\n- 1\n")
    with pytest.raises(CompatgateError, match=r"(?s)3 problems.*m\.yaml:1.*m\.yaml:3.*m\.yaml:5"):
        read(path)


def test_what_kubectl_reads_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    config = 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {80: "{{ .x }}", on: a}\n'
    path.write_text(f"---\n{config}---\n# a comment\n---\n{POD}")
    found = read(path)
    assert found.objects == 2
    (pod,) = found.found
    assert (pod.name, pod.namespace, pod.line()) == ("Pod here/p", "here", 9)
    assert pod.line(pod.locate("spec.containers[0].image")) == 15


def test_lists_and_json_have_lines(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    pod = {
        "metadata": {"name": "p", "namespace": "own"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    }
    for kind, item in (("List", {"apiVersion": "v1", "kind": "Pod", **pod}), ("PodList", pod)):
        document = {"apiVersion": "v1", "kind": kind, "metadata": {}, "items": [item, item]}
        path.write_text(json.dumps(document, indent="\t"))
        found = read(path).found
        assert [one.name for one in found] == ["Pod own/p"] * 2
        lines = path.read_text().splitlines()
        for one in found:
            line = one.line(one.locate("spec.containers[0].image"))
            assert '"image": "i:1"' in lines[line - 1]
        assert found[0].line() < found[1].line()


def test_names_with_dots_are_found(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: t}
spec:
  pytorchReplicaSpecs:
    Worker: {template: {}}
    Worker.big:
      template:
        spec:
          containers: [{name: a}, {name: b}]
""")
    (found,) = read(path).found
    place = found.locate("spec.pytorchReplicaSpecs.Worker.big.template.spec.containers[1].nothing")
    assert place[-2:] == ("containers", 1)
    assert found.line(place) == 10


def test_secrets_are_counted_and_go_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {image: eA==}\n")
    assert read(path) == Manifests(1, ())


def test_folders_that_need_rendering_say_how(tmp_path: Path) -> None:
    for name, how in (("Chart.yaml", "helm template"), ("kustomization.yaml", "kubectl kustomize")):
        folder = tmp_path / how.partition(" ")[0]
        folder.mkdir()
        (folder / name).write_text("name: x\n")
        with pytest.raises(BadInput, match=how):
            read(folder)
    folder = tmp_path / "rendered"
    folder.mkdir()
    (folder / "a.yaml").write_text(POD)
    (folder / "b.yml").write_text("# nothing\n")
    assert read(folder).objects == 1


def test_large_files_and_unreadable_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.yaml"
    with pytest.raises(BadInput, match=r"cannot read .*m\.yaml"):
        read(path)
    path.write_bytes(b"kind: Pod\nname: \xff\n")
    with pytest.raises(BadInput, match=r"m\.yaml:2: not UTF-8"):
        read(path)
    monkeypatch.setattr("compatgate.service.cluster.manifests.MAX_BYTES", 10)
    path.write_text(POD)
    with pytest.raises(BadInput, match=r"m\.yaml: is larger"):
        read(path)
